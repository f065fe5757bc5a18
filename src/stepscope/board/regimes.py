"""From verdicts at single concurrencies to regimes: neighbours of equal status."""

from collections.abc import Sequence
from dataclasses import dataclass

from stepscope.board.opinion import Verdict, told_once
from stepscope.board.records import BoardEntry, Evidence, Scope


@dataclass(frozen=True, slots=True)
class Point:
    """A verdict at one concurrency, or at one rate of an open loop.

    Attributes:
        concurrency: None for an open loop or no cell at all.
        request_rate: Arrivals a second; None for a closed loop or arrivals of no one
            rate.
        verdict: What holds there.
        void: True when every cell there is void.
    """

    concurrency: int | None
    verdict: Verdict
    void: bool = False
    request_rate: float | None = None

    @property
    def ordered(self) -> str | None:
        """What orders it among others: its concurrency or rate; None: nothing."""
        if self.concurrency is not None:
            return "concurrency"
        return None if self.request_rate is None else "rate"


@dataclass(frozen=True, slots=True)
class Regime:
    """A board entry with the clauses that may be said of it.

    ``void`` marks what was not judged because every cell there is void.
    """

    entry: BoardEntry
    headlines: tuple[str, ...]
    void: bool = False


def regimes(
    hypothesis: str, configuration: str, points: Sequence[Point]
) -> tuple[Regime, ...]:
    """Merge neighbouring points of equal status.

    Args:
        hypothesis: Id.
        configuration: Whose points they are.
        points: Ascending in concurrency, then in rate; at least one.

    Returns:
        Entries that together cover all points, ascending.
    """
    runs: list[list[Point]] = []
    for point in points:
        same = runs and _kind(runs[-1][-1]) == _kind(point)
        kind = point.ordered
        if same and kind is not None and runs[-1][-1].ordered == kind:
            runs[-1].append(point)
        else:
            runs.append([point])
    return tuple(_regime(hypothesis, configuration, run) for run in runs)


def _kind(point: Point) -> tuple[str, bool]:
    """Points that could not be judged for being void are apart from the others."""
    return point.verdict.status, point.void and point.verdict.status == "untestable"


def _regime(hypothesis: str, configuration: str, run: Sequence[Point]) -> Regime:
    verdicts = [point.verdict for point in run]
    status = verdicts[0].status
    shares = [v.share_pct for v in verdicts if v.share_pct is not None]
    share = None
    if shares:
        share = max(shares) if status == "ruled-out" else min(shares)
    entry = BoardEntry(
        hypothesis=hypothesis,
        scope=Scope(
            configuration=configuration,
            concurrency_from=run[0].concurrency,
            concurrency_to=run[-1].concurrency,
            request_rate_from=run[0].request_rate,
            request_rate_to=run[-1].request_rate,
        ),
        status=status,
        share_of_step_pct=None if share is None else round(share, 1),
        evidence=_extremes([e for v in verdicts for e in v.evidence]),
        would_decide=told_once(v.would_decide for v in verdicts if v.would_decide),
    )
    heads = tuple(dict.fromkeys(h for v in verdicts for h in v.headlines))
    # "memory bandwidth" says no more than "memory bandwidth (experts read)".
    heads = tuple(h for h in heads if not any(o != h and h in o for o in heads))
    return Regime(entry, heads, _kind(run[0])[1])


def _extremes(evidence: Sequence[Evidence]) -> tuple[Evidence, ...]:
    """Keep of each quantity the smallest and the largest value, in order.

    A regime of ten cells would show each measurement ten times; what can contradict
    the verdict is at its ends.
    """
    by_quantity: dict[tuple[str, str], list[Evidence]] = {}
    for item in evidence:
        by_quantity.setdefault((item.quantity, item.unit), []).append(item)
    kept: list[Evidence] = []
    for items in by_quantity.values():
        numbers = [i for i in items if isinstance(i.value, (int, float))]
        if len(numbers) == len(items):
            low = min(numbers, key=_value)
            high = max(numbers, key=_value)
            kept.extend([low] if _value(low) == _value(high) else [low, high])
        else:
            kept.extend({(i.value, i.reasoning): i for i in reversed(items)}.values())
    return tuple(kept)


def _value(item: Evidence) -> float:
    assert isinstance(item.value, (int, float))
    return float(item.value)
