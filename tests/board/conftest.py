from typing import Any

import pytest

from stepscope.analysis.records import (
    Analysis,
    CellResult,
    CellTelemetry,
    Stats,
)
from stepscope.board.judge import judge
from stepscope.board.records import Board, BoardEntry
from stepscope.recipe.records import Workload
from stepscope.run.requests import Request
from stepscope.run.run import Cell, Launch, Run, Timeline
from stepscope.run.serverlog import ServerLog

STEP_NS = 10_000_000
NONE = Stats(mean=None, median=None, p90=None, p99=None, max=None)


def stats(mean: float, median: float | None = None) -> Stats:
    return Stats(mean=mean, median=median or mean, p90=mean, p99=mean, max=mean, n=64)


def result(**over: Any) -> CellResult:
    """A sound cell of vLLM on one GPU: step 10 ms, everything agrees."""
    fields: dict[str, Any] = {
        "name": "base-c16-r0",
        "configuration": "base",
        "launch": "base-l0",
        "session": "s0",
        "concurrency": 16,
        "repeat": 0,
        "warm_up": False,
        "valid": True,
        "void_reasons": (),
        "status": "done",
        "n_requests": 64,
        "n_failed": 0,
        "failure_kinds": {},
        "input_tokens": 64 * 100,
        "output_tokens": 64 * 100,
        "duration_s": 4.0,
        "waves": 4.0,
        "occupancy": 0.98,
        "occupancy_expected": None,
        "little_residual": 0.0,
        "output_tokens_per_s": 1600.0,
        "requests_per_s": 16.0,
        "steady_output_tokens_per_s": 1600.0,
        "ttft_ms": stats(30.0),
        "tpot_ms": stats(10.0),
        "itl_ms": stats(10.0, 9.9),
        "e2el_ms": stats(1000.0),
        "decode_efficiency": 0.97,
        "decode_efficiency_residual": 0.0,
        "chunks_per_token": 1.0,
        "server_tpot_ms": 10.0,
        "server_ttft_ms": 29.0,
        "client_tpot_error_pct": 0.2,
        "engine_step_ms": 9.9,
        "tokens_per_step_and_sequence": 1.0,
        "prefill_share_of_steps": 0.01,
        "telemetry": None,
        "usd_per_million_output_tokens": None,
    }
    return CellResult(**{**fields, **over})


def telemetry(**over: Any) -> CellTelemetry:
    fields: dict[str, Any] = {
        "n_samples_total": 60,
        "n_samples_in_window": 40,
        "window_s": 4.0,
    }
    return CellTelemetry(**{**fields, **over})


def requests(gaps_ns: tuple[int, ...]) -> tuple[Request, ...]:
    """One request whose chunks arrive with these gaps."""
    import numpy as np

    offsets = 30_000_000 + np.concatenate([[0], np.cumsum(gaps_ns)]).astype("<i8")
    return (
        Request(
            index=0,
            sent_at_ns=0,
            ended_at_ns=int(offsets[-1]),
            first_content_at_ns=int(offsets[0]),
            last_content_at_ns=int(offsets[-1]),
            output_tokens=len(offsets),
            n_chunks=len(offsets),
            chunk_offsets_ns=offsets.tobytes(),
        ),
    )


def cell(name: str = "base-c16-r0", concurrency: int = 16, **over: Any) -> Cell:
    fields: dict[str, Any] = {
        "name": name,
        "configuration": "base",
        "launch": "base-l0",
        "workload": Workload(
            concurrency=concurrency, n_prompts=64, input_tokens=100, output_tokens=100
        ),
        "requests": requests((STEP_NS,) * 99),
    }
    return Cell(**{**fields, **over})


def launch(**over: Any) -> Launch:
    fields: dict[str, Any] = {
        "name": "base-l0",
        "configuration": "base",
        "ready": True,
        "log": ServerLog(engine="vllm", version="0.26.0", n_lines=1),
    }
    return Launch(**{**fields, **over})


def run(**over: Any) -> Run:
    fields: dict[str, Any] = {
        "id": "r",
        "engine": "vllm",
        "timeline": Timeline(kind="monotonic"),
        "gpu": "NVIDIA H200",
        "n_gpus": 1,
        "launches": (launch(),),
        "cells": (cell(),),
    }
    return Run(**{**fields, **over})


class Bench:
    """Builds small runs, and looks one hypothesis up on their board."""

    cell = staticmethod(cell)
    launch = staticmethod(launch)
    requests = staticmethod(requests)
    result = staticmethod(result)
    run = staticmethod(run)
    stats = staticmethod(stats)
    telemetry = staticmethod(telemetry)

    def board(
        self, run_: Run | None = None, *results: CellResult, **analysis: Any
    ) -> Board:
        return judge(run_ or run(), Analysis(cells=results or (result(),), **analysis))

    def entry(
        self,
        hypothesis: str,
        run_: Run | None = None,
        *results: CellResult,
        **analysis: Any,
    ) -> BoardEntry:
        board = self.board(run_, *results, **analysis)
        (found,) = [e for e in board.entries if e.hypothesis == hypothesis]
        return found


@pytest.fixture
def bench() -> Bench:
    return Bench()
