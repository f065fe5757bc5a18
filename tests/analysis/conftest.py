"""Makers of requests, cells and runs whose true figures are known."""

import heapq
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from stepscope.analysis.analyze import analyze
from stepscope.analysis.records import Analysis, CellResult, Stats
from stepscope.importers.load import load_foreign
from stepscope.recipe.records import Workload
from stepscope.run.requests import Request
from stepscope.run.run import Cell, Launch, Run, Timeline
from stepscope.run.samples import MetricsSnapshot, MetricValue

MS = 1_000_000
SHARED = Path(__file__).parents[2].parent / "shared"
START = 10_000 * MS
NO_STATS = Stats(mean=None, median=None, p90=None, p99=None, max=None)


def _served(
    n: int = 64,
    slots: int = 8,
    *,
    tokens: int = 20,
    ttft_ms: Sequence[float] | float = 30.0,
    tpot_ms: Sequence[float] | float = 10.0,
    start: int = START,
    chunk_every: int = 1,
) -> tuple[Request, ...]:
    """A closed loop of ``slots``: each request with its own TTFT and TPOT."""
    ttft = np.broadcast_to(ttft_ms, n)
    tpot = np.broadcast_to(tpot_ms, n)
    free = [start] * slots
    heapq.heapify(free)
    made = []
    for i in range(n):
        sent = heapq.heappop(free)
        steps = np.arange(0, tokens, chunk_every)
        offsets = np.round((ttft[i] + tpot[i] * steps) * MS).astype("<i8")
        offsets[-1] = round((ttft[i] + tpot[i] * (tokens - 1)) * MS)
        last = sent + int(offsets[-1])
        heapq.heappush(free, last)
        made.append(
            Request(
                index=i,
                sent_at_ns=sent,
                ended_at_ns=last,
                first_content_at_ns=sent + int(offsets[0]),
                last_content_at_ns=last,
                prompt_tokens=100,
                output_tokens=tokens,
                requested_output_tokens=tokens,
                n_chunks=len(offsets),
                chunk_offsets_ns=offsets.tobytes(),
                finish_reason="length",
            )
        )
    return tuple(made)


def _cell(
    requests: tuple[Request, ...] = (),
    *,
    name: str = "base-c8-r0",
    concurrency: int | None = 8,
    tokens: int = 20,
    **over: Any,
) -> Cell:
    fields: dict[str, Any] = {
        "name": name,
        "configuration": "base",
        "launch": "base-l0",
        "workload": Workload(
            concurrency=concurrency,
            n_prompts=over.pop("n_prompts", len(requests)),
            input_tokens=100,
            output_tokens=tokens,
            ignore_eos=over.pop("ignore_eos", True),
        ),
        "requests": requests,
    }
    return Cell(**{**fields, **over})


def _run(*cells: Cell, **over: Any) -> Run:
    names = dict.fromkeys((c.launch, c.configuration) for c in cells)
    launches = tuple(
        Launch(name=launch, configuration=configuration, ready=True)
        for launch, configuration in names
    )
    fields: dict[str, Any] = {
        "id": "made",
        "engine": "vllm",
        "timeline": Timeline(kind="monotonic"),
        "launches": launches,
        "cells": cells,
    }
    return Run(**{**fields, **over})


def _result(**over: Any) -> CellResult:
    """A sound result; figures as asked, everything else absent."""
    values: dict[str, Any] = dict.fromkeys(CellResult.__struct_fields__)
    values |= {
        "name": "base-c8-r0", "configuration": "base", "launch": "base-l0",
        "session": "s0", "concurrency": 8, "repeat": 0, "warm_up": False,
        "valid": True, "void_reasons": (), "status": "done", "n_requests": 64,
        "n_failed": 0, "failure_kinds": {}, "waves": 8.0,
    }  # fmt: skip
    for key in ("ttft_ms", "tpot_ms", "itl_ms", "e2el_ms"):
        mean = over.pop(key, None)
        values[key] = msgspec.structs.replace(NO_STATS, mean=mean)
    return CellResult(**{**values, **over})


def _metrics(at_ns: int = 0, **values: float) -> MetricsSnapshot:
    """A scrape; ``vllm__x`` stands for ``vllm:x``."""
    return MetricsSnapshot(
        at_ns=at_ns,
        values=tuple(
            MetricValue(name=key.replace("__", ":"), labels={}, value=value)
            for key, value in values.items()
        ),
    )


@pytest.fixture(scope="session")
def served() -> Callable[..., tuple[Request, ...]]:
    return _served


@pytest.fixture(scope="session")
def cell_of() -> Callable[..., Cell]:
    return _cell


@pytest.fixture(scope="session")
def run_of() -> Callable[..., Run]:
    return _run


@pytest.fixture(scope="session")
def result_of() -> Callable[..., CellResult]:
    return _result


@pytest.fixture(scope="session")
def scrape() -> Callable[..., MetricsSnapshot]:
    return _metrics


@pytest.fixture(scope="session")
def codes() -> Callable[[Analysis, str], list[str]]:
    """Codes of the findings on one cell."""

    def of(analysis: Analysis, cell: str = "base-c8-r0") -> list[str]:
        return [f.code for f in analysis.findings if f.cell == cell]

    return of


@pytest.fixture(scope="session")
def baseline() -> Analysis:
    """The real sweep of one H200."""
    if not SHARED.exists():
        pytest.skip("no real evidence beside the repository")
    return analyze(load_foreign(SHARED / "data/h200x1-qwen3moe-baseline/import.toml"))


@pytest.fixture(scope="session")
def details() -> Analysis:
    """The real sweep with one log line for each iteration."""
    if not SHARED.exists():
        pytest.skip("no real evidence beside the repository")
    path = SHARED / "data/h200x1-qwen3moe-iteration-details/import.toml"
    return analyze(load_foreign(path))
