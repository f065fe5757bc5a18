"""A trace in memory: numpy columns, names interned."""

from dataclasses import dataclass, field, fields
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

I64 = npt.NDArray[np.int64]
Bool = npt.NDArray[np.bool_]
#: Numbers that stand for something and are never reckoned with: as narrow as they fit.
Ints = npt.NDArray[np.signedinteger[Any]]

KERNEL, MEMCPY, MEMSET = 0, 1, 2
#: That all of fewer stamps are whole microseconds may be chance, or a test's.
_ENOUGH_STAMPS = 20

#: Name of a device annotation that says where a step begins and ends, followed by its
#: kind; our own export writes it, and it is trusted before anything else.
STEP_MARK = "stepscope step: "


@dataclass(frozen=True, slots=True, kw_only=True)
class Ops:
    """Device operations of one device, ascending by start.

    All columns have one entry an operation. ``correlation`` and ``graph_node`` are
    -1 where the trace has none; ``name`` indexes ``Trace.names``.
    """

    start_ns: I64
    end_ns: I64
    stream: Ints
    correlation: I64
    graph_node: I64
    name: Ints
    kind: Ints

    def __len__(self) -> int:
        return len(self.start_ns)

    def take(self, index: "I64 | Bool | slice") -> "Ops":
        """Return the operations at ``index``."""
        return Ops(
            start_ns=self.start_ns[index],
            end_ns=self.end_ns[index],
            stream=self.stream[index],
            correlation=self.correlation[index],
            graph_node=self.graph_node[index],
            name=self.name[index],
            kind=self.kind[index],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Calls:
    """Host API calls (runtime and driver), ascending by start.

    ``is_graph`` marks graph launches; ``process`` is the operating system's id.
    """

    start_ns: I64
    end_ns: I64
    correlation: I64
    name: Ints
    thread: Ints
    is_graph: Bool
    process: Ints

    def __len__(self) -> int:
        return len(self.start_ns)

    def take(self, index: "I64 | Bool | slice") -> "Calls":
        """Return the rows at ``index``."""
        return Calls(
            start_ns=self.start_ns[index],
            end_ns=self.end_ns[index],
            correlation=self.correlation[index],
            name=self.name[index],
            thread=self.thread[index],
            is_graph=self.is_graph[index],
            process=self.process[index],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class HostSpans:
    """What the host says it does: annotations and operators, ascending by start."""

    start_ns: I64
    end_ns: I64
    name: Ints
    thread: Ints
    is_annotation: Bool

    def __len__(self) -> int:
        return len(self.start_ns)

    def take(self, index: "I64 | Bool | slice") -> "HostSpans":
        """Return the rows at ``index``."""
        return HostSpans(
            start_ns=self.start_ns[index],
            end_ns=self.end_ns[index],
            name=self.name[index],
            thread=self.thread[index],
            is_annotation=self.is_annotation[index],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Boxes:
    """Stretches of device time that stand for more than they show.

    Graph launches recorded as one box each (nsys), or steps that an export marked;
    ``name`` indexes ``Trace.names``.
    """

    start_ns: I64
    end_ns: I64
    name: Ints

    def __len__(self) -> int:
        return len(self.start_ns)

    def take(self, index: "I64 | Bool | slice") -> "Boxes":
        """Return the rows at ``index``."""
        return Boxes(
            start_ns=self.start_ns[index],
            end_ns=self.end_ns[index],
            name=self.name[index],
        )


_Table = TypeVar("_Table", Calls, HostSpans)


def rows_of_each(tables: list[_Table], chosen: list[Bool]) -> list[_Table]:
    """Return the chosen rows of each table, a column at a time.

    Args:
        tables: Of one kind; emptied, so that no more than one column is held twice.
        chosen: For each table which of its rows.
    """
    kind = type(tables[0])
    columns = {c.name: [getattr(t, c.name) for t in tables] for c in fields(kind)}
    tables.clear()
    parts: list[dict[str, Any]] = [{} for _ in chosen]
    for name in list(columns):
        each = columns.pop(name)
        for i, rows in enumerate(chosen):
            parts[i][name] = each[i][rows]
        del each
    return [kind(**part) for part in parts]


def no_calls() -> Calls:
    """Return none."""
    none = np.empty(0, dtype=np.int64)
    return Calls(
        start_ns=none,
        end_ns=none,
        correlation=none,
        name=none,
        thread=none,
        is_graph=none == 0,
        process=none,
    )


def no_spans() -> HostSpans:
    """Return none."""
    none = np.empty(0, dtype=np.int64)
    return HostSpans(
        start_ns=none, end_ns=none, name=none, thread=none, is_annotation=none == 0
    )


def no_boxes() -> Boxes:
    """Return none."""
    none = np.empty(0, dtype=np.int64)
    return Boxes(start_ns=none, end_ns=none, name=none)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """One rank's timeline.

    Attributes:
        path: Where it came from.
        rank: Rank, from the trace itself or its file name; None if neither says.
        names: Interned names.
        ops: Device operations.
        calls: Host API calls.
        spans: Host annotations and operators.
        resolution_ns: Smallest step of the time stamps, 1 or 1000.
        graph_level_records: Graph launches recorded as one box (nsys).
        graph_boxes: Those boxes, where the file has them.
        n_zero_stamps: Device records whose start and end are both 0, or whose end
            comes first.
        world_size: Ranks of the job; None if the trace does not say.
        marked_steps: Steps that our own export marked.
        n_duplicates: Device records that stood in the file twice; one was kept.
        n_clipped: Operations cut where the next of their stream begins.
        sharing: Why other processes may have run on the device; None: none did, as
            far as the trace says.
    """

    path: str
    rank: int | None
    names: tuple[str, ...]
    ops: Ops
    calls: Calls
    spans: HostSpans
    resolution_ns: int
    graph_level_records: int = 0
    n_zero_stamps: int = 0
    world_size: int | None = None
    graph_boxes: Boxes = field(default_factory=no_boxes)
    marked_steps: Boxes = field(default_factory=no_boxes)
    n_duplicates: int = 0
    n_clipped: int = 0
    sharing: str | None = None


def resolution_ns(ops: Ops, *, fractional: bool) -> int:
    """Return the step of the stamps that gaps are made of, 1 or 1000.

    Args:
        ops: Operations of a trace.
        fractional: What to say of too few to tell: that some stamp is no whole
            microsecond.
    """
    if len(ops) >= _ENOUGH_STAMPS:
        return 1 if bool((ops.start_ns % 1000).any()) else 1000
    return 1 if fractional else 1000


def int_column(values: list[int]) -> I64:
    """Return ``values`` as int64."""
    return np.array(values, dtype=np.int64)


def member(values: I64, among: I64) -> Bool:
    """Return which values occur in ``among``.

    Two sorts; numpy's own test hashes both sides, at three times the cost for
    millions of ids.
    """
    if not len(among):
        return np.zeros(len(values), dtype=np.bool_)
    known = np.sort(among)
    at = np.minimum(np.searchsorted(known, values), len(known) - 1)
    hit: Bool = known[at] == values
    return hit
