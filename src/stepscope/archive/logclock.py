"""Places a server log on the run's timeline.

Many servers stamp their lines to the second, without a year and without a zone. The
zone is found, not assumed: of all offsets from UTC in steps of 15 minutes the one
counts for which the log's lines lie inside the time in which the server ran. Where
several fit, nothing is placed and a finding says so.
"""

import datetime as dt

import msgspec

from stepscope.findings import Finding
from stepscope.run.serverlog import LogEvent, ServerLog
from stepscope.units import NS_PER_S

NOT_PLACED = "log-not-placed"

_STEP_S = 15 * 60
_MOST_EAST_S = 14 * 3600
_MOST_WEST_S = 12 * 3600
#: Stamps below this count from the start of some year; others from the epoch.
_A_YEAR_S = 400 * 86_400
_STAMP_ERROR_NS = NS_PER_S
#: What the wall clock may have been slewed by between its anchor and the stamps.
_SLACK_NS = 2 * NS_PER_S
#: A server is found ready at most this long after it says so.
_FOUND_READY_NS = 120 * NS_PER_S


def log_offset_ns(
    stamps_s: list[float],
    not_before_ns: int,
    not_after_ns: int,
    ready: tuple[float, int] | None = None,
) -> int | None:
    """Find what turns the log's clock into the Unix clock.

    Args:
        stamps_s: The log's stamps, seconds since the start of a year as if it were
            UTC, or since the epoch.
        not_before_ns: Unix instant before which no line can have been written.
        not_after_ns: The same for after.
        ready: Stamp of the line that says ready, and the Unix instant at which the
            server was found ready; asked only where the bounds leave several offsets.

    Returns:
        Nanoseconds to add to a stamp; None where no offset fits, or several do.

    Assumes:
        A stamp is the start of the second in which its line was written, and offsets
        from UTC are multiples of 15 minutes.
    """
    if not stamps_s or not_after_ns <= not_before_ns:
        return None
    first, last = min(stamps_s), max(stamps_s)
    fits = [
        offset_s
        for offset_s in possible_offsets_s(stamps_s, not_before_ns, not_after_ns)
        # The line was written in [stamp, stamp + 1 s).
        if (first + offset_s + 1) * NS_PER_S > not_before_ns - _SLACK_NS
        and (last + offset_s) * NS_PER_S <= not_after_ns + _SLACK_NS
    ]
    if len(fits) > 1 and ready is not None:
        stamp_s, ready_ns = ready
        late_ns = {fit: ready_ns - round((stamp_s + fit) * NS_PER_S) for fit in fits}
        fits = [fit for fit in fits if -_SLACK_NS <= late_ns[fit] <= _FOUND_READY_NS]
    return fits[0] * NS_PER_S if len(fits) == 1 else None


def possible_offsets_s(
    stamps_s: list[float], not_before_ns: int, not_after_ns: int
) -> list[int]:
    """Return every offset, seconds, that a log's clock may have to the Unix clock."""
    yearless = max(stamps_s) < _A_YEAR_S
    years = _year_starts_s(not_before_ns, not_after_ns) if yearless else [0]
    zones = range(-_MOST_EAST_S, _MOST_WEST_S + 1, _STEP_S)
    return [year + zone for year in years for zone in zones]


def _year_starts_s(not_before_ns: int, not_after_ns: int) -> list[int]:
    """Return the starts, Unix seconds, of the years that the bounds touch anywhere."""
    years = {
        dt.datetime.fromtimestamp(ns / NS_PER_S + shift, dt.UTC).year
        for ns in (not_before_ns, not_after_ns)
        for shift in (-_MOST_WEST_S, _MOST_EAST_S)
    }
    return [
        round(dt.datetime(year, 1, 1, tzinfo=dt.UTC).timestamp())
        for year in sorted(years)
    ]


def placed(log: ServerLog, offset_ns: int) -> ServerLog:
    """Return the log with its stamped events on the timeline.

    Args:
        log: The parsed log.
        offset_ns: What to add to the log's clock to get instants of the timeline.
    """
    return msgspec.structs.replace(
        log, events=tuple(_placed(event, offset_ns) for event in log.events)
    )


def _placed(event: LogEvent, offset_ns: int) -> LogEvent:
    if event.at_s is None:
        return event
    whole = event.at_s == int(event.at_s)
    return msgspec.structs.replace(
        event,
        at_ns=round(event.at_s * NS_PER_S) + offset_ns,
        error_ns=_STAMP_ERROR_NS if whole else NS_PER_S // 1000,
    )


def stamps_of(log: ServerLog) -> list[float]:
    """Return the log's stamps in seconds, of the events that have one."""
    return [event.at_s for event in log.events if event.at_s is not None]


def unplaced(launch: str) -> Finding:
    """Return the finding for a log whose zone could not be told."""
    return Finding(
        code=NOT_PLACED,
        severity="info",
        message="The server log's clock has no zone, and none or several of the"
        " possible ones put its lines inside the time in which the server ran.",
        hint="Its lines are used without their time. Run the server with TZ=UTC and"
        " keep the telemetry of the whole launch.",
        launch=launch,
    )
