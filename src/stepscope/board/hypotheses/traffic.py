"""The DRAM counter, and the traffic that the bytes of steps come to beside it."""

from stepscope.analysis.across.points import tokens_a_step
from stepscope.analysis.floor import LEAST_MOVED
from stepscope.board.hypotheses.device import impossible
from stepscope.board.hypotheses.floors import decoding
from stepscope.board.opinion import seen
from stepscope.board.records import Evidence
from stepscope.board.view import CellView

#: Counter and floor agree within this; a counter's own scatter is about a point.
_AGREE_POINTS = 3.0


def sampled_pct(view: CellView) -> float | None:
    """Return the DRAM counter as it was sampled, percent of its peak."""
    telemetry = view.telemetry
    if telemetry is None:
        return None
    value = telemetry.dram_bw_pct_median
    return telemetry.dram_bw_pct if value is None else value


def counter(view: CellView) -> tuple[float, Evidence] | None:
    """Return the DRAM counter where it can be one."""
    value = sampled_pct(view)
    if value is None or impossible(view, "DRAM bandwidth counter", value):
        return None
    return value, seen(
        view,
        "DRAM bandwidth counter",
        value,
        "% of peak",
        "GPM over the telemetry window, prefill included, of the GPU that reads most;"
        " real traffic reaches about nine tenths of peak",
    )


def traffic_pct(view: CellView) -> float | None:
    """Return the bytes of a step over TPOT, percent of the data sheet's bandwidth."""
    floor, result = view.floor, view.result
    if floor is None or result is None:
        return None
    tpot = (
        result.tpot_ms.mean if result.server_tpot_ms is None else result.server_tpot_ms
    )
    return 100 * floor.floor_ms / (tpot * tokens_a_step(result)) if tpot else None


def not_moved(view: CellView) -> Evidence | None:
    """Return the counter where it reads less than the floor's bytes come to.

    Over the window as a whole: bytes of a step over TPOT, which holds the prefill of
    others, for the time in which somebody decoded.
    """
    read_as, traffic = counter(view), traffic_pct(view)
    if read_as is None or traffic is None:
        return None
    # TPOT holds what prefill adds, so that nothing is left to take off there.
    least = LEAST_MOVED * traffic * (decoding(view, None) or 0.0)
    if read_as[0] >= least:
        return None
    why = (
        f"the floor's bytes come to {traffic:.3g} % of peak over TPOT, so at least"
        f" {least:.3g} % was to be read: they were not moved, and coverage, shapes or"
        " types of weights are not as taken"
    )
    return seen(view, "DRAM counter below the floor", read_as[0], "% of peak", why)


def agreement(view: CellView) -> Evidence | None:
    """Return the traffic that bytes and TPOT come to, beside what the counter reads."""
    read_as, traffic, result = counter(view), traffic_pct(view), view.result
    if read_as is None or traffic is None or result is None:
        return None
    read = read_as[0]
    apart = read - traffic
    words = f"the DRAM counter reads {read:.3g} % (median), {apart:+.1f} points: "
    if abs(apart) <= _AGREE_POINTS:
        words += "two measurements that know nothing of each other agree"
    elif apart > 0:
        words += (
            "more is read than decode steps need; prefill that shares steps reads too,"
            " and lengthens TPOT"
        )
    else:
        words += (
            "less is read than the floor says: much of the window is no decode step,"
            " or coverage or shapes are not as assumed"
        )
    return seen(
        view,
        f"bytes of a step over TPOT, at concurrency {result.concurrency}",
        traffic,
        "% of peak",
        words,
    )
