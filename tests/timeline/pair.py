"""Ranks of a data-parallel decode that share its experts, made of a real step.

Kernels and their lengths are those of a real decode graph; the collectives around the
experts, the all-reduce on the host before each launch and all waiting are played out
in time, so that who was late, where and by how much is known.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from tests.timeline.planting import DECODE, real, replay_of_ops

from stepscope.timeline.columns import I64, Calls, HostSpans, Ops, Trace

GATHER = "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
SCATTER = (
    "ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
)
BROADCAST = "ncclDevKernel_Broadcast_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
NOTE = "execute_context_0(0)_generation_8(8)"
GLOO = "gloo:all_reduce"
_LAUNCH, _GRAPH, _WAIT = "cudaLaunchKernel", "cudaGraphLaunch", "cudaEventSynchronize"
#: Kernels of one layer of the real graph, and those after which ranks exchange.
_LAYER, _ROUTED, _SUMMED = 19, 11, 17
_US = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What happens; every function takes (rank, step).

    ``host_us`` passes before the all-reduce on the host, ``launch_us`` inside the
    graph launch; ``attention`` and ``experts`` stretch kernels, ``tail_us`` is added
    to the sampling after the graph; ``rooted`` adds so many broadcasts from rank 0
    to each layer; ``ahead`` lets the host prepare the next step while the device runs
    one. Rank r reads its clock ``offset_us[r]`` ahead and its trace begins with step
    ``first[r]``.
    """

    n_ranks: int = 2
    n_steps: int = 24
    n_layers: int = 10
    host_us: Callable[[int, int], float] = lambda _r, _k: 900.0
    launch_us: Callable[[int, int], float] = lambda _r, _k: 500.0
    attention: Callable[[int, int], float] = lambda _r, _k: 1.0
    experts: Callable[[int, int], float] = lambda _r, _k: 1.0
    tail_us: Callable[[int, int], float] = lambda _r, _k: 0.0
    transfer_us: float = 12.0
    gloo: bool = True
    rooted: int = 0
    ahead: bool = False
    noted: bool = True
    offset_us: tuple[float, ...] = (0.0, 0.0)
    first: tuple[int, ...] = (0, 0)
    seed: int = 3


@dataclass(slots=True)
class _Rank:
    host: float = 0.0
    device: float = 0.0
    before: float = 0.0
    next_id: int = 1
    ops: list[tuple[float, float, str, int, int]] = field(default_factory=list)
    calls: list[tuple[float, float, str, int]] = field(default_factory=list)
    spans: list[tuple[float, float, str, int]] = field(default_factory=list)

    def call(self, name: str, lasted: float) -> int:
        self.next_id += 1
        self.calls.append((self.host, self.host + lasted, name, self.next_id))
        self.host += lasted
        return self.next_id

    def op(self, name: str, at: float, lasted: float, launch: int, step: int) -> None:
        self.ops.append((at, at + lasted, name, launch, step))
        self.device = at + lasted

    def eager(self, name: str, lasted: float, step: int) -> None:
        called = self.host
        launch = self.call(_LAUNCH, 5.0)
        self.op(name, max(self.device + 1.0, called + 4.0), lasted, launch, step)


def layer() -> list[tuple[str, float, float]]:
    """Return name, length and gap before of each kernel of a real layer, in us."""
    trace = real(DECODE)
    mine = np.flatnonzero(replay_of_ops(trace) == 5)[: _LAYER * 2]
    ops, second = trace.ops, mine[_LAYER:]
    gaps = ops.start_ns[second] - ops.end_ns[second - 1]
    return [
        (trace.names[ops.name[i]], float(ops.end_ns[i] - ops.start_ns[i]) / _US,
         max(float(gap), 100.0) / _US)
        for i, gap in zip(second, gaps, strict=True)
    ]  # fmt: skip


def traces(plan: Plan) -> list[Trace]:
    """Play a plan out and return each rank's trace."""
    rng = np.random.default_rng(plan.seed)
    ranks = [_Rank(host=5e6, device=5e6) for _ in range(plan.n_ranks)]
    block = layer()
    for step in range(plan.n_steps):
        begun = [rank.host for rank in ranks]
        for r, rank in enumerate(ranks):
            rank.host += plan.host_us(r, step) * rng.normal(1, 0.02)
            for _ in range(4):
                rank.eager("vectorized_elementwise_kernel", 1.5, step)
        if plan.gloo:
            _all_reduce(ranks)
        launches = []
        for r, rank in enumerate(ranks):
            called, lasted = rank.host, plan.launch_us(r, step) * rng.normal(1, 0.01)
            launches.append(rank.call(_GRAPH, lasted))
            rank.device = max(rank.device, called + 0.9 * lasted)
        for _ in range(plan.n_layers):
            _one_layer(plan, ranks, launches, (block, step), rng)
        for r, rank in enumerate(ranks):
            for lasted in (150.0 + plan.tail_us(r, step), 40.0, 9.0):
                rank.eager("cunn_SoftMaxForward", lasted, step)
            if plan.noted:
                rank.spans.append((begun[r], rank.host, NOTE, 1))
            until = rank.before if plan.ahead else rank.device
            rank.call(_WAIT, max(until - rank.host, 0.0) + 8.0)
            rank.before = rank.device
    return [_trace(plan, r, rank) for r, rank in enumerate(ranks)]


def _all_reduce(ranks: list[_Rank]) -> None:
    done = max(rank.host for rank in ranks) + 120.0
    for i, rank in enumerate(ranks):
        rank.spans.append((rank.host, done + i, GLOO, 2))
        rank.host = done + 20.0


def _one_layer(
    plan: Plan,
    ranks: list[_Rank],
    launches: list[int],
    what: tuple[list[tuple[str, float, float]], int],
    rng: np.random.Generator,
) -> None:
    block, step = what
    for _ in range(plan.rooted):
        arrived = [rank.device + 0.6 for rank in ranks]
        for r, rank in enumerate(ranks):
            # The root leaves as soon as its data lie with the others.
            end = max(arrived[0], arrived[r]) + 6.0
            rank.op(BROADCAST, arrived[r], end - arrived[r], launches[r], step)
    for j, (name, lasted, gap) in enumerate(block):
        for r, rank in enumerate(ranks):
            by = plan.experts if _ROUTED < j <= _SUMMED else plan.attention
            took = lasted * by(r, step) * rng.normal(1, 0.01)
            rank.op(name, rank.device + gap, took, launches[r], step)
        if j not in (_ROUTED, _SUMMED):
            continue
        word = GATHER if j == _ROUTED else SCATTER
        arrived = [rank.device + 0.6 for rank in ranks]
        done = max(arrived) + plan.transfer_us * rng.normal(1, 0.03)
        for r, rank in enumerate(ranks):
            # Who comes last finds the others' data there already.
            end = done - (1.5 if arrived[r] == max(arrived) else 0) + rng.normal(0, 0.3)
            rank.op(word, arrived[r], end - arrived[r], launches[r], step)


def _trace(plan: Plan, r: int, rank: _Rank) -> Trace:
    known: dict[str, int] = {}
    off = round(plan.offset_us[r] * _US) if r < len(plan.offset_us) else 0
    first = plan.first[r] if r < len(plan.first) else 0

    def column(values: list[float]) -> I64:
        stamps: I64 = np.rint(np.array(values) * _US).astype(np.int64) + off
        return stamps

    def number(name: str) -> int:
        return known.setdefault(name, len(known))

    ops = sorted(op for op in rank.ops if op[4] >= first)
    kept = {op[3] for op in ops}
    calls = [c for c in rank.calls if c[3] in kept or c[2] == _WAIT]
    spans = sorted(s for s in rank.spans if s[1] > calls[0][0])
    n, m, s = len(ops), len(calls), len(spans)
    op_name = np.array([number(o[2]) for o in ops], dtype=np.int64)
    call_name = np.array([number(c[2]) for c in calls], dtype=np.int64)
    span_name = np.array([number(x[2]) for x in spans], dtype=np.int64)
    return Trace(
        path=f"rank{r}.json",
        rank=r,
        names=tuple(known),
        ops=Ops(
            start_ns=column([o[0] for o in ops]),
            end_ns=column([o[1] for o in ops]),
            stream=np.full(n, 7),
            correlation=np.array([o[3] for o in ops], dtype=np.int64),
            graph_node=np.full(n, -1),
            name=op_name,
            kind=np.zeros(n, dtype=np.int8),
        ),
        calls=Calls(
            start_ns=column([c[0] for c in calls]),
            end_ns=column([c[1] for c in calls]),
            correlation=np.array([c[3] for c in calls], dtype=np.int64),
            name=call_name,
            thread=np.ones(m, dtype=np.int64),
            is_graph=np.array([c[2] == _GRAPH for c in calls], dtype=np.bool_),
            process=np.full(m, 100 + r),
        ),
        spans=HostSpans(
            start_ns=column([x[0] for x in spans]),
            end_ns=column([x[1] for x in spans]),
            name=span_name,
            thread=np.array([x[3] for x in spans], dtype=np.int64),
            is_annotation=np.ones(s, dtype=np.bool_),
        ),
        resolution_ns=1,
    )
