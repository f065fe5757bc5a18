"""A cell's TPOT beside the server's own: what of it was lost on the way.

Source: ``stepscope.run.server``, which says what each engine counts. vLLM's figure is
the mean over requests, and so is ours; where an engine counts tokens, ours is weighted
by tokens for this. Assumes: no other load during the cell. The counts must agree, or
nothing is said.
"""

from dataclasses import dataclass
from typing import Literal

import msgspec

from stepscope.clock import Clock
from stepscope.load.scrape import scrape
from stepscope.load.spec import LoadSpec
from stepscope.run.samples import MetricsSnapshot
from stepscope.run.server import ServerSide, n_beside, server_side
from stepscope.units import NS_PER_S

#: A request is counted when it is over for the server, which may be after its last
#: byte is here.
_TRIES, _PAUSE_NS = 5, NS_PER_S // 5
RESTARTED = "its counters fell: it was restarted meanwhile"
_NO_METRICS = (
    "it says nothing at /metrics (vLLM does unless --disable-log-stats; SGLang with"
    " --enable-metrics, llama-server with --metrics)"
)


@dataclass(frozen=True, slots=True)
class Decoded:
    """What a client saw of the time between tokens, over its successful requests.

    Attributes:
        n_ok: Requests that succeeded.
        n_single: Those whose answer had no second token: they have no TPOT.
        n_timed: Those with a TPOT.
        n_later: Tokens after the first, of those.
        tpot_ms: Mean TPOT over requests; None: none has one.
        tpot_by_token_ms: All their time after the first token over ``n_later``.
        n_later_each: Tokens after the first in an answer, harmonic mean: a delay of
            the last one moves mean TPOT by its part of it.
    """

    n_ok: int
    n_single: int
    n_timed: int
    n_later: int
    tpot_ms: float | None
    tpot_by_token_ms: float | None
    n_later_each: float | None


class ServerTpot(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The server's own TPOT over a cell, and the client's beside it.

    Attributes:
        tpot_ms: Mean over what the server counted; None: it is not known.
        tpot_error_pct: By how much the client's is above it.
        client_tpot_ms: The client's mean, weighted as the server's.
        weighted_by: What both means are over.
        n_requests: Requests in the server's metric, where it counts requests.
        n_tokens: Tokens after the first in it, where it counts those.
        metric: Its name.
        not_held: Why ``tpot_error_pct`` is None; None where it is not.
    """

    tpot_ms: float | None = None
    tpot_error_pct: float | None = None
    client_tpot_ms: float | None = None
    weighted_by: Literal["request", "token"] | None = None
    n_requests: int | None = None
    n_tokens: int | None = None
    metric: str | None = None
    not_held: str | None = None


def server_tpot(
    before: MetricsSnapshot | None, after: MetricsSnapshot | None, mine: Decoded
) -> ServerTpot:
    """Return what two scrapes around a cell say of TPOT, held against the client's."""
    if before is None or after is None:
        return ServerTpot(not_held=_silent(before, after))
    found = server_side(before, after, mine.n_ok, mine.n_single)
    if found.restarted:
        return ServerTpot(not_held=RESTARTED)
    if not mine.n_timed:
        return ServerTpot(not_held="no answer here has a second token")
    if not found.tpot_ms:
        return ServerTpot(not_held="its /metrics counted no time between tokens")
    by_token = found.tpot_per_token
    client_ms = mine.tpot_by_token_ms if by_token else mine.tpot_ms
    why = _why_not_held(found, mine)
    return ServerTpot(
        tpot_ms=found.tpot_ms,
        tpot_error_pct=(
            None
            if client_ms is None or why is not None
            else 100 * (client_ms / found.tpot_ms - 1)
        ),
        client_tpot_ms=client_ms,
        weighted_by="token" if by_token else "request",
        n_requests=found.n_requests,
        n_tokens=found.n_tokens,
        metric=found.tpot_metric,
        not_held=why,
    )


def settled(
    spec: LoadSpec,
    before: MetricsSnapshot | None,
    after: MetricsSnapshot | None,
    mine: Decoded,
    clock: Clock,
) -> MetricsSnapshot | None:
    """Return ``after``, or a later scrape where requests were not yet counted in it.

    Asks again for a second at most.
    """
    for _ in range(_TRIES):
        if before is None or after is None:
            break
        found = server_side(before, after, mine.n_ok, mine.n_single)
        if not _is_short(found, mine):
            break
        clock.sleep_until(clock.now_ns() + _PAUSE_NS)
        after = scrape(spec, clock)
    return after


def _is_short(found: ServerSide, mine: Decoded) -> bool:
    """Return whether the server counted less than came here; False: it counts none."""
    if found.n_requests is not None:
        return found.n_requests < mine.n_ok
    if found.n_tokens is not None:
        return found.n_tokens < mine.n_later
    return mine.n_timed > 0 and found.generated_tokens is not None


def _silent(before: MetricsSnapshot | None, after: MetricsSnapshot | None) -> str:
    if before is None and after is None:
        return _NO_METRICS
    when = "after" if before is None else "before"
    return f"its /metrics answered only {when} the load"


def _why_not_held(found: ServerSide, mine: Decoded) -> str | None:
    """Return why two means are not of the same requests; None: they are."""
    n_unknown = mine.n_ok - mine.n_timed - mine.n_single
    if n_beside(mine.n_ok, mine.n_ok - n_unknown):
        return f"{n_unknown} of {mine.n_ok} answers here have no token count or no text"
    what, counted, known = "requests", found.n_requests, mine.n_ok
    if counted is None:
        what, counted, known = "tokens after the first", found.n_tokens, mine.n_later
    if counted is None or not n_beside(counted, known):
        return None
    return f"it counted {counted:,} {what} meanwhile, and {known:,} came here"
