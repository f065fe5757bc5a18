"""Whatever lies in an archive, analysis answers: with figures, or with findings."""

import json
from typing import Any

import msgspec
import numpy as np
from hypothesis import given, settings, strategies as st

from stepscope.analysis.analyze import analyze
from stepscope.recipe.records import Workload
from stepscope.run.requests import Request
from stepscope.run.run import Cell, Launch, Run, Summary, Timeline

MS = 1_000_000


@st.composite
def requests(draw: st.DrawFn, index: int) -> Request:
    sent = draw(st.integers(1, 5_000)) * MS
    n_chunks = draw(st.integers(0, 6))
    gaps = draw(st.lists(st.integers(0, 900), min_size=n_chunks, max_size=n_chunks))
    offsets = np.cumsum(np.array(gaps, np.int64)) * MS
    has = n_chunks > 0
    last = sent + int(offsets[-1]) if has else sent
    failure = draw(st.sampled_from([None, None, None, "stall", "reset"]))
    return Request(
        index=index,
        sent_at_ns=sent,
        ended_at_ns=last + draw(st.integers(0, 3)) * MS,
        first_content_at_ns=sent + int(offsets[0]) if has else None,
        last_content_at_ns=last if has else None,
        output_tokens=draw(st.sampled_from([None, 0, 1, 2, n_chunks, 50])),
        requested_output_tokens=draw(st.sampled_from([None, n_chunks, 50])),
        prompt_tokens=draw(st.sampled_from([None, 10])),
        n_chunks=n_chunks,
        chunk_offsets_ns=offsets.astype("<i8").tobytes()
        if draw(st.booleans())
        else b"",
        finish_reason=draw(st.sampled_from([None, "stop", "length"])),
        failure=failure,
    )


@st.composite
def cells(draw: st.DrawFn, number: int) -> Cell:
    n = draw(st.integers(0, 12))
    return Cell(
        name=f"c{number}",
        configuration=draw(st.sampled_from(["a", "b"])),
        launch=draw(st.sampled_from(["l0", "l1", "nowhere"])),
        workload=Workload(
            concurrency=draw(st.sampled_from([None, 1, 2, 8])),
            n_prompts=max(1, n),
            input_tokens=draw(st.sampled_from([None, 10])),
            output_tokens=draw(st.sampled_from([None, 5])),
            ignore_eos=draw(st.booleans()),
        ),
        repeat=draw(st.integers(0, 2)),
        warm_up=draw(st.booleans()),
        status=draw(st.sampled_from(["done", "done", "failed", "interrupted"])),
        requests=tuple(draw(requests(i)) for i in range(n)),
        clock_slack_ns=draw(st.sampled_from([0, 500 * MS])),
    )


@st.composite
def summaries(draw: st.DrawFn) -> Summary:
    figure = st.sampled_from([0.0, 1e-3, 0.5, 20.0, 1e6])
    names = st.sampled_from(["ttft_ms", "tpot_ms", "itl_ms", "e2el_ms"])
    kinds = st.dictionaries(st.sampled_from(["mean", "median", "p99"]), figure)
    return Summary(
        n_completed=draw(st.sampled_from([0, 1, 7, 64])),
        n_failed=draw(st.sampled_from([0, 1, 64])),
        duration_s=draw(st.sampled_from([None, 0.0, 1e-6, 2.0])),
        input_tokens=draw(st.sampled_from([None, 0, 640])),
        output_tokens=draw(st.sampled_from([None, 0, 1, 640])),
        stats=draw(st.dictionaries(names, kinds)),
    )


@st.composite
def bare_cells(draw: st.DrawFn, number: int) -> Cell:
    """A cell of which only somebody's figures are known."""
    made = draw(cells(number))
    return msgspec.structs.replace(made, requests=(), summary=draw(summaries()))


@st.composite
def runs(draw: st.DrawFn) -> Run:
    return Run(
        id="any",
        engine="vllm",
        timeline=Timeline(kind="monotonic"),
        launches=tuple(
            Launch(name=f"l{i}", configuration="a", session=f"s{i}") for i in range(2)
        ),
        cells=tuple(
            draw(st.one_of(cells(i), bare_cells(i)))
            for i in range(draw(st.integers(0, 4)))
        ),
    )


@settings(max_examples=60)
@given(run=runs())
def test_any_run_is_analysed_and_holds_no_nan(run: Run) -> None:
    found = analyze(run)
    assert [c.name for c in found.cells] == [c.name for c in run.cells]
    text = msgspec.json.encode(found)

    def refuse(word: str) -> Any:
        raise AssertionError(word)

    json.loads(text, parse_constant=refuse)
    for cell in found.cells:
        assert not (cell.valid and cell.void_reasons)
        assert cell.occupancy is None or cell.occupancy >= 0
