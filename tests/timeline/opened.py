"""What Perfetto makes of a trace-event file, by the rules of its importer.

Slices of one row are a stack: one that begins while another is open must end with it
or before, or it is dropped (until June 2026) or moved aside. An arrow binds to the
innermost slice that is open on its row when it comes, so order counts. A thread id of
0 is taken for the process id, text for a process id is the process' name, and both
ids of an arrow are those of the whole file.
"""

import gzip
import json
from dataclasses import dataclass, field
from typing import Any

Event = dict[str, Any]
_LAST = 1 << 62


@dataclass(slots=True)
class Opened:
    """Rows in the order in which they are shown, and what went wrong.

    ``rows`` has the slices of each row, ``(start, end, depth, event)`` in
    nanoseconds; ``arrows`` the slices at both ends of each; ``lost`` what is not
    shown, or not where it belongs.
    """

    rows: dict[tuple[str, str], list[tuple[int, int, int, Event]]]
    arrows: list[tuple[Event, Event]] = field(default_factory=list)
    lost: list[Event] = field(default_factory=list)


def opened(data: bytes) -> Opened:
    """Return what is on the screen when ``data`` is opened."""
    events = json.loads(gzip.decompress(data))["traceEvents"]
    # Stable: of one instant the order is the file's, which names come after.
    events.sort(key=lambda event: _ns(event["ts"]) if "ts" in event else _LAST)
    result = Opened({})
    found: dict[tuple[Any, int], list[tuple[int, int, int, Event]]] = {}
    open_: dict[tuple[Any, int], list[Event]] = {}
    begun: dict[object, Event] = {}
    for event in events:
        stack = open_.setdefault(_row(event), [])
        if event["ph"] == "X":
            start, end = _ns(event["ts"]), _end(event)
            # Two instants at one time do not end each other.
            while stack and (
                _end(stack[-1]) < start
                or (_end(stack[-1]) == start and stack[-1]["dur"] + event["dur"] > 0)
            ):
                stack.pop()
            if any(end > _end(other) for other in stack):
                result.lost.append(event)
                continue
            found.setdefault(_row(event), []).append((start, end, len(stack), event))
            stack.append(event)
        elif event["ph"] != "M":
            _arrow(event, stack, begun, result)
    _name_rows(events, found, result)
    return result


def _arrow(
    event: Event, stack: list[Event], begun: dict[object, Event], result: Opened
) -> None:
    known = event["id"] in begun
    if not stack or known == (event["ph"] == "s"):
        result.lost.append(event)
    elif known:
        result.arrows.append((begun[event["id"]], stack[-1]))
    else:
        begun[event["id"]] = stack[-1]


def _name_rows(
    events: list[Event],
    found: dict[tuple[Any, int], list[tuple[int, int, int, Event]]],
    result: Opened,
) -> None:
    names: dict[object, str] = {}
    order: dict[object, int] = {}
    for event in events:
        if isinstance(event["pid"], str):
            names[event["pid"]] = event["pid"]
        if event["name"] == "process_name":
            names[event["pid"]] = event["args"]["name"]
        elif event["name"] == "process_sort_index":
            order[event["pid"]] = event["args"]["sort_index"]
        elif event["name"] == "thread_name":
            names[_row(event)] = event["args"]["name"]
    for row in sorted(found, key=lambda r: (order.get(r[0], 0), str(r[0]), r[1])):
        shown = names.get(row[0], ""), names.get(row, "")
        assert shown not in result.rows, f"two rows look alike: {shown}"
        result.rows[shown] = found[row]


def _end(event: Event) -> int:
    return _ns(event["ts"]) + _ns(event["dur"])


def _row(event: Event) -> tuple[Any, int]:
    tid = event.get("tid", 0)
    # Text becomes a number that nobody knows beforehand.
    assert isinstance(tid, int)
    assert 0 <= tid < 1 << 32
    if tid == 0 and event["pid"] != 0:
        return event["pid"], event["pid"] if isinstance(event["pid"], int) else -1
    return event["pid"], tid


def _ns(microseconds: float) -> int:
    """Return what a float64 of microseconds is in nanoseconds."""
    return round(microseconds * 1000.0)
