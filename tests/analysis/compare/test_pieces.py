"""Dunnett, the spread of launches, sessions and anchors, answers, the decision."""

from collections.abc import Callable

import msgspec
import numpy as np
import pytest
from scipy import stats
from tests.analysis.compare.made import arm, run_of, whole

from stepscope.analysis.across.power import runs_needed
from stepscope.analysis.cell.modes import SAYS, Order
from stepscope.analysis.compare.advice import what_to_run
from stepscope.analysis.compare.answers import first_difference
from stepscope.analysis.compare.compare import Compared, compare
from stepscope.analysis.compare.decide import decide
from stepscope.analysis.compare.many import p_value, quantile
from stepscope.analysis.compare.measured import Measured, doubtful, replaceable
from stepscope.analysis.compare.records import Comparison
from stepscope.analysis.compare.sessions import session_key, what_runs
from stepscope.analysis.compare.spread import spread
from stepscope.analysis.compare.table import deciding
from stepscope.analysis.records import CellResult
from stepscope.findings import Finding
from stepscope.run.run import Answer, Launch, Machine, Run, Timeline

Make = Callable[..., CellResult]
RATE = "output_tokens_per_s"
HOST = Machine(host="h", gpu_uuids=("GPU-1",), driver="580", container="c1")


@pytest.mark.parametrize(
    ("k", "df", "limit"),
    # Two-sided 5 % limits for equal groups as they are tabled since Dunnett (1964).
    [(2, 5, 3.03), (3, 10, 2.76), (4, 20, 2.65), (2, 1e6, 2.21)],
)
def test_dunnetts_limits_are_those_of_the_tables(
    k: int, df: float, limit: float
) -> None:
    assert quantile(0.95, df, (0.5,) * k) == pytest.approx(limit, abs=0.005)


def test_dunnetts_p_is_scipys() -> None:
    rng = np.random.default_rng(1)
    a, b, c = (rng.normal(m, 1, 4) for m in (0, 1, 1.3))
    want = stats.dunnett(b, c, control=a, rng=np.random.default_rng(2))
    for t, p in zip(want.statistic, want.pvalue, strict=True):
        assert p_value(float(t), 9, (0.5, 0.5)) == pytest.approx(float(p), abs=1e-3)


def test_one_configuration_is_students_t() -> None:
    assert quantile(0.95, 4, (0.5,)) == pytest.approx(2.776, abs=1e-3)
    assert p_value(2.776, 4, ()) == pytest.approx(0.05, abs=1e-3)


def test_launches_that_move_all_rows_alike_count_once() -> None:
    """Six rows of four launches are no 24 observations when a launch moves them all."""
    rng = np.random.default_rng(3)

    def units(own: float, inner: float) -> dict[str, dict[object, float]]:
        return {
            str(i): {row: shift + float(rng.normal(0, inner)) for row in range(6)}
            for i, shift in enumerate(rng.normal(0, own, 4))
        }

    together = spread([units(0.03, 0.001), units(0.03, 0.001)], nested=True)
    apart = spread([units(0.0, 0.01), units(0.0, 0.01)], nested=True)
    assert together is not None
    assert apart is not None
    assert together.df == pytest.approx(6, abs=0.5)
    assert apart.df > 20
    assert together.unit_ms is not None
    assert together.unit_ms > 50 * together.inner_ms


def test_nothing_that_repeats_has_no_spread() -> None:
    assert spread([{"l0": {1: 0.0}}, {"l0": {1: 0.1}}], nested=False) is None


def test_rows_that_disagree_are_no_one_number(result_of: Make) -> None:
    rng = np.random.default_rng(5)
    cells = arm(result_of, "a", 0, 4, rng)
    cells += arm(result_of, "b", 0.08, 4, rng, rows=(8, 16, 32))
    cells += arm(result_of, "b", -0.08, 4, rng, rows=(64, 128, 256))
    found = whole(cells)
    (mean,) = found.pooled
    assert mean.rows_agree is False
    assert mean.verdict == "undetermined"
    assert {c.verdict for c in found.comparisons} == {"faster", "slower"}
    assert decide(found, RATE).exit_code == 1


def test_a_small_loss_that_no_row_shows_is_shown_by_their_mean(result_of: Make) -> None:
    rng = np.random.default_rng(8)
    cells = arm(result_of, "a", 0, 4, rng, n_launches=4)
    cells += arm(result_of, "b", -0.018, 4, rng, n_launches=4)
    found = whole(cells)
    (mean,) = found.pooled
    assert mean.rows_agree
    assert mean.verdict == "slower"
    assert any(c.verdict == "undetermined" for c in found.comparisons)
    assert decide(found, RATE).exit_code == 1


def test_a_margin_forgives_what_is_shown_to_lie_inside_it(result_of: Make) -> None:
    rng = np.random.default_rng(9)
    cells = arm(result_of, "a", 0, 5, rng, cv=0.003)
    cells += arm(result_of, "b", -0.03, 5, rng, cv=0.003)
    found = whole(cells)
    assert decide(found, RATE).exit_code == 1
    assert decide(found, RATE, 0.02).exit_code == 1
    assert decide(found, RATE, 0.05).exit_code == 0
    # Neither shown to be within 3 % nor beyond.
    assert decide(found, RATE, 0.03).exit_code == 5
    assert what_to_run(found, RATE, 0.03).endswith("on which side of 3 % it lies")


def test_a_tolerated_loss_is_called_a_loss(result_of: Make) -> None:
    rng = np.random.default_rng(9)
    cells = arm(result_of, "a", 0, 5, rng, cv=0.003)
    cells += arm(result_of, "b", -0.03, 5, rng, cv=0.003)
    decision = decide(whole(cells), RATE, 0.05)
    assert (decision.verdict, decision.exit_code) == ("slower", 0)
    assert (
        decision.why == f"b is worse, but not worse than a by more than 5 % in {RATE}"
    )


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize(
    ("effect", "margin", "code"),
    [(0.0, None, 0), (0.0, 0.02, 0), (0.0, 0.0, 5),
     (-0.05, None, 1), (-0.05, 0.02, 1), (-0.05, 0.05, 5), (-0.05, 0.1, 0),
     (0.05, None, 0), (0.05, 0.0, 0), (0.05, 0.02, 0),
     (-0.013, 0.05, 0)],
)  # fmt: skip
def test_every_exit_code_in_both_directions(
    result_of: Make, effect: float, margin: float | None, code: int, sign: int
) -> None:
    """Throughput, where more is better, and TTFT, where less is."""
    rng = np.random.default_rng(27)
    cells = arm(result_of, "a", 0, 3, rng, rows=(8, 64), cv=0.002, n_launches=1)
    cells += arm(result_of, "b", effect, 3, rng, rows=(8, 64), cv=0.002, n_launches=1)
    metric = RATE
    if sign < 0:
        metric = "ttft_ms"
        cells = [
            msgspec.structs.replace(
                c,
                output_tokens_per_s=None,
                ttft_ms=msgspec.structs.replace(
                    c.ttft_ms, mean=1e5 / (c.output_tokens_per_s or 1)
                ),
            )
            for c in cells
        ]
    found = whole(cells)
    assert decide(found, metric, margin).exit_code == code


def test_better_is_not_worse(result_of: Make) -> None:
    rng = np.random.default_rng(9)
    cells = arm(result_of, "a", 0, 4, rng) + arm(result_of, "b", 0.1, 4, rng)
    found = whole(cells)
    assert decide(found, RATE).verdict == "faster"
    assert decide(found, RATE, 0.02).exit_code == 0


def test_a_verdict_from_one_start_says_so_in_the_same_breath(result_of: Make) -> None:
    rng = np.random.default_rng(9)
    cells = arm(result_of, "a", 0, 4, rng, n_launches=1)
    cells += arm(result_of, "b", 0.1, 4, rng, n_launches=1)
    assert "on a single start" in decide(whole(cells), RATE).why


def test_of_several_configurations_the_worst_decides(result_of: Make) -> None:
    rng = np.random.default_rng(10)
    cells = arm(result_of, "a", 0, 4, rng) + arm(result_of, "b", 0.1, 4, rng)
    cells += arm(result_of, "c", -0.1, 4, rng)
    decision = decide(whole(cells), RATE)
    assert (decision.verdict, decision.exit_code) == ("slower", 1)
    assert decision.why.startswith("c is worse than a")


def test_several_configurations_widen_every_interval(result_of: Make) -> None:
    def width(names: str) -> float:
        rng = np.random.default_rng(11)
        cells = [c for name in names for c in arm(result_of, name, 0, 4, rng)]
        ci = whole(cells).comparisons[0].ci95_pct
        assert ci is not None
        return ci[1] - ci[0]

    # More arms also know the spread better; Dunnett's limit outweighs that.
    assert width("abcde") > 1.1 * width("ab")


def test_the_same_configuration_in_both_sessions_is_an_anchor(result_of: Make) -> None:
    """The session is 20 % slower; b is 5 % faster than a beside an anchor in each."""
    rng = np.random.default_rng(12)
    cells = arm(result_of, "a", 0, 4, rng) + arm(result_of, "x", 0.03, 4, rng)
    cells += arm(result_of, "x", 0.03 - 0.2, 4, rng, session="s1")
    cells += arm(result_of, "b", 0.05 - 0.2, 4, rng, session="s1")
    found = whole(cells)
    rows = [c for c in found.comparisons if c.b == "b"]
    assert {c.anchor for c in rows} == {"x"}
    assert np.mean([c.delta_pct or 0.0 for c in rows]) == pytest.approx(5.1, abs=1)
    assert all(c.session == "s0 / s1" for c in rows)
    direct = [c for c in found.comparisons if c.b == "x"]
    assert all(c.anchor is None for c in direct)

    # Four means instead of two: twice the variance.
    weights = {f.b: f.rows[0].weight for f in found.families}
    assert weights["x"] / weights["b"] == pytest.approx(2)


def test_a_baseline_in_both_sessions_is_compared_where_b_ran(result_of: Make) -> None:
    rng = np.random.default_rng(13)
    cells = arm(result_of, "a", 0, 4, rng)
    cells += arm(result_of, "a", -0.3, 4, rng, session="s1")
    cells += arm(result_of, "b", -0.3, 4, rng, session="s1")
    found = whole(cells)
    assert {c.session for c in found.comparisons} == {"s1"}
    assert all(abs(c.delta_pct or 9) < 3 for c in found.comparisons)


def test_what_nothing_connects_is_refused_with_what_to_run(result_of: Make) -> None:
    rng = np.random.default_rng(14)
    cells = arm(result_of, "a", 0, 3, rng) + arm(
        result_of, "b", 0, 3, rng, session="s1"
    )
    found = whole(cells)
    assert found.comparisons == ()
    assert len(found.refused) == 6
    assert decide(found, RATE).exit_code == 5
    assert "as an anchor" in what_to_run(found, RATE)


def test_an_arm_that_lost_more_cells_is_said(result_of: Make) -> None:
    rng = np.random.default_rng(15)
    cells = arm(result_of, "a", 0, 4, rng) + arm(result_of, "b", 0, 4, rng)
    cells[-1] = msgspec.structs.replace(
        cells[-1], valid=False, void_reasons=("client-bound",)
    )
    found = whole(cells, frozenset({cells[-2].name}))
    (note,) = [f for f in found.findings if f.code == "left-out"]
    assert note.severity == "warning"
    assert "0 of a, 2 of b" in note.message
    assert {x.cell for x in found.left_out} == {cells[-1].name, cells[-2].name}


def times(order: str) -> dict[str, int]:
    """Launches in an order, one a minute."""
    return {
        f"{name}-s0-l{order[:i].count(name)}": 60 * i for i, name in enumerate(order)
    }


def test_an_order_that_lets_a_drift_through_is_said(result_of: Make) -> None:
    rng = np.random.default_rng(16)
    cells = arm(result_of, "a", 0, 2, rng) + arm(result_of, "b", 0, 2, rng)
    codes = {
        order: {f.code for f in whole(cells, starts=times(order)).findings}
        for order in ("abba", "abab", "aabb")
    }
    assert "order-unbalanced" not in codes["abba"]
    assert "order-unbalanced" in codes["abab"]
    assert "order-unbalanced" in codes["aabb"]
    assert "baseline-drift" in codes["abba"]


def test_a_baseline_that_moved_is_a_warning(result_of: Make) -> None:
    rng = np.random.default_rng(17)
    cells = arm(result_of, "a", 0, 4, rng, cv=0.002, n_launches=4)
    cells += arm(result_of, "b", 0, 4, rng, cv=0.002, n_launches=4)
    moved = [
        msgspec.structs.replace(
            c, output_tokens_per_s=0.9 * (c.output_tokens_per_s or 0)
        )
        if c.launch == "a-s0-l3"
        else c
        for c in cells
    ]
    starts = times("abbaabba")
    still, (note,) = (
        [f for f in whole(of, starts=starts).findings if f.code == "baseline-drift"]
        for of in (cells, moved)
    )
    assert [f.severity for f in still] == ["info"]
    assert "-10" in note.message
    assert note.severity == "warning"


def test_more_launches_are_priced_from_those_at_hand(result_of: Make) -> None:
    rng = np.random.default_rng(18)
    cells = arm(result_of, "a", 0, 2, rng, cv=0.04)
    cells += arm(result_of, "b", 0.02, 2, rng, cv=0.04)
    found = whole(cells, starts=times("abba"))
    open_ = [c for c in found.comparisons if c.runs_needed is not None]
    assert open_
    for c in open_:
        # Launches of one minute, two of each at hand.
        assert c.minutes_needed == pytest.approx(2 * ((c.runs_needed or 0) - 2))
    assert "more launches of each, about" in what_to_run(found, RATE)


def one_run(machine: Machine, **over: object) -> Run:
    made = Run(id="r", engine="vllm", timeline=Timeline(kind="unix"), machine=machine)
    return msgspec.structs.replace(made, **over)


def test_one_machine_is_one_session_whatever_runs_on_it() -> None:
    a = session_key(one_run(HOST), "s0", "A")
    b = session_key(one_run(HOST, engine_version="2"), "s0", "B")
    assert a.name == b.name
    assert a.known


@pytest.mark.parametrize(
    "other",
    [{"gpu_uuids": ("GPU-2",)}, {"container": "c2"}, {"driver": "581"}, {"host": "g"},
     {"n_cpus": 4}],
)  # fmt: skip
def test_whatever_changes_of_a_machine_makes_another_session(
    other: dict[str, object],
) -> None:
    changed = msgspec.structs.replace(HOST, **other)
    one, two = (session_key(one_run(m), "s0", "A") for m in (HOST, changed))
    assert one.name != two.name


def test_an_unknown_machine_is_a_session_of_its_own() -> None:
    one, two = (session_key(one_run(Machine()), "s0", x) for x in "AB")
    assert one.name != two.name
    assert not one.known
    named = session_key(one_run(Machine()), "booking-7", "A")
    assert named == session_key(one_run(Machine()), "booking-7", "B")


def test_host_port_and_folder_of_a_command_are_not_what_runs() -> None:
    def of(*words: str) -> str | None:
        launch = Launch(name="l", configuration="c", command=words)
        return what_runs(one_run(HOST), launch)

    one = of("/x/vllm", "serve", "m", "--host", "h", "--port", "1", "--tp", "2")
    assert one == of("/y/vllm", "serve", "m", "--port=9", "--tp", "2")
    assert one != of("/x/vllm", "serve", "m", "--tp", "4")
    assert of() is None


def said(*pieces: str) -> Answer:
    return Answer(question=0, pieces=pieces)


def test_answers_part_at_the_first_token_that_differs() -> None:
    assert first_difference(said("a", " b", " c"), said("a", " b", " c")) is None
    assert first_difference(said("a", " b", " c"), said("a", " b", " d")) == 2
    # Where pieces are merged the text decides.
    assert first_difference(said("a", " b", " c"), said("a b", " d")) == 2
    assert first_difference(said("a", " b"), said("a")) == 1


def with_answers(cells: list[CellResult], answers: dict[str, list[str]]) -> list[str]:
    run = run_of(cells)
    launches = tuple(
        msgspec.structs.replace(
            launch,
            answers=tuple(
                Answer(question=i, pieces=tuple(text))
                for i, text in enumerate(answers[launch.name])
            ),
        )
        for launch in run.launches
    )
    run = msgspec.structs.replace(run, launches=launches)
    from stepscope.analysis.compare.compare import within

    found = within(Measured(run, cells, frozenset(), "made"), ["a", "b"])
    assert found is not None
    return [f"{f.code} {f.severity}" for f in found.findings if "outputs" in f.code]


def test_answers_that_differ_early_are_a_warning_unless_launches_do_so_anyway(
    result_of: Make,
) -> None:
    rng = np.random.default_rng(19)
    cells = arm(result_of, "a", 0, 2, rng) + arm(result_of, "b", 0, 2, rng)
    long = "x" * 40

    def answers(a0: str, a1: str, b0: str, b1: str) -> dict[str, list[str]]:
        names = ("a-s0-l0", "a-s0-l1", "b-s0-l0", "b-s0-l1")
        return {n: [t, long] for n, t in zip(names, (a0, a1, b0, b1), strict=True)}

    early, late = "xy" + long[2:], long[:30] + "y" * 10
    assert with_answers(cells, answers(long, long, long, long)) == []
    assert with_answers(cells, answers(long, long, early, early)) == [
        "outputs-differ warning"
    ]
    assert with_answers(cells, answers(long, long, late, late)) == [
        "outputs-differ info"
    ]
    # The baseline's own launches part as early.
    assert with_answers(cells, answers(long, early, early, long)) == []


def test_the_throughput_of_a_schedule_is_not_compared(result_of: Make) -> None:
    rng = np.random.default_rng(20)
    cells = arm(result_of, "a", 0, 4, rng, rows=(8,))
    cells += arm(result_of, "b", 0, 4, rng, rows=(8,))
    cells = [
        msgspec.structs.replace(
            c,
            concurrency=None,
            request_rate=2.0,
            tpot_ms=msgspec.structs.replace(
                c.tpot_ms, mean=1 / (c.output_tokens_per_s or 1)
            ),
        )
        for c in cells
    ]
    found = whole(cells)
    assert {c.metric for c in found.comparisons} == {"tpot_ms"}
    assert deciding(found.table) == "tpot_ms"
    assert "open-loop-rate" in {f.code for f in found.findings}


def test_requests_sent_all_at_once_are_no_schedule(result_of: Make) -> None:
    """`vllm bench serve` without a cap and a rate: its throughput is the server's."""
    rng = np.random.default_rng(21)
    cells = arm(result_of, "a", 0, 4, rng, rows=(8,))
    cells += arm(result_of, "b", 0.1, 4, rng, rows=(8,))
    cells = [msgspec.structs.replace(c, concurrency=None) for c in cells]
    found = whole(cells)
    assert {c.metric for c in found.comparisons} == {RATE}
    assert decide(found, deciding(found.table)).verdict == "faster"
    assert "open-loop-rate" not in {f.code for f in found.findings}


def one_start(
    make: Make, effect: float, n: int = 3, cv: float = 0.001
) -> tuple[Compared, Comparison]:
    """One start of each, one row, and the row of it."""
    rng = np.random.default_rng(22)
    how = {"rows": (64,), "n_launches": 1, "cv": cv}
    cells = arm(make, "a", 0, n, rng, **how)  # type: ignore[arg-type]
    cells += arm(make, "b", effect, n, rng, **how)  # type: ignore[arg-type]
    found = whole(cells)
    return found, found.comparisons[0]


@pytest.mark.parametrize(
    ("effect", "verdict", "code"),
    [(-0.05, "slower", 1), (0.05, "faster", 0), (0.004, "same", 0),
     (-0.012, "undetermined", 5), (-0.015, "undetermined", 5)],
)  # fmt: skip
def test_single_starts_decide_only_beyond_what_starts_may_differ_by(
    result_of: Make, effect: float, verdict: str, code: int
) -> None:
    found, one = one_start(result_of, effect)
    # The runs alone would tell every one of these effects from nothing.
    assert one.ci95_pct is not None
    assert not one.ci95_pct[0] < 0 < one.ci95_pct[1]
    assert one.verdict == verdict
    assert decide(found, RATE).exit_code == code
    assert "one-launch" in {f.code for f in found.findings}


def test_more_runs_on_one_start_are_not_what_settles_it(result_of: Make) -> None:
    found, one = one_start(result_of, -0.012)
    assert one.reason == "one start of each: starts may differ by as much"
    assert one.delta_pct is not None
    starts = runs_needed(float(np.log1p(-one.delta_pct / 100)), 0.005)
    # Their own spread asks for no fewer than starts of runs without any.
    assert starts is not None
    assert one.runs_needed is not None
    assert 3 + starts - 1 <= one.runs_needed <= 3 + starts + 2
    assert "each on a start of its own (n_launches = " in what_to_run(found, RATE)


def test_the_interval_is_students_whatever_starts_may_add(result_of: Make) -> None:
    found, one = one_start(result_of, -0.05, n=5, cv=0.01)
    logs = {
        name: np.log([r.values[RATE] for r in found.table.readings if r.arm == name])
        for name in "ab"
    }
    want = stats.ttest_ind(logs["b"], logs["a"])
    low, high = (100 * np.expm1(x) for x in want.confidence_interval(0.95))
    assert one.ci95_pct == pytest.approx((low, high))
    assert one.p == pytest.approx(want.pvalue)


def test_launches_that_repeat_need_no_assumption(result_of: Make) -> None:
    rng = np.random.default_rng(23)
    how = {"rows": (64,), "n_launches": 3, "cv": 0.001}
    cells = arm(result_of, "a", 0, 3, rng, **how)  # type: ignore[arg-type]
    cells += arm(result_of, "b", -0.012, 3, rng, **how)  # type: ignore[arg-type]
    (one,) = whole(cells).comparisons
    assert (one.unit, one.verdict) == ("launch", "slower")


def lengths(
    cells: list[CellResult], asked: int | None, counted: int
) -> list[CellResult]:
    """The cells with so many tokens an answer, asked for and counted."""
    return [
        msgspec.structs.replace(
            c, asked_output_tokens=asked, output_tokens=counted * c.n_requests
        )
        for c in cells
    ]


@pytest.mark.parametrize(
    ("a", "b", "alike"),
    [((None, 100), (None, 102), True), ((None, 100), (None, 400), False),
     ((100, 100), (None, 100), True), ((100, 100), (None, 128), False),
     ((100, 100), (128, 100), False)],
)  # fmt: skip
def test_where_nobody_says_what_was_asked_the_counts_must_agree(
    result_of: Make,
    a: tuple[int | None, int],
    b: tuple[int | None, int],
    *,
    alike: bool,
) -> None:
    rng = np.random.default_rng(24)
    cells = lengths(arm(result_of, "a", 0, 3, rng, rows=(8,)), *a)
    cells += lengths(arm(result_of, "b", 0, 3, rng, rows=(8,)), *b)
    found = whole(cells)
    assert len(found.comparisons) == alike
    codes = {f.code for f in found.findings}
    assert ("no-common-row" in codes) is not alike
    if alike:
        assert found.comparisons[0].output_tokens == a[0]


def test_a_copy_of_a_result_is_no_repeat(result_of: Make) -> None:
    rng = np.random.default_rng(25)
    cells = arm(result_of, "a", 0, 1, rng, rows=(8,), n_launches=1)
    cells += arm(result_of, "b", 0.3, 1, rng, rows=(8,), n_launches=1)
    copies = [
        msgspec.structs.replace(c, name=f"{c.name}-{i}")
        for c in cells
        for i in range(3)
    ]
    found = whole(copies)
    (one,) = found.comparisons
    assert (one.n_a, one.n_b, one.ci95_pct) == (1, 1, None)
    assert one.verdict == "undetermined"
    note = next(f for f in found.findings if f.code == "copied-results")
    assert "a-s0-c8-r0-1 of a is a copy of a-s0-c8-r0-0" in note.message
    assert len(found.left_out) == 4


def test_a_run_against_its_own_copy_is_said(result_of: Make) -> None:
    rng = np.random.default_rng(26)
    cells = arm(result_of, "a", 0, 3, rng, rows=(8,))
    twin = [
        msgspec.structs.replace(
            c, name=f"b{c.name}", configuration="b", launch=f"b{c.launch}"
        )
        for c in cells
    ]
    note = next(f for f in whole(cells + twin).findings if f.code == "copied-results")
    assert "of b is a copy of" in note.message


def test_round_figures_may_agree_by_chance(result_of: Make) -> None:
    cells = [
        result_of(
            name=f"{name}-r{i}",
            configuration=name,
            launch=f"{name}-l0",
            output_tokens_per_s=rate,
        )
        for name, rate in (("a", 1000.0), ("b", 950.0))
        for i in range(3)
    ]
    found = whole(cells)
    (one,) = found.comparisons
    assert (one.n_a, one.n_b, one.verdict) == (3, 3, "slower")
    assert "copied-results" not in {f.code for f in found.findings}


def test_a_row_that_one_side_lost_is_no_pass(result_of: Make) -> None:
    """All cells of b at 256 failed; elsewhere it is as fast as a."""
    rng = np.random.default_rng(28)
    cells = arm(result_of, "a", 0, 4, rng, cv=0.003)
    cells += arm(result_of, "b", 0, 4, rng, cv=0.003)
    assert decide(whole(cells), RATE).exit_code == 0
    failed = [
        msgspec.structs.replace(c, status="failed", valid=False, void_reasons=())
        if (c.configuration, c.concurrency) == ("b", 256)
        else c
        for c in cells
    ]
    found = whole(failed)
    for margin in (None, 0.02):
        assert decide(found, RATE, margin).exit_code == 5
    assert "rows-lost" in {f.code for f in found.findings}
    assert what_to_run(found, RATE).startswith("Find why no cell of b stands at 256")
    # What it loses by, it still loses.
    slow = [
        msgspec.structs.replace(
            c, output_tokens_per_s=0.9 * (c.output_tokens_per_s or 0)
        )
        if c.configuration == "b"
        else c
        for c in failed
    ]
    assert decide(whole(slow), RATE).exit_code == 1


def test_a_row_that_was_not_asked_of_one_side_is_said(result_of: Make) -> None:
    rng = np.random.default_rng(29)
    cells = arm(result_of, "a", 0, 4, rng, cv=0.003)
    cells += arm(result_of, "b", 0, 4, rng, cv=0.003, rows=(8, 16))
    found = whole(cells)
    assert decide(found, RATE).exit_code == 0
    (note,) = [f for f in found.findings if f.code == "rows-alone"]
    assert note.message.startswith("at 32, 64, 128, 256 only a has a figure")


def test_what_is_doubtful_of_a_figure_is_said_of_its_difference(
    result_of: Make,
) -> None:
    rng = np.random.default_rng(30)
    cells = arm(result_of, "a", 0, 4, rng) + arm(result_of, "b", 0.1, 4, rng)
    cells += arm(result_of, "c", 0.1, 4, rng)
    found = [
        Finding(
            code=code, severity="warning", message=f"told of {launch}", launch=launch
        )
        for code, launch in (
            ("warmup-not-converged", "b-s0-l0"),
            ("warmup-not-converged", "b-s0-l1"),
            ("warmup-not-converged", "c-s0-l1"),
            ("no-repeats", "b-s0-l1"),
        )
    ]
    measured = Measured(run_of(cells), cells, frozenset(), "made", doubtful(found))
    notes = [
        f.message
        for f in compare((measured,), "a", ["b"]).findings
        if "told of" in f.message
    ]
    assert notes == ["b: told of b-s0-l0 (and 1 more of these)"]


def test_a_cell_that_one_event_touched_stands_only_alone(result_of: Make) -> None:
    rng = np.random.default_rng(31)
    cells = arm(result_of, "a", 0, 3, rng, rows=(8, 16))
    cells += arm(result_of, "b", 0.1, 3, rng, rows=(8, 16))
    touched = [c.name for c in cells if c.configuration == "b" and c.concurrency == 16]
    late = frozenset({"b-s0-c8-r0", *touched})
    run = Measured(run_of(cells), cells, frozenset(), "made", replaceable=late)
    found = compare((run,), "a", ["b"])
    assert [x.cell for x in found.left_out] == ["b-s0-c8-r0"]
    # All three at 16 were touched: there is nothing better.
    assert {c.verdict for c in found.comparisons} == {"faster"}


def test_only_one_event_makes_a_cell_replaceable() -> None:
    def told(order: Order) -> Finding:
        text = f"TTFT in two groups, {SAYS[order][0]}"
        return Finding(
            code="bimodal-ttft", severity="warning", message=text, cell=order
        )

    orders: tuple[Order, ...] = ("one event", "several events", "all along")
    assert replaceable(told(order) for order in orders) == {"one event"}


def test_what_to_run_names_the_side_that_has_nothing(result_of: Make) -> None:
    rng = np.random.default_rng(32)
    a, b = (arm(result_of, name, 0, 3, rng, rows=(8,)) for name in "ab")
    c = arm(result_of, "c", 0.1, 3, rng, rows=(64,))
    void = [
        msgspec.structs.replace(x, valid=False, void_reasons=("client-bound",))
        for x in a
    ]
    assert what_to_run(whole(void + b), RATE).startswith("Measure a again: no cell")
    unknown = [msgspec.structs.replace(x, output_tokens_per_s=None) for x in a]
    timed = [
        msgspec.structs.replace(x, tpot_ms=msgspec.structs.replace(x.tpot_ms, mean=9.0))
        for x in unknown + b
    ]
    assert what_to_run(whole(timed), RATE).startswith(f"Take {RATE} of both")
    found = whole(a + c)
    assert decide(found, RATE).exit_code == 5
    assert what_to_run(found, RATE).startswith("Measure both at the same workload")


def test_a_session_may_be_named_like_a_number() -> None:
    """`session = "s1"` in the import.toml of both; merged imports count from s0."""

    def of(*sessions: str) -> Run:
        launches = tuple(
            Launch(name=f"l{i}", configuration="c", session=x)
            for i, x in enumerate(sessions)
        )
        return one_run(Machine(), launches=launches)

    one, two = (session_key(of("s1"), "s1", x) for x in "AB")
    assert one == two
    assert one.known
    counted = session_key(of("s0", "s1"), "s1", "A")
    assert not counted.known
    assert not session_key(of("s0"), "s0", "A").known
