"""What a start costs, and when a slower start has paid off."""

import msgspec
import pytest

from stepscope.analysis.boot.records import StartupCost
from stepscope.analysis.compare.records import Comparison
from stepscope.analysis.startup import boot_results, break_evens, startup_costs
from stepscope.recipe.records import Cost
from stepscope.run.run import Launch, Run, Timeline
from stepscope.run.serverlog import BootState, Phase, ServerLog

_S = 1_000_000_000


def launch(
    name: str,
    began_s: int,
    took_s: int,
    *,
    ready: bool = True,
    log: ServerLog | None = None,
    configuration: str = "baseline",
    retry_of: str | None = None,
) -> Launch:
    return Launch(
        name=name,
        configuration=configuration,
        started_at_ns=began_s * _S,
        ready_at_ns=(began_s + took_s) * _S if ready else None,
        stopped_at_ns=(began_s + took_s + 5) * _S,
        ready=ready,
        log=log,
        retry_of=retry_of,
    )


def run_of(*launches: Launch, usd_per_hour: float | None = 36.0) -> Run:
    cost = None
    if usd_per_hour is not None:
        cost = Cost(usd_per_gpu_hour=usd_per_hour, n_gpus=1)
    return Run(
        id="r",
        engine="vllm",
        timeline=Timeline(kind="monotonic"),
        launches=launches,
        cost=cost,
    )


def phase(name: str, seconds: float, ends_at_s: float) -> Phase:
    return Phase(name=name, seconds=seconds, ends_at_s=ends_at_s)


def log(*phases: Phase) -> ServerLog:
    return ServerLog(
        engine="vllm",
        version="0.19.0",
        n_lines=9,
        phases=phases,
        boot=BootState(ready_line=9),
    )


def test_the_first_start_of_a_configuration_is_cold_and_the_later_ones_are_warm() -> (
    None
):
    run = run_of(
        launch("a-l0", 0, 100),
        launch("b-l0", 200, 90, configuration="b"),
        launch("a-l1", 400, 40),
        launch("a-l2", 500, 60),
    )
    boots = boot_results(run)
    assert [b.cold for b in boots] == [True, True, False, False]
    a, b = startup_costs(boots, run)
    assert (a.cold_s, a.warm_s, a.n_warm) == (100.0, 50.0, 2)
    assert (b.cold_s, b.warm_s, b.n_warm) == (90.0, None, 0)
    assert a.cold_usd == pytest.approx(1.0)
    assert a.warm_usd == pytest.approx(0.5)


def test_a_start_after_failed_ones_is_neither_cold_nor_warm() -> None:
    run = run_of(
        launch("a-l0", 0, 50, ready=False),
        launch("a-l0-try1", 100, 60, retry_of="a-l0"),
        launch("a-l1", 200, 30),
    )
    first, second, third = boot_results(run)
    assert (first.cold, second.cold, third.cold) == (True, None, False)
    assert first.retried_by == "a-l0-try1"
    assert second.retry_of == "a-l0"


def test_a_start_under_a_profiler_prices_no_start() -> None:
    slower = msgspec.structs.replace(
        launch("a-trace-l0", 200, 90), wrapper=("nsys", "launch")
    )
    run = run_of(launch("a-l0", 0, 50), slower)
    boots = boot_results(run)
    assert [b.cold for b in boots] == [True, None]
    (cost,) = startup_costs(boots, run)
    assert (cost.cold_s, cost.warm_s, cost.n_warm) == (50.0, None, 0)
    (alone,) = startup_costs(boot_results(run_of(slower)), run_of(slower))
    assert (alone.cold_s, alone.warm_s) == (None, None)


def test_a_failed_start_costs_what_it_took_until_it_had_ended() -> None:
    (boot,) = boot_results(run_of(launch("a-l0", 0, 55, ready=False)))
    assert boot.seconds_to_ready is None
    assert boot.startup_usd == pytest.approx(0.6)


def test_without_prices_there_is_no_money_and_without_instants_no_time() -> None:
    (boot,) = boot_results(run_of(launch("a-l0", 0, 55), usd_per_hour=None))
    assert (boot.seconds_to_ready, boot.startup_usd) == (55.0, None)
    (imported,) = boot_results(run_of(Launch(name="a", configuration="a", ready=True)))
    assert (imported.seconds_to_ready, imported.cold) == (None, None)


def test_a_server_that_ran_already_was_not_started_cold() -> None:
    run = msgspec.structs.replace(run_of(launch("a-l0", 0, 1)), engine="url")
    (boot,) = boot_results(run)
    assert (boot.ready, boot.cold) == (True, None)


def test_overlapping_phases_are_priced_each_and_counted_once_together() -> None:
    told = log(phase("load_weights", 40.0, 60.0), phase("compile", 30.0, 70.0))
    (boot,) = boot_results(run_of(launch("a-l0", 0, 100, log=told)))
    assert [p["usd"] for p in boot.phases] == [pytest.approx(0.4), pytest.approx(0.3)]
    # From 20 to 70 s a phase ran: 50 of the 100 s have no name.
    assert boot.unnamed_s == pytest.approx(50.0)


def cost(name: str, warm_s: float | None, cold_s: float | None = None) -> StartupCost:
    return StartupCost(
        configuration=name,
        session="s0",
        cold_s=cold_s,
        warm_s=warm_s,
        n_warm=1 if warm_s is not None else 0,
        cold_usd=None,
        warm_usd=None,
    )


def compared(delta_pct: float | None, verdict: str) -> Comparison:
    return Comparison(
        a="a",
        b="b",
        concurrency=16,
        metric="output_tokens_per_s",
        delta_pct=delta_pct,
        ci95_pct=None if delta_pct is None else (delta_pct - 2, delta_pct + 2),
        verdict=verdict,  # type: ignore[arg-type]  # parametrized
        runs_needed=None,
        session="s0",
    )


def test_the_break_even_is_where_both_have_produced_as_many_tokens() -> None:
    (found,) = break_evens(
        (cost("a", 100.0), cost("b", 220.0)), (compared(10.0, "faster"),)
    )
    assert (found.verdict, found.startup) == ("after", "warm")
    assert found.hours is not None
    t = found.hours * 3600
    assert 1.0 * (t - 100) == pytest.approx(1.1 * (t - 220))
    assert t == pytest.approx(220 + 120 / 0.10)
    assert found.ci95_hours is not None
    low, high = found.ci95_hours
    assert low == pytest.approx((220 + 120 / 0.12) / 3600)
    assert high == pytest.approx((220 + 120 / 0.08) / 3600)


@pytest.mark.parametrize(
    ("delta_pct", "verdict", "b_s", "expected"),
    [
        (10.0, "faster", 90.0, "at-once"),
        (-10.0, "slower", 220.0, "never"),
        (-10.0, "slower", 40.0, "until"),
        (1.0, "undetermined", 220.0, "undetermined"),
        (0.1, "same", 220.0, "undetermined"),
        (None, "undetermined", 220.0, "undetermined"),
    ],
)
def test_what_is_not_established_has_no_break_even(
    delta_pct: float | None, verdict: str, b_s: float, expected: str
) -> None:
    (found,) = break_evens(
        (cost("a", 100.0), cost("b", b_s)), (compared(delta_pct, verdict),)
    )
    assert found.verdict == expected
    assert (found.hours is not None) == (expected == "until")
    if expected == "until":
        t = (found.hours or 0.0) * 3600
        assert 1.0 * (t - 100) == pytest.approx(0.9 * (t - 40))


def test_cold_starts_are_compared_where_warm_ones_are_not_known() -> None:
    pair = (cost("a", None, 100.0), cost("b", 50.0, 130.0))
    (found,) = break_evens(pair, (compared(10.0, "faster"),))
    assert (found.startup, found.a_startup_s, found.b_startup_s) == ("cold", 100, 130)
    one = (cost("a", None, 100.0), cost("b", 50.0))
    (unknown,) = break_evens(one, (compared(10.0, "faster"),))
    assert unknown.verdict == "undetermined"
    assert "no start" in unknown.why
