"""Figures that a source published without the samples behind them."""

from collections.abc import Iterator

from stepscope.analysis.cell.measured import Measured, summary_e2el_ms
from stepscope.analysis.cell.saying import about
from stepscope.analysis.records import CellTelemetry
from stepscope.findings import Finding
from stepscope.run.published import TelemetryMeans
from stepscope.run.run import Cell

#: A window this much longer than the run holds samples from outside it.
_LONGER = 1.02
#: Share of TPOT from which prefill inside it is worth a word.
_PREFILL_SHARE = 0.10


def run_s(cell: Cell) -> float | None:
    """Return how long a summarised cell took, seconds; None: not stated."""
    return None if cell.summary is None else cell.summary.duration_s


def bounds(
    mean: float, window_s: float, span_s: float, most: float
) -> tuple[float, float]:
    """Return what a mean over a longer window leaves open for the run inside it.

    Source: mean x window = inside x span + outside x (window - span), with the
        outside anywhere between 0 and ``most``.
    Assumes: samples equally spaced, and the run whole inside the window.

    Args:
        mean: The published mean.
        window_s: What it was taken over, seconds.
        span_s: The run, seconds; at most ``window_s``.
        most: The greatest value that the figure can have.
    """
    high = min(most, mean * window_s / span_s)
    low = (mean * window_s - most * (window_s - span_s)) / span_s
    return max(0.0, low), high


def published_telemetry(
    means: TelemetryMeans | None, span_s: float | None
) -> CellTelemetry | None:
    """Return published means as far as they speak of the run; None without any.

    A mean whose window is not stated, or is longer than the run, is no figure of the
    run: utilization and power are then intervals, or unknown.
    """
    if means is None or span_s is None:
        return None
    fits = means.window_s is not None and means.window_s <= _LONGER * span_s
    n = means.n_samples
    if fits:
        return CellTelemetry(
            n_samples_total=n,
            n_samples_in_window=n,
            window_s=span_s,
            util_pct=means.util_pct,
            util_spread_points=means.util_spread_points,
            power_w=means.power_w,
            power_limit_w=means.power_limit_w,
            sm_clock_mhz=means.sm_clock_mhz,
        )
    util = power = None
    if means.window_s is not None:
        if means.util_pct is not None:
            util = bounds(means.util_pct, means.window_s, span_s, 100.0)
        if means.power_w is not None and means.power_limit_w is not None:
            power = bounds(means.power_w, means.window_s, span_s, means.power_limit_w)
    return CellTelemetry(
        n_samples_total=n,
        n_samples_in_window=None,
        window_s=span_s,
        util_pct_range=util,
        power_w_range=power,
        power_limit_w=means.power_limit_w,
    )


def window_of_means(m: Measured) -> Iterator[Finding]:
    """Published telemetry whose window is not the run's."""
    means, span_s = m.cell.telemetry_means, run_s(m.cell)
    if means is None:
        return
    hint = "Keep the samples with their instants, and clip them to the run."
    if means.window_s is None or span_s is None:
        yield about(
            m,
            "telemetry-window-mismatch",
            "nothing says over which window the published means of utilization and"
            " power were taken: they are not read as figures of this run",
            hint,
        )
        return
    if means.window_s <= _LONGER * span_s:
        return
    shown = published_telemetry(means, span_s)
    said = []
    if shown is not None and shown.util_pct_range is not None:
        low, high = shown.util_pct_range
        said.append(
            f"{means.util_pct:.1f} % utilization there leaves {low:.0f} to"
            f" {high:.0f} % inside the run"
        )
    if shown is not None and shown.power_w_range is not None:
        low, high = shown.power_w_range
        said.append(
            f"{means.power_w:.0f} W there leaves {low:.0f} to {high:.0f} W inside it"
        )
    share = 100 * (1 - span_s / means.window_s)
    yield about(
        m,
        "telemetry-window-mismatch",
        f"the published means are over {means.window_s:.0f} s around a run of"
        f" {span_s:.0f} s, so up to {share:.0f} % of the samples are not of it"
        + "".join(f"; {text}" for text in said)
        + ": neither idle time nor headroom of the run is shown",
        hint,
    )


def prefill_ms(
    ttft_ms: float | None, output_tokens: int | None, n_ok: int, slots: int | None
) -> float | None:
    """Return about how much of TPOT is other requests' prefill, ms; None: not known.

    Args:
        ttft_ms: Mean TTFT.
        output_tokens: Of all answered requests.
        n_ok: Answered requests.
        slots: Concurrency of a closed loop.

    Source: of C requests sent together the i-th is first answered after i prefills
        and then waits for the C - i that follow; on average the wait equals the mean
        TTFT. Spread over n - 1 tokens it is TTFT / (n - 1).
    Assumes: requests of a wave are sent together and end together, as equal lengths
        make them. Staggered requests are held up by at least as much.
    """
    if ttft_ms is None or not output_tokens or not n_ok or (slots or 1) < 2:
        return None
    n = output_tokens / n_ok
    return None if n < 2 else ttft_ms / (n - 1)


def prefill_in_tpot(m: Measured) -> Iterator[Finding]:
    """A TPOT that is not the decode step, since prefill steps are inside it."""
    summary = m.cell.summary
    if m.steps is not None or summary is None:
        return
    ttft = summary.stats.get("ttft_ms", {}).get("mean")
    tpot = summary.stats.get("tpot_ms", {}).get("mean")
    part = prefill_ms(ttft, summary.output_tokens, summary.n_completed, m.concurrency)
    if part is None or ttft is None or not tpot or part < _PREFILL_SHARE * tpot:
        return
    if summary_e2el_ms(summary) is None:
        return
    yield about(
        m,
        "prefill-in-tpot",
        f"about {part:.1f} of the {tpot:.1f} ms of TPOT are prefill steps of other"
        f" requests (mean TTFT {ttft / 1e3:.1f} s, waited for again after a request's"
        f" own first token): the decode step is about {tpot - part:.1f} ms, and TPOT"
        " is the step time seen by a request",
        "Take the median gap between tokens, or the engine's iteration log.",
    )
