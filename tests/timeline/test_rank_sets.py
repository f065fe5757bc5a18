"""Traces that are not one a rank of one run: what is said, and what is not."""

from dataclasses import replace
from pathlib import Path

import numpy as np
from tests.timeline.pair import Plan, traces
from tests.timeline.planting import DECODE, TRACES, real

from stepscope.timeline.analyze import analyze_traces
from stepscope.timeline.load import load_trace
from stepscope.timeline.perfetto import perfetto_of
from stepscope.timeline.records import TraceResult

LATE = Plan(experts=lambda r, _k: 1 + 0.3 * r)


def codes(found: TraceResult) -> set[str]:
    return {finding.code for finding in found.findings}


def nobody_waits(found: TraceResult) -> bool:
    budgets = [rank.budget_ms for rank in found.ranks if rank.budget_ms is not None]
    return (
        found.straggler_rank is None
        and not found.collectives
        and all(not b.communication or b.communication_wait is None for b in budgets)
    )


def test_a_trace_that_is_given_twice_has_no_waiting() -> None:
    one = traces(LATE)[0]
    found = analyze_traces([one, replace(one, path="copy.json")])
    assert nobody_waits(found)
    assert {"unequal-ranks", "rank-twice"} <= codes(found)
    assert [rank.rank for rank in found.ranks] == [0, 1]


def test_two_engines_that_number_their_ranks_alike_still_match() -> None:
    found = analyze_traces([replace(t, rank=0) for t in traces(LATE)])
    assert "rank-twice" in codes(found)
    assert (found.straggler_rank, len(found.collectives)) == (1, 3)


def test_ranks_of_two_runs_have_no_waiting() -> None:
    run, other = traces(LATE), traces(Plan(seed=9, host_us=lambda _r, _k: 700.0))
    found = analyze_traces([run[0], other[1]])
    assert nobody_waits(found)
    assert "unequal-ranks" in found.quality.defects


def test_ranks_of_two_runs_days_apart_have_no_waiting() -> None:
    run, later = traces(LATE), traces(Plan(seed=9, offset_us=(0, 9e10)))
    found = analyze_traces([run[0], later[1]])
    assert nobody_waits(found)
    assert "unequal-ranks" in found.quality.defects


def test_a_rank_without_communication_matches_nothing() -> None:
    found = analyze_traces([real(DECODE), traces(LATE)[1]])
    assert nobody_waits(found)


def test_of_two_of_eight_ranks_none_is_the_straggler() -> None:
    found = analyze_traces([replace(t, world_size=8) for t in traces(LATE)])
    assert found.straggler_rank is None
    reason = found.straggler_reason or ""
    assert reason.startswith("2 of 8 ranks are here")
    assert "of these rank 1 is last, by work" in reason
    assert "ranks-missing" in codes(found)


def test_devices_of_one_file_whose_clocks_differ_have_no_causes() -> None:
    first, second = load_trace(TRACES / "nsys_2xh100_train" / "before.sqlite")
    ops = replace(
        second.ops,
        start_ns=second.ops.start_ns + 3_000_000,
        end_ns=second.ops.end_ns + 3_000_000,
    )
    found = analyze_traces([first, replace(second, ops=ops)])
    assert {"clock-offset", "host-clock-skew"} <= set(found.quality.defects)
    for rank in found.ranks:
        assert rank.idle_ms is not None
        assert rank.idle_ms.host_not_launching_yet is None
    plain = analyze_traces([first, second])
    assert "host-clock-skew" not in plain.quality.defects


def test_where_records_were_lost_no_rank_is_judged() -> None:
    first, second = traces(LATE)
    gone = np.flatnonzero(second.calls.is_graph)[7]
    mine = np.flatnonzero(second.ops.correlation == second.calls.correlation[gone])
    keep = np.ones(len(second.ops), dtype=np.bool_)
    keep[mine[50:70]] = False
    found = analyze_traces([first, replace(second, ops=second.ops.take(keep))])
    assert not found.quality.usable
    assert found.straggler_rank is None
    assert "not judged" in (found.straggler_reason or "")


def test_without_steps_waiting_is_told_in_all() -> None:
    none = np.zeros(0, dtype=np.int64)
    bare = [
        replace(t, calls=t.calls.take(none), spans=t.spans.take(none))
        for t in traces(LATE)
    ]
    found = analyze_traces(bare)
    assert all(rank.step_source == "none" for rank in found.ranks)
    assert "ms in all for it" in (found.straggler_reason or "")


def test_an_export_of_ranks_shows_the_same_steps_on_one_clock(tmp_path: Path) -> None:
    plan = Plan(n_steps=12, launch_us=lambda r, _k: 500 + 700 * r, first=(0, 3),
                offset_us=(5_000, 0))  # fmt: skip
    path = tmp_path / "t.json.gz"
    path.write_bytes(perfetto_of(traces(plan), 3))
    back = load_trace(path)
    first, second = [[*t.marked_steps.start_ns] for t in back]
    assert len(first) == len(second) == 3
    assert all(abs(a - b) < 1_000_000 for a, b in zip(first, second, strict=True))
    found = analyze_traces(back)
    assert found.straggler_rank == 1
    assert "clock-offset" not in found.quality.defects
    assert all(rank.closes_to_pct == 0 for rank in found.ranks)
