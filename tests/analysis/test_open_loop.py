"""Open loops of known queues: what keeps up, what does not, what can not be told."""

import heapq
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from stepscope.analysis.analyze import analyze
from stepscope.analysis.cell.columns import columns
from stepscope.analysis.cell.open_loop import open_loop
from stepscope.analysis.records import Analysis, CellResult
from stepscope.recipe.records import Workload
from stepscope.run.requests import Request
from stepscope.run.run import Cell, Run

MS, S = 1_000_000, 1_000_000_000
START = 50 * S


def request(i: int, due: int, sent: int, first: int, last: int, n: int = 5) -> Request:
    offsets = np.linspace(first - sent, last - sent, n).astype("<i8")
    return Request(
        index=i,
        intended_at_ns=due,
        sent_at_ns=sent,
        ended_at_ns=last,
        first_content_at_ns=sent + int(offsets[0]),
        last_content_at_ns=sent + int(offsets[-1]),
        prompt_tokens=10,
        output_tokens=n,
        requested_output_tokens=n,
        n_chunks=n,
        chunk_offsets_ns=offsets.tobytes(),
    )


def arrivals(n: int, rate: float, seed: int) -> list[int]:
    rng = np.random.default_rng(seed)
    return [START + round(t * S) for t in np.cumsum(rng.exponential(1 / rate, n))]


def queue(due: Sequence[int], service_s: float, servers: int = 1) -> list[Request]:
    """First come, first served, by so many servers of a fixed service time."""
    free = [0] * servers
    made = []
    for i, at in enumerate(due):
        begin = max(at, heapq.heappop(free))
        end = begin + round(service_s * S)
        heapq.heappush(free, end)
        first = begin + (end - begin) // 5
        made.append(request(i, at, at, first, end))
    return made


def endless(due: Sequence[int], stay_s: float) -> list[Request]:
    """A server that takes everybody at once."""
    stay = round(stay_s * S)
    return [request(i, at, at, at + stay // 10, at + stay) for i, at in enumerate(due)]


def seen(requests: Sequence[Request]) -> bool | None:
    found = open_loop(columns(tuple(requests)))
    assert found is not None
    return found.overloaded


def test_a_stable_queue_is_never_called_overloaded() -> None:
    for seed in range(60):
        assert seen(queue(arrivals(400, 9.0, seed), 0.1)) is not True


def test_a_queue_at_its_limit_is_not_called_overloaded_by_luck() -> None:
    found = [seen(queue(arrivals(600, 9.8, seed), 0.1)) for seed in range(60)]
    assert found.count(True) <= 1


@pytest.mark.parametrize("load", [1.5, 2.0, 10.0])
def test_an_overloaded_queue_is_found(load: float) -> None:
    for seed in range(10):
        assert seen(queue(arrivals(400, 10 * load, seed), 0.1)) is True


def test_a_system_that_only_fills_is_not_overloaded() -> None:
    for seed in range(20):
        assert seen(endless(arrivals(400, 10.0, seed), 8.0)) is False


def test_a_cell_shorter_than_two_stays_can_not_tell() -> None:
    assert seen(endless(arrivals(400, 10.0, 1), 30.0)) is None


def test_few_arrivals_can_not_tell() -> None:
    assert seen(endless(arrivals(30, 10.0, 1), 0.05)) is None


def test_a_queue_in_the_client_counts_as_waiting() -> None:
    """With a cap the server never holds more than that; who waits, waits outside."""
    inside = queue(arrivals(400, 20.0, 3), 0.1)
    capped = [
        request(
            r.index,
            r.due_at_ns,
            max(r.due_at_ns, (r.first_content_at_ns or 0) - 20 * MS),
            r.first_content_at_ns or 0,
            r.last_content_at_ns or 0,
        )
        for r in inside
    ]
    assert seen(capped) is True


def test_figures_of_a_known_queue_are_recovered() -> None:
    due = [START + i * S // 10 for i in range(600)]
    found = open_loop(columns(tuple(endless(due, 2.0))))
    assert found is not None
    assert found.window is not None
    assert found.offered_per_s == pytest.approx(10.0, rel=1e-6)
    assert found.completed_per_s == pytest.approx(10.0, rel=0.01)
    assert found.window.from_ns == START + 2 * S
    assert found.window.to_ns == due[-1]
    assert abs(found.n_system[0] - found.n_system[1]) <= 1


def analysed(
    run_of: Callable[..., Run], requests: Sequence[Request], **work: Any
) -> tuple[Analysis, CellResult]:
    fields: dict[str, Any] = {"request_rate": 10.0, "arrival": "gamma"} | work
    cell = Cell(
        name="baseline-q10-r0",
        configuration="baseline",
        launch="baseline-l0",
        workload=Workload(concurrency=None, n_prompts=len(requests), **fields),
        requests=tuple(requests),
    )
    found = analyze(run_of(cell))
    return found, found.cells[0]


def test_an_open_loop_has_no_slots_and_keeps_its_identities(
    run_of: Callable[..., Run],
) -> None:
    analysis, cell = analysed(
        run_of, queue(arrivals(400, 10.0, 2), 0.05), max_concurrency=4
    )
    assert (cell.concurrency, cell.waves, cell.occupancy) == (None, None, None)
    assert (cell.request_rate, cell.max_concurrency) == (10.0, 4)
    assert abs(cell.little_residual or 0) < 1e-9
    assert abs(cell.decode_efficiency_residual or 0) < 1e-9
    assert cell.keeps_up is True
    assert cell.valid
    codes = {f.code for f in analysis.findings}
    assert not codes & {
        "partial-waves", "slots-empty", "overloaded", "little-violated",
        "open-loop-short",
    }  # fmt: skip


def test_latency_counts_from_when_a_request_was_due(
    run_of: Callable[..., Run],
) -> None:
    late = [
        request(i, at, at + 50 * MS, at + 150 * MS, at + 550 * MS)
        for i, at in enumerate(arrivals(80, 10.0, 4))
    ]
    _, cell = analysed(run_of, late)
    assert cell.ttft_ms.mean == pytest.approx(150, abs=1e-3)
    assert cell.e2el_ms.mean == pytest.approx(550, abs=1e-3)
    assert cell.tpot_ms.mean == pytest.approx(100, abs=1e-3)
    assert cell.client_queue_ms is not None
    assert cell.client_queue_ms.mean == pytest.approx(50, abs=1e-3)


def test_an_overloaded_cell_says_so_and_is_not_void(run_of: Callable[..., Run]) -> None:
    analysis, cell = analysed(run_of, queue(arrivals(400, 30.0, 5), 0.1))
    (finding,) = [f for f in analysis.findings if f.code == "overloaded"]
    assert finding.cell == cell.name
    assert "more than the server keeps up with" in finding.message
    assert cell.keeps_up is False
    assert cell.valid


def test_a_rate_that_rises_is_not_judged(run_of: Callable[..., Run]) -> None:
    analysis, cell = analysed(
        run_of,
        queue(arrivals(400, 30.0, 5), 0.1),
        request_rate=None,
        arrival="linear",
        ramp_rps=(1.0, 30.0),
    )
    assert cell.keeps_up is None
    assert "overloaded" not in {f.code for f in analysis.findings}


def test_cells_of_two_rates_are_no_repeats(run_of: Callable[..., Run]) -> None:
    cells = [
        Cell(
            name=f"baseline-q{rate:g}-r0",
            configuration="baseline",
            launch="baseline-l0",
            workload=Workload(
                concurrency=None, n_prompts=80, request_rate=rate, arrival="gamma"
            ),
            requests=tuple(endless(arrivals(80, rate, 1), 0.1)),
        )
        for rate in (5.0, 10.0)
    ]
    found = analyze(run_of(*cells))
    assert {g.request_rate for g in found.groups} == {5.0, 10.0}
    assert all(len(g.cells) == 1 for g in found.groups)
    (alone,) = [f for f in found.findings if f.code == "no-repeats"]
    assert "at 5, 10 requests/s" in alone.message


def test_requests_of_a_closed_loop_have_no_schedule(
    served: Callable[..., tuple[Request, ...]],
) -> None:
    rows = columns(served(16, 4))
    assert rows.due is None
    assert rows.due_at.tolist() == rows.sent.tolist()
    assert all(b >= a for a, b in pairwise(rows.sent.tolist()))
