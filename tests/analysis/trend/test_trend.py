"""Runs in order, sessions that changed, and series that moved."""

import gzip
from collections.abc import Callable
from pathlib import Path

import msgspec
import numpy as np
import pytest

from stepscope.analysis.across.records import RepeatGroup
from stepscope.analysis.records import Analysis
from stepscope.analysis.trend.identity import Taken, identity, identity_changes
from stepscope.analysis.trend.trend import taken_of, trend
from stepscope.errors import RefusedError
from stepscope.run.run import Launch, Machine, Run

Make = Callable[..., Run]
DAY_NS = 86_400 * 1_000_000_000


def taken(make: Make, day: int, **over: object) -> Taken:
    fields: dict[str, object] = {
        "id": f"r{day:02}",
        "created_unix_ns": day * DAY_NS,
        "engine_version": "0.26.0",
        "machine": Machine(host="a", driver="570.1"),
        "launches": (
            Launch(
                name="baseline-l0",
                configuration="baseline",
                command=("vllm", "serve", "m", "--port", str(8000 + day)),
            ),
        ),
    }
    run = msgspec.structs.replace(make(), **{**fields, **over})
    return taken_of(run, f"runs/r{day:02}")


def analysis(tpot_ms: float, concurrency: int = 8) -> Analysis:
    group = RepeatGroup(
        configuration="baseline", session="s0", concurrency=concurrency,
        metric="tpot_ms", cells=("a", "b"), values=(tpot_ms, tpot_ms), mean=tpot_ms,
        ci95=None, cv_pct=None, n_prompts=16, input_tokens=8, output_tokens=16,
    )  # fmt: skip
    return Analysis(cells=(), groups=(group,))


def test_runs_are_ordered_by_their_wall_clock(run_of: Make) -> None:
    runs = [(taken(run_of, day), analysis(float(day))) for day in (3, 1, 2)]
    document = trend(runs)
    assert [r.id for r in document.runs] == ["r01", "r02", "r03"]
    (series,) = document.series
    assert [p.value for p in series.points] == [1.0, 2.0, 3.0]
    assert [p.n for p in series.points] == [2, 2, 2]


def test_below_twenty_runs_it_says_how_many_are_missing(run_of: Make) -> None:
    document = trend([(taken(run_of, day), analysis(5.0)) for day in range(1, 8)])
    assert [s.runs_missing for s in document.series] == [13]
    assert [s.changes for s in document.series] == [None]
    (finding,) = document.findings
    assert finding.code == "too-few-runs"
    assert "13 are missing" in finding.message


def test_a_new_engine_is_named_where_the_level_moved(run_of: Make) -> None:
    rng = np.random.default_rng(0)
    runs = []
    for day in range(1, 25):
        new = day >= 13
        tpot = (10.6 if new else 10.0) * float(np.exp(rng.normal(0, 0.01)))
        version = "0.27.0" if new else "0.26.0"
        runs.append((taken(run_of, day, engine_version=version), analysis(tpot)))
    document = trend(runs)
    (series,) = document.series
    assert series.changes is not None
    (change,) = series.changes
    assert change.run == "r13"
    assert change.fields == ("engine version",)
    assert change.ci95_pct[0] < 6.0 < change.ci95_pct[1]
    assert change.p <= 0.05
    assert document.findings == ()
    (moved,) = document.identity_changes
    assert (moved.fields[0].before, moved.fields[0].after) == ("0.26.0", "0.27.0")


def test_a_change_that_nothing_recorded_explains_names_nothing(run_of: Make) -> None:
    runs = [
        (taken(run_of, day), analysis(10.0 + 0.01 * (day % 3) + (day >= 11)))
        for day in range(1, 21)
    ]
    (series,) = trend(runs).series
    assert series.changes is not None
    assert [c.fields for c in series.changes] == [()]
    assert series.runs_missing == 0


def test_workload_points_are_series_of_their_own(run_of: Make) -> None:
    runs = [
        (taken(run_of, 1), analysis(5.0, 8)),
        (taken(run_of, 2), analysis(9.0, 16)),
    ]
    assert [s.concurrency for s in trend(runs).series] == [8, 16]


def test_ports_change_nothing_and_flags_do(run_of: Make) -> None:
    one, two = taken(run_of, 1), taken(run_of, 2)
    assert identity_changes([one, two]) == ()
    launch = msgspec.structs.replace(
        two.run.launches[0], command=("vllm", "serve", "m", "--enforce-eager")
    )
    eager = taken(run_of, 3, launches=(launch,))
    (change,) = identity_changes([one, two, eager])
    assert change.run == "r03"
    assert [f.field for f in change.fields] == ["command of baseline"]


def test_a_folder_that_a_profiler_writes_to_is_no_change() -> None:
    """Each run's profiled launch names a folder of its own; the measured ones agree."""
    data = Path(__file__).parents[2] / "data" / "ranks"
    runs = [
        msgspec.msgpack.decode(gzip.decompress(p.read_bytes()), type=Run)
        for p in sorted(data.glob("*.run.gz"))
    ]
    taken = [
        Taken(run=run, path=run.id, at_unix_ns=at) for at, run in enumerate(runs, 1)
    ]
    assert len(taken) == 2
    assert identity_changes(taken) == ()
    assert "--profiler-config" not in identity(runs[0])["command of baseline"]


def test_what_a_run_did_not_record_is_no_change(run_of: Make) -> None:
    bare = taken(run_of, 2, machine=Machine(host="a"))
    other = taken(run_of, 3, machine=Machine(host="a", driver="580.0"))
    assert "driver" not in identity(bare.run)
    (change,) = identity_changes([taken(run_of, 1), bare, other])
    assert change.run == "r03"
    assert [(f.before, f.after) for f in change.fields] == [("570.1", "580.0")]


def test_a_run_without_a_wall_clock_or_given_twice_is_refused(run_of: Make) -> None:
    with pytest.raises(RefusedError, match="when it was taken"):
        taken_of(run_of(), "runs/x")
    one = taken(run_of, 1)
    with pytest.raises(RefusedError, match="given before"):
        trend([(one, analysis(1.0)), (one, analysis(1.0))])


def test_runs_that_wander_are_called_drifting(run_of: Make) -> None:
    rng = np.random.default_rng(2)
    walk = 10 * np.exp(np.cumsum(rng.normal(0, 0.003, 40)))
    document = trend(
        [(taken(run_of, i + 1), analysis(float(v))) for i, v in enumerate(walk)]
    )
    assert "drifting" in [f.code for f in document.findings]


def grouped(*values: tuple[float | None, str, float]) -> Analysis:
    """TPOT groups of (request rate, session, value)."""
    (one,) = analysis(1.0).groups
    return Analysis(
        cells=(),
        groups=tuple(
            msgspec.structs.replace(
                one,
                concurrency=None if rate is not None else 8,
                request_rate=rate,
                session=session,
                values=(value, value),
                mean=value,
            )
            for rate, session, value in values
        ),
    )


def test_rates_of_an_open_loop_are_series_of_their_own(run_of: Make) -> None:
    runs = [
        (taken(run_of, day), grouped((2.0, "s0", 5.0), (8.0, "s0", 9.0)))
        for day in range(1, 8)
    ]
    series = trend(runs).series
    assert [(s.request_rate, len(s.points)) for s in series] == [(2.0, 7), (8.0, 7)]
    assert [s.mean for s in series] == pytest.approx([5.0, 9.0])


def test_a_run_of_two_sessions_is_one_value(run_of: Make) -> None:
    pairs = grouped((None, "s0", 4.0), (None, "s1", 9.0))
    runs = [(taken(run_of, day), pairs) for day in range(1, 12)]
    (series,) = trend(runs).series
    assert [p.value for p in series.points] == pytest.approx([6.0] * 11)
    assert {p.n for p in series.points} == {4}
    # Eleven runs are no twenty-two.
    assert (series.runs_missing, series.changes) == (9, None)


def test_a_clear_change_is_found_among_two_hundred_series(run_of: Make) -> None:
    rng = np.random.default_rng(4)
    (one,) = analysis(1.0).groups
    runs = []
    for day in range(1, 25):
        groups = []
        for row in range(1, 201):
            moved = 1.2 if row == 7 and day > 12 else 1.0
            value = 10.0 * moved * float(np.exp(rng.normal(0, 0.01)))
            groups.append(
                msgspec.structs.replace(
                    one, concurrency=row, values=(value,), mean=value
                )
            )
        runs.append((taken(run_of, day), Analysis(cells=(), groups=tuple(groups))))
    moved_at = {
        s.concurrency: [c.run for c in s.changes]
        for s in trend(runs).series
        if s.changes
    }
    assert moved_at == {7: ["r13"]}
