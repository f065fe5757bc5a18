"""One rank that plays out in time, launch by launch, so that every figure is known."""

from dataclasses import dataclass, field

import numpy as np
from tests.timeline.pair import layer

from stepscope.timeline.columns import I64, KERNEL, Calls, Ops, Trace, no_spans

Block = list[tuple[str, float, float]]
_US = 1_000
_LAUNCH, _GRAPH, _WAIT = "cudaLaunchKernel", "cudaGraphLaunch", "cudaEventSynchronize"


@dataclass(slots=True)
class Solo:
    """A host and a device; microseconds. Kernels are those of a real layer."""

    host: float = 5e6
    device: float = 5e6
    block: Block = field(default_factory=layer)
    ops: list[tuple[float, float, str, int, int]] = field(default_factory=list)
    calls: list[tuple[float, float, str]] = field(default_factory=list)

    def call(self, name: str, lasted: float) -> int:
        self.calls.append((self.host, self.host + lasted, name))
        self.host += lasted
        return len(self.calls)

    def op(self, name: str, at: float, lasted: float, launch: int, on: int = 7) -> None:
        self.ops.append((at, at + lasted, name, launch, on))

    def graph(self, n_layers: int, lasted: float = 300.0) -> int:
        """Launch a graph of so many layers."""
        called = self.host
        launch = self.call(_GRAPH, lasted)
        self.device = max(self.device, called + 0.9 * lasted)
        for name, took, gap in self.block * n_layers:
            self.device += gap
            self.op(name, self.device, took, launch)
            self.device += took
        return launch

    def eager(self, n: int, lasted: float = 4.0, word: str = "sampled") -> None:
        """Launch so many kernels one by one."""
        for i in range(n):
            called = self.host
            launch = self.call(_LAUNCH, 5.0)
            at = max(self.device + 1.0, called + 4.0)
            self.op(f"{word}_{i % 19}", at, lasted, launch)
            self.device = at + lasted

    def end_step(self, idle: float = 200.0) -> None:
        """Wait for the device, then prepare the next step."""
        self.call(_WAIT, max(self.device - self.host, 0.0) + 8.0)
        self.host += idle

    def trace(self) -> Trace:
        known: dict[str, int] = {}
        ops = sorted(self.ops, key=lambda op: op[0])

        def numbers(names: list[str]) -> I64:
            return np.array(
                [known.setdefault(n, len(known)) for n in names], dtype=np.int64
            )

        n, m = len(ops), len(self.calls)
        op_names = numbers([op[2] for op in ops])
        call_names = numbers([call[2] for call in self.calls])
        return Trace(
            path="solo.json",
            rank=None,
            names=tuple(known),
            ops=Ops(
                start_ns=_stamps([op[0] for op in ops]),
                end_ns=_stamps([op[1] for op in ops]),
                stream=np.array([op[4] for op in ops], dtype=np.int64),
                correlation=np.array([op[3] for op in ops], dtype=np.int64),
                graph_node=np.full(n, -1),
                name=op_names,
                kind=np.full(n, KERNEL, dtype=np.int8),
            ),
            calls=Calls(
                start_ns=_stamps([call[0] for call in self.calls]),
                end_ns=_stamps([call[1] for call in self.calls]),
                correlation=np.arange(1, m + 1),
                name=call_names,
                thread=np.ones(m, dtype=np.int64),
                is_graph=np.array([c[2] == _GRAPH for c in self.calls], dtype=np.bool_),
                process=np.full(m, 100),
            ),
            spans=no_spans(),
            resolution_ns=1,
        )


def _stamps(values: list[float]) -> I64:
    rounded: I64 = np.rint(np.array(values) * _US).astype(np.int64)
    return rounded
