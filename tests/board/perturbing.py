"""Ways to change a recorded run: evidence taken away, and causes planted in it."""

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from stepscope.importers.load import load_foreign
from stepscope.importers.timelines import with_timelines
from stepscope.run.requests import Request
from stepscope.run.run import Cell, Launch, Run
from stepscope.run.samples import (
    GpuSample,
    HostSample,
    MetricsSnapshot,
    MetricValue,
    ProcessSample,
)
from stepscope.run.serverlog import LogEvent, ServerLog

DATA = Path(__file__).parents[2].parent / "shared/data"
Change = Callable[[Run], Run]
replace = msgspec.structs.replace
S = 1_000_000_000
#: Of the long sweep: what two timelines lie at, between and beside.
_QUICK = (1, 8, 16, 64, 128)


@cache
def recorded(name: str) -> Run:
    """A real run of one H200; of the long sweep what is quick to read."""
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = DATA / f"h200x1-qwen3moe-{name}" / "import.toml"
        run = with_timelines(load_foreign(path), Path(folder))
    few = tuple(c for c in run.cells if c.warm_up or c.workload.concurrency in _QUICK)
    return replace(run, cells=few) if name == "baseline" else run


def same(run: Run) -> Run:
    return run


def then(*changes: Change) -> Change:
    def change(run: Run) -> Run:
        for each in changes:
            run = each(run)
        return run

    return change


def of_run(**over: Any) -> Change:
    return lambda run: replace(run, **over)


def of_samples(**over: Any) -> Change:
    return lambda run: replace(run, samples=replace(run.samples, **over))


def of_launches(change: Callable[[Launch], Launch]) -> Change:
    return lambda run: replace(run, launches=tuple(map(change, run.launches)))


def of_log(change: Callable[[ServerLog], ServerLog | None]) -> Change:
    return of_launches(
        lambda x: replace(x, log=None if x.log is None else change(x.log))
    )


def resolved(**over: Any) -> Change:
    return of_log(lambda log: replace(log, resolved={**log.resolved, **over}))


def of_cells(change: Callable[[Cell], Cell]) -> Change:
    return lambda run: replace(run, cells=tuple(map(change, run.cells)))


def of_gpu(**over: Any) -> Change:
    """Set fields of every GPU sample."""
    return lambda run: of_samples(
        gpu=tuple(replace(s, **over) for s in run.samples.gpu)
    )(run)


def of_config(**over: Any) -> Change:
    """Set fields of config.json; None takes one away."""

    def change(run: Run) -> Run:
        fields = {**json.loads(run.model_config or "{}"), **over}
        kept = {k: v for k, v in fields.items() if v is not None}
        return replace(run, model_config=json.dumps(kept))

    return change


def span(run: Run) -> tuple[int, int]:
    requests = [r for c in run.cells for r in c.requests]
    return (
        min(r.sent_at_ns for r in requests) - S,
        max(r.ended_at_ns for r in requests) + S,
    )


def coarse(run: Run) -> Run:
    """One sample a second in place of four."""
    kept: list[GpuSample] = []
    for sample in run.samples.gpu:
        if not kept or sample.at_ns - kept[-1].at_ns >= S:
            kept.append(sample)
    return of_samples(gpu=tuple(kept))(run)


def beside_idle_gpus(n: int, **over: Any) -> Change:
    """Sample ``n`` further GPUs that take no part; ``over`` makes them take one."""
    idle: dict[str, Any] = {
        "util_pct": 0.0, "power_w": 75.0, "sm_clock_mhz": 345.0, "dram_bw_pct": 0.0,
        "tensor_pct": 0.0, "sm_active_pct": 0.0, "memory_used_bytes": 600_000_000,
    }  # fmt: skip

    def change(run: Run) -> Run:
        more = [
            replace(sample, gpu=i, **(over or idle))
            for sample in run.samples.gpu
            for i in range(n + 1)
            if i
        ]
        return of_samples(gpu=(*run.samples.gpu, *more))(run)

    return change


def processes(**cpu_pct: float) -> Change:
    """Processes that use so much of a core all the time, by role."""

    def change(run: Run) -> Run:
        low, high = span(run)
        samples = [
            ProcessSample(
                at_ns=at,
                pid=number,
                role=role.replace("_", "-"),
                name=role,
                cpu_ns=int((at - low) * pct / 100),
                busiest_thread_cpu_ns=int((at - low) * pct / 100),
                busiest_thread_id=number,
                busiest_thread_waited_ns=0,
            )
            for at in range(low, high, S // 2)
            for number, (role, pct) in enumerate(cpu_pct.items(), 1)
        ]
        return of_samples(process=tuple(samples))(run)

    return change


def scraped(**gauges: float) -> Change:
    """Gauges of vLLM with one value in every scrape, two a second."""

    def change(run: Run) -> Run:
        low, high = span(run)
        values = tuple(
            MetricValue(name=f"vllm:{name}", labels={}, value=value)
            for name, value in gauges.items()
        )
        return of_samples(
            metrics=tuple(
                MetricsSnapshot(at_ns=at, values=values)
                for at in range(low, high, S // 2)
            )
        )(run)

    return change


def host_memory(used_gib: int, limit_gib: int) -> Change:
    def change(run: Run) -> Run:
        low, high = span(run)
        return of_samples(
            host=tuple(
                HostSample(
                    at_ns=at,
                    memory_used_bytes=used_gib << 30,
                    memory_total_bytes=limit_gib << 30,
                )
                for at in range(low, high, S)
            )
        )(run)

    return change


def after(change: Callable[[MetricValue, float], float]) -> Change:
    """Change what a metric reads after each cell, given what it read before."""

    def of_cell(cell: Cell) -> Cell:
        if cell.metrics_before is None or cell.metrics_after is None:
            return cell
        before = {(v.name, str(v.labels)): v.value for v in cell.metrics_before.values}
        values = tuple(
            replace(v, value=change(v, before.get((v.name, str(v.labels)), 0.0)))
            for v in cell.metrics_after.values
        )
        return replace(cell, metrics_after=replace(cell.metrics_after, values=values))

    return of_cells(of_cell)


def server_tpot(times: float) -> Change:
    """Let the server's clock say that tokens took this many times as long."""
    names = ("time_per_output_token_seconds_sum", "inter_token_latency_seconds_sum")
    return after(
        lambda v, old: (
            old + (v.value - old) * times if v.name.endswith(names) else v.value
        )
    )


def preempted(n: float) -> Change:
    return after(
        lambda v, _: v.value + n if v.name == "vllm:num_preemptions_total" else v.value
    )


def restarted(run: Run) -> Run:
    """Counters that fell between the scrapes of every cell."""
    return after(lambda v, _: 0.1 * v.value)(run)


def prefix_hits(pct: float) -> Change:
    def of_cell(cell: Cell) -> Cell:
        if cell.metrics_before is None or cell.metrics_after is None:
            return cell
        kinds = (("queries", 1e5), ("hits", 1e3 * pct))

        def with_hits(snapshot: MetricsSnapshot, times: float) -> MetricsSnapshot:
            kept = [v for v in snapshot.values if "prefix_cache" not in v.name]
            more = [
                MetricValue(
                    name=f"vllm:prefix_cache_{kind}_total", labels={}, value=times * n
                )
                for kind, n in kinds
            ]
            return replace(snapshot, values=(*kept, *more))

        return replace(
            cell,
            metrics_before=with_hits(cell.metrics_before, 0.0),
            metrics_after=with_hits(cell.metrics_after, 1.0),
        )

    return of_cells(of_cell)


def drafted(per_step: float) -> Change:
    """Speculative decoding that gives so many tokens a step, in one chunk."""

    def request(r: Request) -> Request:
        offsets = np.frombuffer(r.chunk_offsets_ns, "<i8")
        kept = np.unique(np.round(np.arange(0, offsets.size, per_step)).astype(int))
        chosen = np.append(offsets[kept[kept < offsets.size - 1]], offsets[-1:])
        return replace(
            r, chunk_offsets_ns=chosen.astype("<i8").tobytes(), n_chunks=chosen.size
        )

    def of_cell(cell: Cell) -> Cell:
        cell = replace(cell, requests=tuple(map(request, cell.requests)))
        if cell.metrics_before is None or cell.metrics_after is None:
            return cell

        def counted(snapshot: MetricsSnapshot, n: float) -> MetricsSnapshot:
            more = tuple(
                MetricValue(name=f"vllm:spec_decode_num_{k}", labels={}, value=v)
                for k, v in (
                    ("drafts_total", n),
                    ("accepted_tokens_total", n * (per_step - 1)),
                )
            )
            return replace(snapshot, values=(*snapshot.values, *more))

        return replace(
            cell,
            metrics_before=counted(cell.metrics_before, 0.0),
            metrics_after=counted(cell.metrics_after, 1000.0),
        )

    return then(of_cells(of_cell), resolved(speculative_config="{'method': 'mtp'}"))


def compiling_in(name: str) -> Change:
    """A line about compiling, in the middle of a cell."""

    def change(run: Run) -> Run:
        cell = next(c for c in run.cells if c.name == name)
        at = (cell.requests[0].sent_at_ns + cell.requests[-1].ended_at_ns) // 2
        line = LogEvent(kind="jit", line=9999, at_ns=at, text="JIT compiled: foo")
        return of_log(lambda log: replace(log, events=(*log.events, line)))(run)

    return change


def slower(name: str, times: float) -> Change:
    """One cell that took so many times as long, by client and server."""

    def of_cell(cell: Cell) -> Cell:
        if cell.name != name:
            return cell
        start = min(r.sent_at_ns for r in cell.requests)

        def later(at: int | None) -> int | None:
            return None if at is None else start + int((at - start) * times)

        def request(r: Request) -> Request:
            offsets = np.frombuffer(r.chunk_offsets_ns, "<i8") * times
            sent = later(r.sent_at_ns) or 0
            return replace(
                r,
                sent_at_ns=sent,
                ended_at_ns=later(r.ended_at_ns) or 0,
                first_byte_at_ns=later(r.first_byte_at_ns),
                first_content_at_ns=sent + int(offsets[0]),
                last_content_at_ns=sent + int(offsets[-1]),
                chunk_offsets_ns=offsets.astype("<i8").tobytes(),
            )

        return replace(cell, requests=tuple(map(request, cell.requests)))

    def change(run: Run) -> Run:
        mine = replace(run, cells=tuple(c for c in run.cells if c.name == name))
        clocked = after(
            lambda v, old: (
                old + (v.value - old) * times
                if v.name.endswith("_seconds_sum")
                else v.value
            )
        )(mine)
        (cell,) = of_cells(of_cell)(clocked).cells
        return of_cells(lambda c: cell if c.name == name else c)(run)

    return change


def prefill_in_steps(share: float) -> Change:
    """Prompt tokens in so many of the logged steps, evenly spread."""

    def of_events(log: ServerLog) -> ServerLog:
        events: list[LogEvent] = []
        due = 0.0
        for event in log.events:
            due += share if event.kind == "iteration" else 0.0
            if event.kind == "iteration" and due >= 1.0:
                due -= 1.0
                numbers = {**event.numbers, "context_requests": 1.0}
                event = replace(event, numbers=numbers)  # noqa: PLW2901
            events.append(event)
        return replace(log, events=tuple(events))

    return of_log(of_events)


def power(
    clock: float, reasons: int | None = 4, drawn_w: float = 690.0, cap_w: float = 700.0
) -> Change:
    """SM clock as a share of its maximum, beside reasons and power."""
    return of_gpu(
        sm_clock_mhz=1980 * clock,
        sm_clock_max_mhz=1980.0,
        throttle_reasons=reasons,
        power_w=drawn_w,
        power_limit_w=cap_w,
    )
