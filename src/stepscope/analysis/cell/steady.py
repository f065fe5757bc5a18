"""Which part of a cell is steady, and how well one run knows its own mean.

The stretch in which all slots are held, from the first completion on; in it a series
of step times; of that what is left after its own warm-up (MSER-5).
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy import stats

from stepscope.analysis.cell.chunks import Bools, Ints
from stepscope.analysis.cell.columns import Columns, Floats
from stepscope.analysis.cell.little import mean_in_flight
from stepscope.analysis.cell.window import Window, waves
from stepscope.run.gaps import GapStatistics
from stepscope.units import NS_PER_S, ms

#: From two waves on there is a stretch with full slots; from four on it is judged.
WAVES_TO_MEASURE, WAVES_TO_JUDGE = 2, 4
#: Slots in use in a steady stretch.
STEADY_OCCUPANCY = 0.98
#: A change between halves that is worth a word, in logs and in standard errors.
MOST_DRIFT, DRIFT_ERRORS = 0.02, 4.0
N_BATCHES = 20
#: Steps that a series needs: five a batch.
LEAST_STEPS = 5 * N_BATCHES
#: More of the series than this left out by MSER-5, and as different from the rest as
#: a drift: it never settled.
MOST_CUT = 0.5
_MSER_BATCH = 5
#: A step this many times the median one, with a request waiting, holds its prefill.
_PREFILL_TIMES = 1.5
_MOST_BINS = 20_000
#: Places in an answer that have a mean of their own, then so many groups of the rest.
_FIRST_PLACES, _PLACE_GROUPS = 4, 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Steady:
    """The steady stretch of a cell.

    Attributes:
        window: All slots held: first completion to the first completion after the
            last send.
        occupancy: Mean in flight over C in it.
        from_ns: Where the steady part begins: after what MSER-5 leaves out, at the
            next send (where slots run in step, a whole wave later).
        judged: Whether there are waves enough to judge it by; without, nothing is
            left out.
        cut_share: What MSER-5 leaves out of the series; None without a series.
        cut_off: Log ratio of the mean of what it leaves out to that of the rest.
        step_ms: Mean gap between chunks of one request in the steady part, prefill
            that shared the steps included.
        tokens_per_s: Output tokens a second there.
        drift: Log change of the gap from the first to the second half.
        drift_error: Its standard error.
        error_pct: Half the 95 % interval of the mean by batch means, percent. A
            lower bound: it knows nothing of what differs from run to run.
        n_steps: Length of the series.
    """

    window: Window
    occupancy: float
    from_ns: int
    judged: bool
    cut_share: float | None
    cut_off: float
    step_ms: float | None
    tokens_per_s: float | None
    drift: float | None
    drift_error: float | None
    error_pct: float | None
    n_steps: int

    @property
    def _most_noise(self) -> float:
        """What two parts of the series may differ by, in logs."""
        return max(MOST_DRIFT, DRIFT_ERRORS * (self.drift_error or 0.0))

    @property
    def drifts(self) -> bool:
        """Whether the halves differ by more than noise and by more than 2 %."""
        return self.drift is not None and abs(self.drift) > self._most_noise

    @property
    def never_settles(self) -> bool:
        """Whether MSER-5 leaves out more than half, and that half is another."""
        if self.cut_share is None or self.cut_share <= MOST_CUT:
            return False
        return abs(self.cut_off) > self._most_noise


def steady(columns: Columns, concurrency: int | None) -> Steady | None:
    """Return the steady stretch; None for an open loop and below two waves.

    Args:
        columns: The cell's requests.
        concurrency: Slots.
    """
    n_waves = waves(columns.n, concurrency)
    if not concurrency or n_waves is None or n_waves < WAVES_TO_MEASURE:
        return None
    window = held_window(columns)
    if window is None:
        return None
    at, series = step_series(columns, window)
    begin, cut, off = window.from_ns, None, 0.0
    judged = n_waves >= WAVES_TO_JUDGE
    if judged and series.size >= LEAST_STEPS:
        n_cut = mser5(series)
        cut = n_cut / series.size
        if n_cut:
            off = float(np.log(series[:n_cut].mean() / series[n_cut:].mean()))
        later = _next_send(columns, window, int(at[n_cut])) if n_cut else begin
        # Half of the stretch is kept at least: less would be a wave by its luck.
        if later - window.from_ns <= MOST_CUT * window.length_ns:
            begin, series = later, series[at >= later]
    drift, error = halves(series)
    inner = Window(begin, window.to_ns)
    came = _delivered(columns, inner)
    return Steady(
        window=window,
        occupancy=mean_in_flight(columns, window) / concurrency,
        from_ns=begin,
        judged=judged,
        cut_share=cut,
        cut_off=off,
        step_ms=ms(came.gaps_ns / came.n_gaps) if came.n_gaps else None,
        tokens_per_s=_tokens_per_s(columns, inner, came.n_chunks),
        drift=drift,
        drift_error=error,
        error_pct=batch_means_error_pct(series),
        n_steps=int(series.size),
    )


def steady_tokens_per_s(
    columns: Columns, concurrency: int | None, stretch: Steady | None
) -> float | None:
    """Return output tokens a second with all slots full.

    From four waves on what arrived in the steady part. Below, that is a sliver, and
    the figure is what Little's law gives for full slots: C x mean tokens / mean E2EL.

    Assumes: below four waves, that E2EL would not change if the drain were full too.
        It flatters a cell whose last, thin wave ran faster.
    """
    if stretch is not None and stretch.judged and stretch.tokens_per_s is not None:
        return stretch.tokens_per_s
    chosen = columns.timed & columns.has_tokens
    if not concurrency or not chosen.any():
        return None
    e2el = float(columns.e2el_ns().mean())
    return (
        concurrency * float(columns.tokens[chosen].mean()) / e2el * NS_PER_S
        if e2el
        else None
    )


def held_window(columns: Columns) -> Window | None:
    """Return from the first completion to the first one after the last send.

    Before it the first wave's common prefill is under way; after it slots stand
    empty. Where slots run in step it holds whole waves.
    """
    chosen = columns.timed & columns.has_tokens
    if not chosen.any() or not columns.chunks.n:
        return None
    begin, last_send = int(columns.left[chosen].min()), int(columns.sent.max())
    later = columns.left[columns.left > last_send]
    end = int(later.min()) if later.size else last_send
    return Window(begin, end) if end > begin else None


def step_series(columns: Columns, window: Window) -> tuple[Ints, Floats]:
    """Return decode step times over time, relative to what is usual at that place.

    Gaps between chunks of one request, each divided by the median gap at its place in
    the answer (so that the growing context of a wave in step is no drift), averaged
    in bins of one median gap. Empty bins are left out, so that there is about one
    value a step; requests that share the step share its value. Left out too are steps
    above 1.5 medians while a request waits for its first token: prefill, which comes
    with every wave and is no transient.

    Returns:
        Begin of each bin, nanoseconds; the mean relative gap, about 1.
    """
    survey, furthest = GapStatistics(), 0
    for gaps, _, places in _inside(columns, window):
        survey.count(gaps)
        furthest = max(furthest, int(places.max()))
    survey.want((50.0,))
    least = survey.least
    if survey.n < LEAST_STEPS or least is None or least < 0:
        return np.empty(0, np.int64), np.empty(0)
    usual = np.maximum(_usual_by_group(columns, window, survey, furthest), 1.0)
    width = max(int(survey.percentile_ns(50.0) or 0), window.length_ns // _MOST_BINS, 1)
    n_bins = (window.length_ns - 1) // width + 1
    count, total = np.zeros(n_bins, np.int64), np.zeros(n_bins)
    for gaps, ends, places in _inside(columns, window):
        at = (ends - window.from_ns) // width
        relative = gaps / usual[_place_group(places, furthest)]
        count += np.bincount(at, minlength=n_bins)
        total += np.bincount(at, relative, minlength=n_bins)
    full = np.flatnonzero(count)
    values = total[full] / count[full]
    begins = window.from_ns + full * width
    decode = ~(
        (values > _PREFILL_TIMES * np.median(values)) & _waiting(columns, begins, width)
    )
    return begins[decode], values[decode]


def _inside(columns: Columns, window: Window) -> Iterator[tuple[Ints, Ints, Ints]]:
    """Yield gaps that end in the window, their ends and their places, if there are."""
    for piece in columns.chunks.pieces():
        ends = piece.gap_ends_ns
        inside = (ends >= window.from_ns) & (ends < window.to_ns)
        if inside.any():
            yield piece.gaps_ns[inside], ends[inside], piece.gap_places[inside]


def _usual_by_group(
    columns: Columns, window: Window, survey: GapStatistics, furthest: int
) -> Floats:
    """Return the median gap of each group of places; end the survey's second walk."""
    groups = [GapStatistics() for _ in range(_n_groups(furthest))]
    for gaps, _, places in _inside(columns, window):
        survey.pick(gaps)
        group = _place_group(places, furthest)
        for number, own in enumerate(groups):
            own.count(gaps[group == number])
    survey.finish()
    for own in groups:
        own.want((50.0,))
    if any(own.walk_again for own in groups):
        for gaps, _, places in _inside(columns, window):
            group = _place_group(places, furthest)
            for number, own in enumerate(groups):
                own.pick(gaps[group == number])
        for own in groups:
            own.finish()
    return np.array([own.percentile_ns(50.0) or 1.0 for own in groups])


def _waiting(columns: Columns, begins: Ints, width: int) -> Bools:
    """Return in which bins some request waits for its first token."""
    sent = np.sort(columns.sent[columns.timed])
    first = np.sort(columns.first[columns.timed])
    n_sent = np.searchsorted(sent, begins + width)
    waiting: Bools = n_sent > np.searchsorted(first, begins - width)
    return waiting


def _place_group(places: Ints, furthest: int) -> Ints:
    """Return the group of each place, of answers whose last place is ``furthest``."""
    rest = np.maximum(places - _FIRST_PLACES, 0)
    group: Ints = np.where(
        places < _FIRST_PLACES, places, _FIRST_PLACES + rest // _per_group(furthest)
    )
    return group


def _per_group(furthest: int) -> int:
    return max(1, -(-(max(furthest - _FIRST_PLACES, 0) + 1) // _PLACE_GROUPS))


def _n_groups(furthest: int) -> int:
    return int(_place_group(np.array([furthest]), furthest)[0]) + 1


def mser5(series: Floats) -> int:
    """Return how many values to leave out at the beginning of a series.

    Source: K. P. White, "An Effective Truncation Heuristic for Bias Reduction in
        Simulation Output", Simulation 69 (1997), on means of five values (White,
        Cobb and Spratt, 2000): the truncation with the smallest squared error of the
        mean of what is left.
    Assumes: what is left at the end is steady. At least ten batches are left, since
        the error of fewer is small by luck.
    """
    n = series.size // _MSER_BATCH
    if n <= 2 * _MSER_BATCH:
        return 0
    z = series[: n * _MSER_BATCH].reshape(n, _MSER_BATCH).mean(axis=1)
    left = np.arange(n, 0, -1)
    tail = np.cumsum(z[::-1])[::-1] / left
    square = np.cumsum((z**2)[::-1])[::-1] / left
    error = np.maximum(square - tail**2, 0.0) / left
    return int(np.argmin(error[: n - 2 * _MSER_BATCH + 1])) * _MSER_BATCH


def batch_means(series: Floats) -> Floats:
    """Return the means of 20 equal batches; empty for a series too short."""
    size = series.size // N_BATCHES
    if series.size < LEAST_STEPS:
        return np.empty(0)
    used = series[series.size - size * N_BATCHES :]
    means: Floats = used.reshape(N_BATCHES, size).mean(axis=1)
    return means


def batch_means_error_pct(series: Floats) -> float | None:
    """Return half the 95 % interval of a series' mean, percent of the mean.

    Source: 20 batch means, t with 19 degrees of freedom.
    Assumes: a batch is long against the memory of the series. It is a lower bound of
        what repeats differ by, and no verdict may rest on it.
    """
    means = batch_means(series)
    if not means.size:
        return None
    error = float(means.std(ddof=1)) / np.sqrt(N_BATCHES)
    return float(100 * stats.t.ppf(0.975, N_BATCHES - 1) * error / means.mean())


def halves(series: Floats) -> tuple[float | None, float | None]:
    """Return the log change from the first to the second half, and its error."""
    means = batch_means(series)
    if not means.size:
        return None, None
    logs = np.log(np.maximum(means, 1e-6))
    first, second = logs[: N_BATCHES // 2], logs[N_BATCHES // 2 :]
    error = float(np.sqrt((first.var(ddof=1) + second.var(ddof=1)) / first.size))
    return float(second.mean() - first.mean()), error


def _next_send(columns: Columns, window: Window, at_ns: int) -> int:
    """Return the first send from ``at_ns`` on: there a wave in step begins."""
    later = columns.sent[columns.sent >= at_ns]
    return int(later.min()) if later.size else window.from_ns


@dataclass(frozen=True, slots=True)
class _Delivered:
    """What ended in a stretch: gaps of successful requests, and all chunks."""

    n_gaps: int
    gaps_ns: int
    n_chunks: int


def _delivered(columns: Columns, window: Window) -> _Delivered:
    n_gaps = gaps_ns = n_chunks = 0
    for piece in columns.chunks.pieces():
        ends, at = piece.gap_ends_ns, piece.arrivals_ns
        inside = (ends >= window.from_ns) & (ends < window.to_ns)
        n_gaps += int(np.count_nonzero(inside))
        gaps_ns += int(piece.gaps_ns[inside].sum())
        n_chunks += int(np.count_nonzero((at >= window.from_ns) & (at < window.to_ns)))
    return _Delivered(n_gaps, gaps_ns, n_chunks)


def _tokens_per_s(columns: Columns, window: Window, n_chunks: int) -> float | None:
    chosen = columns.timed & columns.has_tokens
    per_chunk = float(columns.tokens[chosen].sum()) / max(
        1, int(columns.n_chunks[chosen].sum())
    )
    if window.length_ns <= 0 or not n_chunks:
        return None
    return n_chunks * per_chunk / window.length_ns * NS_PER_S
