"""An answer that a proxy holds back until it is whole has no time between tokens."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from stepscope.analysis.analyze import analyze
from stepscope.board.judge import judge
from stepscope.run.requests import Request
from stepscope.run.run import Cell, Run

Served = Callable[..., tuple[Request, ...]]
MakeCell = Callable[..., Cell]
MakeRun = Callable[..., Run]


def held_back(request: Request, over_ns: int = 0) -> Request:
    """Return the request as it looks behind a proxy that buffers its answer."""
    last = request.last_content_at_ns
    assert last is not None
    offset = (last - over_ns - request.sent_at_ns).to_bytes(8, "little")
    final = (last - request.sent_at_ns).to_bytes(8, "little")
    return msgspec.structs.replace(
        request,
        first_content_at_ns=last - over_ns,
        chunk_offsets_ns=offset * (request.n_chunks - 1) + final,
    )


@pytest.mark.parametrize("over_ns", [0, 100_000])
def test_answers_that_come_whole_have_no_tpot_and_it_is_said(
    served: Served, cell_of: MakeCell, run_of: MakeRun, over_ns: int
) -> None:
    requests = tuple(held_back(r, over_ns) for r in served(64, 8))
    assert requests[0].output_tokens is not None
    assert requests[0].output_tokens >= 8
    run = run_of(cell_of(requests))
    analysis = analyze(run)
    (cell,) = analysis.cells
    assert cell.tpot_ms.mean is None
    assert cell.ttft_ms.mean == pytest.approx(cell.e2el_ms.mean, rel=1e-3)
    assert cell.client_tpot_error_pct is None
    codes = [f.code for f in analysis.findings if f.severity == "error"]
    assert codes == ["answers-in-one-piece"]
    told = " ".join(judge(run, analysis).sentences)
    assert "output tokens/s" in told
    assert "a token takes" not in told


def test_a_stream_is_not_taken_for_one_piece(
    served: Served, cell_of: MakeCell, run_of: MakeRun
) -> None:
    analysis = analyze(run_of(cell_of(served(64, 8))))
    assert analysis.cells[0].tpot_ms.mean is not None
    assert "answers-in-one-piece" not in [f.code for f in analysis.findings]


def test_two_tokens_in_one_piece_are_no_buffered_answer(
    served: Served, cell_of: MakeCell, run_of: MakeRun
) -> None:
    def short(request: Request) -> Request:
        changes: dict[str, Any] = {"output_tokens": 2, "requested_output_tokens": 2}
        return msgspec.structs.replace(held_back(request), **changes)

    analysis = analyze(run_of(cell_of(tuple(short(r) for r in served(64, 8)))))
    assert analysis.cells[0].tpot_ms.mean == 0.0
    assert "answers-in-one-piece" not in [f.code for f in analysis.findings]
