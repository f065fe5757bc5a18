"""Whether a server that failed its first request is asked again, and when.

A server that has just come up, or a proxy before it, may fail one request and answer
the next. What says that the request itself is wrong, or that nobody listens, is
believed at once.
"""

import msgspec

from stepscope.clock import Clock
from stepscope.load.probe import ProbeResult, probe
from stepscope.load.spec import LoadSpec
from stepscope.units import NS_PER_S

#: Waits between tries.
_WAITS_NS = (NS_PER_S, 2 * NS_PER_S, 4 * NS_PER_S)
#: A server that asks for more patience is not waited for.
_LONGEST_WAIT_NS = 120 * NS_PER_S
_LOST = frozenset({"reset", "closed"})
_PASSING = frozenset({408, 425, 429, 500, 502, 503, 504, 529})


def patient_probe(spec: LoadSpec, clock: Clock) -> ProbeResult:
    """Probe a server, up to four times where its failure may pass.

    Raises:
        RecipeError: The spec is wrong.
    """
    found = probe(spec, clock)
    while (at_ns := next_try_at_ns(found, clock)) is not None:
        clock.sleep_until(at_ns)
        found = after(found, probe(spec, clock))
    return found


def next_try_at_ns(found: ProbeResult, clock: Clock) -> int | None:
    """Return when to ask again; None: this is the answer.

    It is 1, 2 and 4 seconds from now, or what ``Retry-After`` says where that is later.
    """
    if found.n_tries > len(_WAITS_NS):
        return None
    if found.failure not in _LOST and (
        found.failure is None or found.http_status not in _PASSING
    ):
        return None
    asked_ns = _asked_ns(found.retry_after, clock)
    if asked_ns > _LONGEST_WAIT_NS:
        return None
    return clock.now_ns() + max(_WAITS_NS[found.n_tries - 1], asked_ns)


def after(earlier: ProbeResult, found: ProbeResult) -> ProbeResult:
    """Return what a further try showed, with what it came after."""
    return msgspec.structs.replace(
        found,
        n_tries=earlier.n_tries + 1,
        failed_before=f"{earlier.failure}: {earlier.failure_detail}",
    )


def _asked_ns(retry_after: str | None, clock: Clock) -> int:
    """Return the wait that a ``Retry-After`` asks for: seconds, or a date."""
    text = (retry_after or "").strip()
    if text.isascii() and text.isdigit():
        return int(text) * NS_PER_S
    from email.utils import parsedate_to_datetime

    try:
        at_s = parsedate_to_datetime(text).timestamp()
    except (ValueError, OverflowError):
        return 0
    return round(at_s * NS_PER_S) - clock.wall_anchor().unix_ns
