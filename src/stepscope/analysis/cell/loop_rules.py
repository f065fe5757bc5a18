"""Was the load what the cell's name says: whole waves, steady, without a stall?"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from stepscope.analysis.cell.columns import Columns
from stepscope.analysis.cell.measured import Measured
from stepscope.analysis.cell.saying import about
from stepscope.analysis.cell.steady import (
    MOST_CUT,
    STEADY_OCCUPANCY,
    steady_tokens_per_s,
)
from stepscope.analysis.cell.window import Window, waves
from stepscope.findings import Finding
from stepscope.run.gaps import walked
from stepscope.units import NS_PER_MS, ms, seconds

#: Share of the slots that an incomplete last wave may cost before it is said.
DRAIN_SHARE = 0.02
_BIN_NS = 10 * NS_PER_MS
_MOST_BINS = 1_000_000
_STALL_NS = 500 * NS_PER_MS
_STALL_TIMES_NEXT = 3.0
_STALL_TIMES_GAP = 20.0
_STALL_SHARE_OF_DECODE = 0.03


@dataclass(frozen=True, slots=True)
class Silence:
    """A stretch in which no content reached anybody, nanoseconds."""

    from_ns: int
    length_ns: int
    next_length_ns: int


def drain_share(n_waves: float | None) -> float:
    """Return the share of slot time that an incomplete last wave leaves empty.

    Assumes: equal latencies: ``n`` waves take the time of ``ceil(n)``.
    """
    if n_waves is None or n_waves <= 0:
        return 0.0
    return float(1 - n_waves / np.ceil(n_waves - 1e-9))


def partial_waves(m: Measured) -> Iterator[Finding]:
    """A last wave that does not fill the slots."""
    n_prompts, slots = m.cell.workload.n_prompts, m.concurrency
    n_waves = waves(n_prompts, slots)
    if slots is None or n_waves is None or drain_share(n_waves) <= DRAIN_SHARE:
        return
    held, full = "", ""
    if m.little is not None:
        held = f"; {m.little.mean_in_flight / slots:.3f} of the slots were in use"
    if m.expected_occupancy is not None:
        low, high = m.expected_occupancy
        held += f" (a replay of the loop gives {low:.3f} to {high:.3f})"
    rate = steady_tokens_per_s(m.columns, slots, m.steady)
    if rate is not None:
        full = f" With all slots in use it would be {rate:.0f} tokens/s."
    yield about(
        m,
        "partial-waves",
        f"{n_prompts} prompts on {slots} slots are {n_waves:.3f} waves, the last with"
        f" {n_prompts % slots}{held}: throughput is low for that reason alone.{full}",
        f"Send whole waves: {-(-n_prompts // slots) * slots} prompts.",
    )


def steady(m: Measured) -> Iterator[Finding]:
    """From four waves on: full slots, a step that settles and does not drift."""
    found = m.steady
    if found is None or not found.judged:
        return
    if found.occupancy < STEADY_OCCUPANCY:
        yield about(
            m,
            "not-steady",
            f"between the first completion and the last send {found.occupancy:.3f} of"
            f" the slots were in use; steady is {STEADY_OCCUPANCY}",
            "Look at late sends of the client and at failed requests.",
        )
    if found.drifts and found.drift is not None and found.drift_error is not None:
        yield about(
            m,
            "not-steady",
            f"gaps between chunks changed by {100 * np.expm1(found.drift):+.1f} % from"
            " the first to the second half of the steady stretch (standard error"
            f" {100 * found.drift_error:.1f} %)",
            "Warm up longer, or measure longer; look at clocks and power.",
        )
    elif found.never_settles and found.cut_share is not None:
        yield about(
            m,
            "not-steady",
            f"the time of a step settles only after {100 * found.cut_share:.0f} % of"
            f" {found.n_steps} steps of the stretch with full slots (MSER-5), and took"
            f" {100 * np.expm1(found.cut_off):+.1f} % until then; above"
            f" {100 * MOST_CUT:.0f} % it has not settled",
            "Warm up longer, or measure more waves.",
        )


def silence(columns: Columns, span: Window) -> Silence | None:
    """Return the longest stretch without content for anybody, and the next longest.

    Counted in bins of 10 ms (wider in cells of hours), so that it costs one pass.
    """
    if not columns.chunks.n:
        return None
    width = max(_BIN_NS, span.length_ns // _MOST_BINS)
    last = span.length_ns // width
    spoken = np.zeros(last + 1, np.bool_)
    for piece in columns.chunks.pieces():
        spoken[np.clip((piece.arrivals_ns - span.from_ns) // width, 0, last)] = True
    heard = np.concatenate(([-1], np.flatnonzero(spoken)))
    quiet = np.diff(heard) - 1
    if quiet.size < 2:
        return None
    order = np.argsort(quiet)
    at = span.from_ns + int(heard[order[-1]] + 1) * width
    return Silence(at, int(quiet[order[-1]]) * width, int(quiet[order[-2]]) * width)


def stalled(m: Measured) -> Silence | None:
    """Return a silence that is no part of the cell's rhythm.

    A wave's common prefill also silences everybody, but every wave does it. A stall
    is longer than 0.5 s, than three times the next longest silence, and than 20
    median gaps, with requests in flight.
    """
    if m.span is None:
        return None
    longest = silence(m.columns, m.span)
    if longest is None or longest.length_ns < _STALL_NS:
        return None
    gap_ns = walked(m.columns.chunks.gaps, (50.0,)).percentile_ns(50.0) or 0.0
    usual = max(_STALL_TIMES_NEXT * longest.next_length_ns, _STALL_TIMES_GAP * gap_ns)
    return longest if longest.length_ns > usual and _waiting(m, longest) else None


def stalled_in_decode(m: Measured) -> bool:
    """Return True where a stall makes up more than 3 % of all decoding time.

    A stall while requests wait for their first token lengthens TTFT and leaves the
    TPOT of the cell sound.
    """
    found = stalled(m)
    if found is None:
        return False
    middle = found.from_ns + found.length_ns // 2
    rows = m.columns
    held = rows.counted & (rows.first <= found.from_ns) & (rows.last > middle)
    decoding = int((rows.last - rows.first)[rows.counted].sum())
    return int(held.sum()) * found.length_ns > _STALL_SHARE_OF_DECODE * decoding


def _waiting(m: Measured, quiet: Silence) -> int:
    middle = quiet.from_ns + quiet.length_ns // 2
    return int(((m.columns.sent <= middle) & (m.columns.left > middle)).sum())


def stall(m: Measured) -> Iterator[Finding]:
    """One stall, where there is one."""
    longest = stalled(m)
    if longest is None or m.span is None:
        return
    since = seconds(longest.from_ns - m.span.from_ns)
    yield about(
        m,
        "stall",
        f"for {seconds(longest.length_ns):.2f} s, from {since:.2f} s into the cell, no"
        f" content reached any of {_waiting(m, longest)} requests in flight; the next"
        f" longest silence is {seconds(longest.next_length_ns):.2f} s"
        f"{_first_wave_ttft(m)}",
        "Something held the server once: read its log at that time, repeat the cell,"
        " and do not average this one in.",
    )


def _first_wave_ttft(m: Measured) -> str:
    slots, rows = m.concurrency, m.columns
    if slots is None or rows.n <= slots:
        return ""
    ttft = rows.first - rows.sent
    early, late = rows.timed[:slots], rows.timed[slots:]
    if not early.any() or not late.any():
        return ""
    first = ms(float(ttft[:slots][early].mean()))
    rest = ms(float(ttft[slots:][late].mean()))
    return f" (mean TTFT of the first wave {first:.0f} ms, of the others {rest:.0f} ms)"
