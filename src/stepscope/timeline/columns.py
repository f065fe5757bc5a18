"""A trace in memory: numpy columns, names interned."""

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

I64 = npt.NDArray[np.int64]
Bool = npt.NDArray[np.bool_]

KERNEL, MEMCPY, MEMSET = 0, 1, 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Ops:
    """Device operations of one device, ascending by start.

    All columns have one entry an operation. ``correlation`` and ``graph_node`` are
    -1 where the trace has none; ``name`` indexes ``Trace.names``.
    """

    start_ns: I64
    end_ns: I64
    stream: I64
    correlation: I64
    graph_node: I64
    name: I64
    kind: I64

    def __len__(self) -> int:
        return len(self.start_ns)

    def take(self, index: I64 | Bool) -> "Ops":
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

    ``is_graph`` marks graph launches.
    """

    start_ns: I64
    end_ns: I64
    correlation: I64
    name: I64
    thread: I64
    is_graph: Bool

    def __len__(self) -> int:
        return len(self.start_ns)


@dataclass(frozen=True, slots=True, kw_only=True)
class HostSpans:
    """What the host says it does: annotations and operators, ascending by start."""

    start_ns: I64
    end_ns: I64
    name: I64
    thread: I64
    is_annotation: Bool

    def __len__(self) -> int:
        return len(self.start_ns)


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
        n_zero_stamps: Device records whose start and end are both 0.
        world_size: Ranks of the job; None if the trace does not say.
        notes: Defect codes that only the loader can see.
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
    notes: tuple[str, ...] = field(default=())


def int_column(values: list[int]) -> I64:
    """Return ``values`` as int64."""
    return np.array(values, dtype=np.int64)
