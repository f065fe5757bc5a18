"""Changes tested, as a table: each comparison with the cells that it rests on."""

from collections.abc import Iterator
from dataclasses import dataclass

from stepscope.analysis.compare.records import Comparison
from stepscope.analysis.records import Analysis, CellResult
from stepscope.report.cells import UNKNOWN, shown


@dataclass(frozen=True, slots=True)
class Tested:
    """One row; texts, ready to be placed.

    ``cells_a`` and ``cells_b`` name the cells that the two means are of.
    """

    a: str
    b: str
    at: str
    shape: str
    metric: str
    mean_a: str
    mean_b: str
    delta: str
    interval: str
    units: str
    p: str
    verdict: str
    needed: str
    cells_a: tuple[str, ...] = ()
    cells_b: tuple[str, ...] = ()


def tested(analysis: Analysis) -> list[Tested]:
    """Return every comparison, then the means over rows of each metric."""
    return [*_rows(analysis), *_pooled(analysis)]


def _rows(analysis: Analysis) -> Iterator[Tested]:
    out = frozenset(one.cell for one in analysis.left_out)
    for c in analysis.comparisons:
        at = c.concurrency if c.request_rate is None else f"{c.request_rate:g}/s"
        shape = ""
        if c.input_tokens is not None and c.output_tokens is not None:
            shape = f"{c.input_tokens} in, {c.output_tokens} out"
        yield Tested(
            a=c.a,
            b=c.b,
            at=shown(at),
            shape=shape,
            metric=c.metric,
            mean_a=shown(c.mean_a),
            mean_b=shown(c.mean_b),
            delta=_percent(c.delta_pct),
            interval=_interval(c.ci95_pct),
            units=f"{c.n_a}, {c.n_b} {'launches' if c.unit == 'launch' else 'runs'}",
            p=shown(c.p_adjusted),
            verdict=_verdict(c),
            needed=_needed(c),
            cells_a=tuple(x.name for x in analysis.cells if _is_of(x, c, c.a, out)),
            cells_b=tuple(x.name for x in analysis.cells if _is_of(x, c, c.b, out)),
        )


def _is_of(cell: CellResult, c: Comparison, arm: str, out: frozenset[str]) -> bool:
    """Tell whether a cell is at a comparison's row, by everything that was asked."""
    asked = (
        (c.concurrency, cell.concurrency),
        (c.request_rate, cell.request_rate),
        (c.n_prompts, cell.n_prompts),
        (c.input_tokens, cell.asked_input_tokens),
        (c.output_tokens, cell.asked_output_tokens),
    )
    return (
        cell.configuration == arm
        and cell.valid
        and not cell.warm_up
        and cell.name not in out
        and all(want is None or want == found for want, found in asked)
    )


def _pooled(analysis: Analysis) -> Iterator[Tested]:
    for p in analysis.pooled:
        verdict: str = p.verdict
        if p.rows_agree is False:
            verdict = "rows disagree: not one number"
        yield Tested(
            a=p.a,
            b=p.b,
            at=f"all {p.n_rows} rows",
            shape="",
            metric=p.metric,
            mean_a="",
            mean_b="",
            delta=_percent(p.delta_pct),
            interval=_interval(p.ci95_pct),
            units="",
            p=shown(p.p_adjusted),
            verdict=verdict,
            needed="",
        )


def _verdict(c: Comparison) -> str:
    text: str = c.verdict
    if c.anchor is not None:
        text += f", through {c.anchor}"
    return text if c.reason is None else f"{text}: {c.reason}"


def _needed(c: Comparison) -> str:
    if c.runs_needed is None:
        return UNKNOWN
    text = f"{c.runs_needed} {'launches' if c.unit == 'launch' else 'runs'} of each"
    if c.minutes_needed is not None:
        text += f", {shown(c.minutes_needed)} minutes"
    if c.usd_needed is not None:
        text += f", {c.usd_needed:.2f} USD"
    return text


def _percent(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:+.2f}"


def _interval(ci: tuple[float, float] | None) -> str:
    return "no interval" if ci is None else f"{ci[0]:+.2f} to {ci[1]:+.2f}"
