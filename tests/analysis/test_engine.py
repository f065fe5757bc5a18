from collections.abc import Callable

import msgspec
import pytest

from stepscope.analysis.analyze import analyze
from stepscope.analysis.cell.engine import steps_from_log, steps_from_metrics
from stepscope.analysis.cell.window import Window
from stepscope.run.requests import Request
from stepscope.run.run import Cell, Launch, Run
from stepscope.run.samples import MetricsSnapshot, MetricValue
from stepscope.run.serverlog import LogEvent, ServerLog

S = 1_000_000_000
Scrape = Callable[..., MetricsSnapshot]


def iteration(
    number: int, at_ns: int, *, context: int = 0, error: int = 0, engine: int = 0
) -> LogEvent:
    return LogEvent(
        kind="iteration",
        line=number + 1,
        text="",
        at_ns=at_ns,
        error_ns=error,
        numbers={
            "iteration": float(number),
            "context_requests": float(context),
            "n_running": 8.0,
            "generation_tokens": 8.0,
            "elapsed_ms": 1.0,
            "engine": float(engine),
        },
    )


def test_a_one_second_clock_still_gives_the_period_to_one_step() -> None:
    step = 17_900_000
    events = [
        iteration(i, (i * step // S) * S, error=S, context=int(i % 150 == 0))
        for i in range(600)
    ]
    found = steps_from_log(events, Window(0, 11 * S))
    assert found is not None
    assert found.step_ms == pytest.approx(17.9, rel=0.01)
    assert found.prefill_share == pytest.approx(4 / 600)
    assert found.tokens_per_sequence == 1.0


def test_the_logged_elapsed_is_never_the_period() -> None:
    events = [iteration(i, i * 20_000_000) for i in range(100)]
    found = steps_from_log(events, Window(0, 2 * S))
    assert found is not None
    assert found.step_ms == pytest.approx(20.0)


def test_a_prefill_and_a_missing_line_break_the_series() -> None:
    step, at, events = 10_000_000, 0, []
    for i in range(200):
        at += 500_000_000 if i in (50, 120) else step
        if i == 150:
            continue
        events.append(iteration(i, at, context=int(i in (50, 120))))
    found = steps_from_log(events, Window(0, at))
    assert found is not None
    assert found.step_ms == pytest.approx(10.0)


def test_tokens_of_preempted_requests_are_no_decode_step_and_no_speculation() -> None:
    """vLLM logs what it computes again as generation tokens of no context request."""
    step, at, events = 10_000_000, 0, []
    for i in range(200):
        again = i in (50, 120, 121)
        at += 90_000_000 if again else step
        event = iteration(i, at)
        if again:
            numbers = event.numbers | {"generation_tokens": 1520.0}
            event = msgspec.structs.replace(event, numbers=numbers)
        events.append(event)
    found = steps_from_log(events, Window(0, at))
    assert found is not None
    assert found.step_ms == pytest.approx(10.0)
    assert found.tokens_per_sequence == 1.0
    assert found.prefill_share == pytest.approx(3 / 200)
    assert found.sequences == 8.0


def test_drafts_that_differ_from_step_to_step_are_decode_steps() -> None:
    events = []
    for i in range(100):
        event = iteration(i, i * 10_000_000)
        numbers = event.numbers | {"generation_tokens": 8.0 * (4 if i % 3 else 2)}
        events.append(msgspec.structs.replace(event, numbers=numbers))
    found = steps_from_log(events, Window(0, S))
    assert found is not None
    assert found.prefill_share == 0.0
    assert found.tokens_per_sequence == 4.0


def test_engines_are_not_mixed() -> None:
    events = [
        iteration(i, i * 10_000_000 + engine, engine=engine)
        for i in range(100)
        for engine in range(4)
    ]
    found = steps_from_log(events, Window(0, S))
    assert found is not None
    assert found.step_ms == pytest.approx(10.0)


def test_lines_outside_the_cell_do_not_count() -> None:
    events = [iteration(i, i * 10_000_000) for i in range(100)]
    assert steps_from_log(events, Window(5 * S, 6 * S)) is None


def steps_scrape(
    at: int, steps: float, prompt: float, engines: int = 1
) -> MetricsSnapshot:
    values = [
        MetricValue(
            name="vllm:iteration_tokens_total_count",
            labels={"engine": str(i)},
            value=steps,
        )
        for i in range(engines)
    ]
    values.append(MetricValue(name="vllm:prompt_tokens_total", labels={}, value=prompt))
    return MetricsSnapshot(at_ns=at, values=tuple(values))


def test_scrapes_count_only_stretches_without_a_finished_prompt() -> None:
    snapshots = [
        steps_scrape(0, 0, 0),
        steps_scrape(S, 5, 800),
        steps_scrape(2 * S, 55, 800),
        steps_scrape(3 * S, 105, 800),
    ]
    found = steps_from_metrics(snapshots, Window(0, 3 * S))
    assert found is not None
    assert found.step_ms == pytest.approx(20.0)
    assert found.prefill_share is None


def test_steps_of_several_engines_are_not_read_as_one() -> None:
    snapshots = [steps_scrape(i * S, 50 * i, 0, engines=8) for i in range(4)]
    assert steps_from_metrics(snapshots, Window(0, 3 * S)) is None


def test_rejected_drafts_are_no_tokens_of_a_step(
    run_of: Callable[..., Run],
    cell_of: Callable[..., Cell],
    served: Callable[..., tuple[Request, ...]],
) -> None:
    """An iteration line counts four scheduled tokens; the counters, 1.5 accepted."""
    requests = served(n=64, slots=8, tokens=200, tpot_ms=5.0)
    begin = min(r.sent_at_ns for r in requests)
    end = max(r.last_content_at_ns or 0 for r in requests)

    def counted(at: int, drafts: float, accepted: float) -> MetricsSnapshot:
        named = {"num_drafts_total": drafts, "num_accepted_tokens_total": accepted}
        return MetricsSnapshot(
            at_ns=at,
            values=tuple(
                MetricValue(name=f"vllm:spec_decode_{name}", labels={}, value=value)
                for name, value in named.items()
            ),
        )

    lines = []
    for i in range((end - begin) // 12_500_000):
        line = iteration(i, begin + i * 12_500_000)
        numbers = line.numbers | {"generation_tokens": 32.0}
        lines.append(msgspec.structs.replace(line, numbers=numbers))
    cell = cell_of(
        requests,
        tokens=200,
        metrics_before=counted(begin, 0.0, 0.0),
        metrics_after=counted(end, 1000.0, 1500.0),
    )
    log = ServerLog(engine="vllm", version="0.26.0", n_lines=1, events=tuple(lines))
    launch = Launch(name="base-l0", configuration="base", ready=True, log=log)
    (found,) = analyze(run_of(cell, launches=(launch,))).cells
    assert found.engine_step_ms == pytest.approx(12.5, rel=0.01)
    assert found.tokens_per_step_and_sequence == pytest.approx(2.5)
