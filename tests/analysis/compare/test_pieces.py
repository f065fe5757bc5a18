"""Dunnett, the spread of launches, sessions and anchors, answers, the decision."""

from collections.abc import Callable

import msgspec
import numpy as np
import pytest
from scipy import stats
from tests.analysis.compare.made import arm, run_of, whole

from stepscope.analysis.compare.answers import first_difference
from stepscope.analysis.compare.decide import decide, what_to_run
from stepscope.analysis.compare.many import p_value, quantile
from stepscope.analysis.compare.sessions import session_key, what_runs
from stepscope.analysis.compare.spread import spread
from stepscope.analysis.compare.table import Measured, deciding
from stepscope.analysis.records import CellResult
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
