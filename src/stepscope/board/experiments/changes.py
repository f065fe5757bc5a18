"""The changes that tell causes apart: one place to add one.

A change owns settings. Two configurations are an experiment exactly where all settings
in which they differ belong to one change, and their logs resolved nothing else to
different values. What a change says of causes is in ``laws``.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass

from stepscope.board.experiments.settings import (
    Settings,
    differing,
    resolved_differently,
    settings_of,
)
from stepscope.recipe.schema import cpu_set
from stepscope.run.run import Launch, Run


@dataclass(frozen=True, slots=True)
class Setup:
    """One side of a comparison: its settings and what its log resolved."""

    settings: Settings
    resolved: dict[str, str | int | float | bool | None]
    n_cpus: int | None

    def number(self, *names: str) -> float | None:
        """Return the first of these settings, or resolved values, that is a number."""
        for name in names:
            for value in (
                self.settings.get(name),
                self.resolved.get(name.replace("-", "_")),
            ):
                try:
                    return float(str(value))
                except ValueError:
                    continue
        return None


@dataclass(frozen=True, slots=True)
class Change:
    """A change of a server.

    Attributes:
        id: Its name.
        title: What it changes.
        owns: Settings that belong to it.
        resolves: What a log resolves differently because of it.
        burden: A number that is larger on the side expected to be the slower one;
            None where a side does not tell.
        moves: What it moves besides, or how it acts.
        blind: What the pair can not see.
    """

    id: str
    title: str
    owns: frozenset[str]
    burden: Callable[[Setup], float | None]
    moves: str
    blind: str
    resolves: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Difference:
    """Two launches that differ by one change.

    ``amounts`` are the change's burdens, the lighter side first; ``swapped`` is True
    where the first launch given is the heavier side.
    """

    change: Change
    amounts: tuple[float, float]
    swapped: bool


def _eager(setup: Setup) -> float | None:
    mode = setup.resolved.get("cudagraph_mode")
    if mode is not None:
        return float(mode == "NONE")
    text = setup.settings.get("compilation-config")
    try:
        asked = json.loads(text) if text else {}
    except ValueError:
        return None
    asked = asked if isinstance(asked, dict) else {}
    off = asked.get("cudagraph_mode") == "NONE"
    switches = ("enforce-eager", "disable-cuda-graph")
    return float(off or any(setup.settings.get(s) == "true" for s in switches))


def _less_cpu(setup: Setup) -> float | None:
    given = setup.settings.get("cpus")
    if given is None:
        return None if setup.n_cpus is None else -float(setup.n_cpus)
    return -float(len(cpu_set(given) or ())) or None


def _fewer_threads(setup: Setup) -> float | None:
    bound = setup.settings.get("env:VLLM_CPU_OMP_THREADS_BIND")
    if bound is not None:
        named = cpu_set(bound)
        return None if named is None else -float(len(named))
    n = setup.number("threads", "env:OMP_NUM_THREADS")
    return None if n is None else -n


def _fewer_frontends(setup: Setup) -> float | None:
    return -(setup.number("api-server-count") or 1.0)


def _context(setup: Setup) -> float | None:
    return setup.number("max-model-len", "context-length", "slot-context", "ctx-size")


def _tensor_ranks(setup: Setup) -> float | None:
    return setup.number(*_TENSOR, "tensor_parallel_size") or 1.0


_OFFLOAD = ("cpu-offload-gb", "kv-offloading-size", "swap-space")


def _offloads(setup: Setup) -> float | None:
    if "kv-transfer-config" in setup.settings:
        return 1.0
    return float(any((setup.number(name) or 0.0) > 0 for name in _OFFLOAD))


def _waits(setup: Setup) -> float | None:
    told = setup.resolved.get("async_scheduling")
    if isinstance(told, bool):
        return float(not told)
    on = setup.settings.get("async-scheduling") == "true"
    off = setup.settings.get("no-async-scheduling") == "true"
    return None if on == off else float(off)


_TENSOR = ("tensor-parallel-size", "tp-size", "tp")
_DATA = ("data-parallel-size", "dp-size", "dp")

CHANGES: tuple[Change, ...] = (
    Change(
        id="graphs",
        title="graphs against eager",
        owns=frozenset(
            {"enforce-eager", "compilation-config", "disable-cuda-graph",
             "cuda-graph-max-bs", "cuda-graph-bs"}
        ),
        resolves=frozenset(
            {"enforce_eager", "cudagraph_mode", "compilation_mode",
             "max_cudagraph_capture_size", "n_cudagraph_sizes",
             "cudagraph_capture_sizes", "disable_cuda_graph"}
        ),
        burden=_eager,
        moves="a graph replays a step's kernels in one call; vLLM's enforce-eager also"
        " switches torch.compile off",
        blind="the parts of launching and of uncompiled host work; the price of a"
        " graph's own launch; where on the other side gaps are",
    ),
    Change(
        id="threads",
        title="compute threads of the server",
        owns=frozenset(
            {"threads", "threads-batch", "env:OMP_NUM_THREADS",
             "env:VLLM_CPU_OMP_THREADS_BIND"}
        ),
        burden=_fewer_threads,
        moves="work that is spread over threads; assumed to divide evenly",
        blind="work of one thread alone; arithmetic against stalls on memory",
    ),
    Change(
        id="cpus",
        title="processors of the server",
        owns=frozenset({"cpus"}),
        burden=_less_cpu,
        moves="how much of the host the server may use at once; the client takes what"
        " it leaves",
        blind="work of one thread alone, which takes as long on fewer processors",
    ),
    Change(
        id="api-servers",
        title="API server processes",
        owns=frozenset({"api-server-count"}),
        burden=_fewer_frontends,
        moves="each API server has fewer streams; assumed to divide evenly",
        blind="what the engine does to hand tokens over",
    ),
    Change(
        id="context",
        title="longest context",
        owns=frozenset(
            {"max-model-len", "context-length", "slot-context", "ctx-size"}
        ),
        resolves=frozenset({"max_model_len"}),
        burden=_context,
        moves="tables and memory that are sized by the longest context, not by the"
        " requests",
        blind="which part reads or copies what no request uses",
    ),
    Change(
        id="parallelism",
        title="data parallel against tensor parallel",
        owns=frozenset({*_TENSOR, *_DATA}),
        resolves=frozenset(
            {"tensor_parallel_size", "data_parallel_size", "world_size"}
        ),
        burden=_tensor_ranks,
        moves="collectives inside layers, and at the same time each rank's share of the"
        " batch and of the weights",
        blind="collectives apart from the bytes and batches that change with them",
    ),
    Change(
        id="offload",
        title="offloading to host memory",
        owns=frozenset({*_OFFLOAD, "kv-transfer-config", "cpu-offload-params"}),
        burden=_offloads,
        moves="weights or KV in host memory, and with them the size of the KV cache",
        blind="transfers that overlap computing",
    ),
    Change(
        id="async-scheduling",
        title="asynchronous scheduling against synchronous",
        owns=frozenset({"async-scheduling", "no-async-scheduling"}),
        resolves=frozenset({"async_scheduling"}),
        burden=_waits,
        moves="the engine's loop runs beside the device instead of between its steps",
        blind="a loop that is longer than the device's work shows only as much of"
        " itself as the device takes",
    ),
)  # fmt: skip


def difference(run: Run, a: Launch, b: Launch) -> Difference | None:
    """Return the one change by which two launches differ; None: none, or several."""
    if not a.command or not b.command:
        return None
    names = differing(settings_of(a), settings_of(b))
    change = next((c for c in CHANGES if names and names <= c.owns), None)
    if change is None or resolved_differently(a, b) - change.resolves:
        return None
    burdens = [change.burden(_setup(run, x)) for x in (a, b)]
    first, second = burdens
    if first is None or second is None or first == second:
        return None
    swapped = first > second
    return Difference(change, (min(first, second), max(first, second)), swapped)


def _setup(run: Run, launch: Launch) -> Setup:
    resolved = {} if launch.log is None else dict(launch.log.resolved)
    return Setup(settings_of(launch), resolved, run.machine.n_cpus)
