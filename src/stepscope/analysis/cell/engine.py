"""The engine's own steps: how far apart, how full, how often with a prefill."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from stepscope.analysis.cell.window import Window
from stepscope.run.samples import MetricsSnapshot
from stepscope.run.serverlog import LogEvent
from stepscope.units import NS_PER_MS

#: Fewer steps than this between two certain instants say too little.
MIN_STEPS = 20
#: Tokens a sequence over the usual, with speculative decoding, from which a step
#: computes something again.
_TIMES_USUAL = 2.0
_STEPS = "vllm:iteration_tokens_total_count"
_PROMPT = "vllm:prompt_tokens_total"
_RUNNING = "vllm:num_requests_running"
_MIN_SCRAPES = 3


@dataclass(frozen=True, slots=True)
class EngineSteps:
    """Engine steps of one cell.

    Attributes:
        step_ms: Period between consecutive decode steps (no prefill among them).
        n_steps: Steps that the period was taken from.
        prefill_share: Share of all steps that held prefill tokens; None where the
            source does not tell steps apart.
        tokens_per_sequence: Tokens scheduled a sequence in the median decode step.
        source: ``iteration lines`` or ``metrics``.
        sequences: Sequences in the median decode step, all engines together: fewer
            than are in flight where some wait for a place.
    """

    step_ms: float | None
    n_steps: int
    prefill_share: float | None
    tokens_per_sequence: float | None
    source: str
    sequences: float | None = None


def steps_from_log(events: Sequence[LogEvent], window: Window) -> EngineSteps | None:
    """Return the step period from lines that report single iterations.

    The logged "elapsed" is not used: under asynchronous scheduling it is how long
    the engine waited for a result that was already on its way. What counts is how
    many steps lie between two instants at which the log's clock moved on: within an
    unbroken series of decode steps that pins the period to one step in the series,
    however coarse the clock.

    Assumes: a line is written as its step ends, or with a constant delay.

    Args:
        events: ``iteration`` events of one launch, in log order.
        window: The cell span.
    """
    chosen = [event for event in events if _inside(event, window)]
    if len(chosen) < MIN_STEPS:
        return None
    per_engine: dict[float, list[LogEvent]] = {}
    for event in chosen:
        per_engine.setdefault(event.numbers.get("engine", 0.0), []).append(event)
    usual = _usual_tokens(chosen)
    time_ns, n_steps, sequences = 0, 0, 0.0
    for series in per_engine.values():
        split = _decode_series(series, usual)
        running = [e.numbers.get("n_running") or 0.0 for each in split for e in each]
        sequences += float(np.median(running)) if running else 0.0
        for decode in split:
            run_ns, run_steps = _between_ticks(decode)
            time_ns, n_steps = time_ns + run_ns, n_steps + run_steps
    n_prefill = sum(_has_prefill(event, usual) for event in chosen)
    return EngineSteps(
        step_ms=time_ns / n_steps / NS_PER_MS if n_steps >= MIN_STEPS else None,
        n_steps=n_steps,
        prefill_share=n_prefill / len(chosen),
        tokens_per_sequence=usual,
        source="iteration lines",
        sequences=sequences or None,
    )


def steps_from_metrics(
    snapshots: Sequence[MetricsSnapshot], window: Window
) -> EngineSteps | None:
    """Return the step period from scrapes between which no prompt was finished.

    Assumes: one engine, and that a prompt's tokens are counted when its prefill
        ends; a long chunked prefill that spans several scrapes is not seen.

    Args:
        snapshots: Scrapes of the run, ascending in time.
        window: The cell span; only scrapes inside its earliest and latest position
            count.
    """
    inside = [
        snapshot
        for snapshot in snapshots
        if window.from_ns <= snapshot.at_ns <= window.to_ns - window.slack_ns
    ]
    time_ns, n_steps = 0, 0
    readings = [_reading(snapshot) for snapshot in inside]
    for (old, before), (new, after) in zip(
        zip(inside, readings, strict=True),
        zip(inside[1:], readings[1:], strict=True),
        strict=False,
    ):
        if before is None or after is None or before[1] != after[1]:
            continue
        if after[0] > before[0]:
            time_ns += new.at_ns - old.at_ns
            n_steps += after[0] - before[0]
    if n_steps < MIN_STEPS:
        return None
    running = [n for snapshot in inside if (n := _running(snapshot))]
    return EngineSteps(
        step_ms=time_ns / n_steps / NS_PER_MS,
        n_steps=n_steps,
        prefill_share=None,
        tokens_per_sequence=None,
        source="metrics",
        sequences=float(np.median(running)) if len(running) >= _MIN_SCRAPES else None,
    )


def _running(snapshot: MetricsSnapshot) -> float:
    return sum(v.value for v in snapshot.values if v.name == _RUNNING)


def _inside(event: LogEvent, window: Window) -> bool:
    if event.kind != "iteration" or event.at_ns is None:
        return False
    if event.numbers.get("dummy"):
        return False
    latest = event.at_ns + (event.error_ns or 0)
    return window.from_ns <= latest and event.at_ns <= window.to_ns


def _tokens_a_sequence(event: LogEvent) -> float | None:
    running = event.numbers.get("n_running")
    tokens = event.numbers.get("generation_tokens")
    return tokens / running if running and tokens is not None else None


def _usual_tokens(events: Sequence[LogEvent]) -> float | None:
    """Return the tokens that the median step without prompts gives a sequence.

    The median, since a few steps compute preempted requests again.
    """
    found = [
        tokens
        for event in events
        if not event.numbers.get("context_requests")
        and (tokens := _tokens_a_sequence(event)) is not None
    ]
    return float(np.median(found)) if found else None


def _has_prefill(event: LogEvent, usual: float | None) -> bool:
    """Return True for a step that holds prompt tokens, or computes some again.

    vLLM logs the tokens of a request that was preempted and comes back as generation
    tokens, without a context request (0.26: 1,520 tokens of 54 requests). Without
    speculative decoding any token too many is one of these; with it, steps differ by
    what is drafted, and twice the usual is taken.
    """
    if event.numbers.get("context_requests", 0.0) > 0:
        return True
    tokens = _tokens_a_sequence(event)
    if tokens is None or usual is None:
        return False
    return tokens > (1.0 if usual <= 1.0 else _TIMES_USUAL * usual)


def _decode_series(
    events: Sequence[LogEvent], usual: float | None
) -> list[list[LogEvent]]:
    """Split into unbroken series of steps without prefill."""
    series: list[list[LogEvent]] = [[]]
    last: float | None = None
    for event in events:
        number = event.numbers.get("iteration")
        broken = last is not None and number is not None and number != last + 1
        prefill = _has_prefill(event, usual)
        if (prefill or broken) and series[-1]:
            series.append([])
        if not prefill and event.numbers.get("n_running", 1.0) > 0:
            series[-1].append(event)
        last = number
    return [each for each in series if each]


def _between_ticks(series: Sequence[LogEvent]) -> tuple[int, int]:
    """Return time and steps between the first and the last tick of the log's clock."""
    at = np.fromiter((event.at_ns or 0 for event in series), np.int64, len(series))
    ticks = np.flatnonzero(np.diff(at) > 0) + 1
    if ticks.size < 2:
        return 0, 0
    return int(at[ticks[-1]] - at[ticks[0]]), int(ticks[-1] - ticks[0])


def _reading(snapshot: MetricsSnapshot) -> tuple[int, float] | None:
    steps = [v for v in snapshot.values if v.name == _STEPS]
    if len(steps) != 1:
        return None
    prompt = sum(v.value for v in snapshot.values if v.name == _PROMPT)
    return round(steps[0].value), prompt
