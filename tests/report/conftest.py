"""A small run with everything that a page can show, made by hand."""

from typing import Any

import numpy as np
import pytest

from stepscope.analysis.across.records import (
    FloorPoint,
    RepeatGroup,
    StackPart,
    StepModel,
    TokenStack,
    TracedStep,
)
from stepscope.analysis.boot.records import BootResult
from stepscope.analysis.compare.records import Comparison, LeftOut, PooledComparison
from stepscope.analysis.records import (
    Analysis,
    CellResult,
    CellTelemetry,
    Stats,
)
from stepscope.board.records import (
    Board,
    BoardEntry,
    Ceiling,
    Evidence,
    NotSolid,
    Scope,
    Status,
)
from stepscope.findings import Finding
from stepscope.recipe.records import Cost, Workload
from stepscope.run.requests import Request
from stepscope.run.run import Cell, Launch, Machine, Run, Timeline
from stepscope.run.samples import (
    GpuSample,
    HostSample,
    MetricsSnapshot,
    MetricValue,
    ProcessSample,
    Samples,
)
from stepscope.run.serverlog import BootState, LogEvent, ServerLog
from stepscope.run.stepbudget import KernelTime, RankBudget

S = 1_000_000_000
MS = 1_000_000


def _stats(mean: float) -> Stats:
    return Stats(
        mean=mean,
        median=mean * 0.98,
        p90=mean * 1.1,
        p99=mean * 1.2,
        max=mean * 1.3,
        n=64,
    )


def _result(
    name: str, concurrency: int, tpot: float, repeat: int, **over: Any
) -> CellResult:
    rate = 900 * concurrency / tpot
    fields: dict[str, Any] = {
        "name": name,
        "configuration": "baseline",
        "launch": "baseline-l0",
        "session": "s0",
        "concurrency": concurrency,
        "repeat": repeat,
        "warm_up": False,
        "valid": True,
        "void_reasons": (),
        "status": "done",
        "n_requests": 4 * concurrency,
        "n_failed": 0,
        "failure_kinds": {},
        "input_tokens": 400 * concurrency,
        "output_tokens": 400 * concurrency,
        "duration_s": 4.0,
        "waves": 4.0,
        "occupancy": 0.97,
        "occupancy_expected": (0.95, 0.99),
        "little_residual": 1e-9,
        "output_tokens_per_s": rate,
        "requests_per_s": rate / 100,
        "steady_output_tokens_per_s": rate * 1.02,
        "ttft_ms": _stats(3 * tpot),
        "tpot_ms": _stats(tpot),
        "itl_ms": _stats(tpot),
        "e2el_ms": _stats(102 * tpot),
        "decode_efficiency": 0.97,
        "decode_efficiency_residual": 0.0,
        "chunks_per_token": 1.0,
        "server_tpot_ms": tpot * 0.998,
        "server_ttft_ms": None,
        "client_tpot_error_pct": 0.2,
        "engine_step_ms": tpot * 0.99,
        "tokens_per_step_and_sequence": 1.0,
        "prefill_share_of_steps": 0.02,
        "telemetry": CellTelemetry(
            n_samples_total=60,
            n_samples_in_window=30,
            window_s=3.0,
            util_pct=96.0,
            power_w=480.0,
            power_limit_w=700.0,
            sm_clock_mhz=1980.0,
            sm_clock_max_mhz=1980.0,
            throttle_reasons=(),
            dram_bw_pct=60.0,
            dram_bw_pct_median=66.0,
            process_cpu_pct={"api-server": 55.0, "engine-core": 101.0},
        ),
        "usd_per_million_output_tokens": 0.42,
    }
    return CellResult(**{**fields, **over})


def _cell(name: str, concurrency: int, tpot: float, repeat: int, start_ns: int) -> Cell:
    offsets = (3 * tpot + tpot * np.arange(100)) * MS
    ended = int(offsets[-1])
    requests = tuple(
        Request(
            index=i,
            slot=i % concurrency,
            sent_at_ns=start_ns + (i // concurrency) * ended,
            ended_at_ns=start_ns + (i // concurrency + 1) * ended,
            first_content_at_ns=start_ns + (i // concurrency) * ended + int(offsets[0]),
            last_content_at_ns=start_ns + (i // concurrency + 1) * ended,
            prompt_tokens=100,
            output_tokens=100,
            n_chunks=100,
            chunk_offsets_ns=offsets.astype("<i8").tobytes(),
        )
        for i in range(4 * concurrency)
    )
    return Cell(
        name=name,
        configuration="baseline",
        launch="baseline-l0",
        workload=Workload(
            concurrency=concurrency,
            n_prompts=4 * concurrency,
            input_tokens=100,
            output_tokens=100,
        ),
        repeat=repeat,
        requests=requests,
        started_at_ns=start_ns,
        ended_at_ns=start_ns + 5 * ended,
        raw_path=f"cells/{name}/requests.parquet",
    )


def _samples(end_ns: int) -> Samples:
    ats = range(0, end_ns, S // 8)
    return Samples(
        gpu=tuple(
            GpuSample(
                at_ns=at,
                gpu=0,
                util_pct=90.0 + at % 7,
                power_w=400 + (at // MS) % 90,
                power_limit_w=700.0,
                sm_clock_mhz=1980.0,
                sm_clock_max_mhz=1980.0,
                dram_bw_pct=60.0,
                memory_used_bytes=120 << 30,
            )
            for at in ats
        ),
        host=tuple(
            HostSample(
                at_ns=at,
                memory_used_bytes=20 << 30,
                memory_total_bytes=128 << 30,
                cpu_busy_ns=at * 3,
                cpu_total_ns=at * 16,
            )
            for at in ats
        ),
        process=tuple(
            ProcessSample(
                at_ns=at, pid=pid, role=role, name=role, cpu_ns=int(at * share)
            )
            for at in ats
            for pid, role, share in ((1, "api-server", 0.5), (2, "engine-core", 1.0))
        ),
        metrics=tuple(
            MetricsSnapshot(
                at_ns=at,
                values=(
                    MetricValue(name="vllm:kv_cache_usage_perc", labels={}, value=0.25),
                ),
            )
            for at in range(2 * S, end_ns, S)
        ),
    )


RECIPE = """\
name = "small"
engine = "vllm"
model = "a/model"

[workload]
concurrency = [1, 8, 64, 128]
input_tokens = 100
output_tokens = 100

[cost]
usd_per_gpu_hour = 3.5
n_gpus = 1
"""
LOG = ServerLog(
    engine="vllm",
    version="0.26.0",
    n_lines=90,
    boot=BootState(first_at_s=100.0, last_at_s=160.0, seconds_to_ready=1.2),
    # The log's second 101.5 is the timeline's 1.7.
    events=(
        LogEvent(kind="ready", line=80, text="up", at_s=101.5, at_ns=1_700_000_000),
    ),
)

POINTS = (
    ("baseline-c1-r0", 1, 4.0, 0),
    ("baseline-c8-r0", 8, 6.0, 0),
    ("baseline-c64-r0", 64, 18.0, 0),
    ("baseline-c64-r1", 64, 18.2, 1),
    ("baseline-c64-r2", 64, 17.9, 2),
    ("baseline-c128-r0", 128, 30.0, 0),
)


def _group(
    cells: tuple[str, ...], values: tuple[float, ...], **over: Any
) -> RepeatGroup:
    fields: dict[str, Any] = {
        "configuration": "baseline",
        "session": "s0",
        "concurrency": 1,
        "metric": "tpot_ms",
        "cells": cells,
        "values": values,
        "mean": values[0],
        "ci95": None,
        "cv_pct": None,
    }
    return RepeatGroup(**{**fields, **over})


def small_run(**over: Any) -> Run:
    cells = []
    at = 2 * S
    for name, concurrency, tpot, repeat in POINTS:
        cells.append(_cell(name, concurrency, tpot, repeat, at))
        at = (cells[-1].ended_at_ns or 0) + S
    fields: dict[str, Any] = {
        "id": "small",
        "engine": "vllm",
        "engine_version": "0.26.0",
        "timeline": Timeline(kind="monotonic"),
        "tool_version": "0.1.0",
        "gpu": "NVIDIA H200",
        "n_gpus": 1,
        "model": "a/model",
        "machine": Machine(host="node", n_cpus=16, memory_bytes=128 << 30),
        "recipe_text": RECIPE,
        "cost": Cost(usd_per_gpu_hour=3.5, n_gpus=1),
        "launches": (
            Launch(
                name="baseline-l0",
                configuration="baseline",
                command=("vllm", "serve", "a/model", "--api-key", "hunter2"),
                environment={"HF_TOKEN": "hf_abc", "OMP_NUM_THREADS": "1"},
                started_at_ns=S // 5,
                ready_at_ns=17 * S // 10,
                stopped_at_ns=at + S,
                ready=True,
                log_path="launches/baseline-l0/server.log",
                log=LOG,
            ),
        ),
        "cells": tuple(cells),
        "samples": _samples(at),
    }
    return Run(**{**fields, **over})


LEDGER: dict[str, object] = {
    "device_gib": 139.8,
    "requested_gib": 125.8,
    "weights_gib": 57.0,
    "non_torch_gib": 0.3,
    "activation_peak_gib": 2.7,
    "graph_estimate_gib": 0.6,
    "graph_estimate_applied": True,
    "graph_actual_gib": 0.8,
    "kv_gib": 65.2,
    "kv_tokens": 714_000,
    "unaccounted_gib": 0.0,
    "free_at_end_gib": None,
}
TRACED = TracedStep(
    configuration="baseline",
    concurrency=8,
    launch="baseline-l0",
    cell="baseline-c8-r0",
    paths=("traces/c8.json.gz",),
    usable=True,
    defects=("stream-overlap",),
    step_kind="decode",
    step_source="graph-launches",
    traced_step_ms=6.1,
    untraced_step_ms=6.0,
    untraced_source="engine step of baseline-c8-r0",
    stretch_pct=1.7,
    match="same",
    n_ranks=1,
    ranks=(
        RankBudget(
            rank=0,
            n_periods=40,
            step_ms=6.1,
            compute_ms=5.0,
            communication_ms=0.5,
            communication_wait_ms=0.2,
            memcpy_ms=0.1,
            idle_ms=0.5,
            idle_by_cause={"inside_graph": 0.3, "launch_call": None},
            kernels=(KernelTime(name="moe", ms_per_step=3.0, count_per_step=48.0),),
        ),
    ),
)


def small_analysis(**over: Any) -> Analysis:
    results = [_result(*point) for point in POINTS]
    results[-1] = _result(
        *POINTS[-1],
        valid=False,
        void_reasons=("client-bound",),
        client_tpot_error_pct=9.0,
    )
    c64 = [r for r in results if r.concurrency == 64]
    fields: dict[str, Any] = {
        "cells": tuple(results),
        "groups": (
            _group((results[0].name,), (4.0,)),
            _group((results[1].name,), (6.0,), concurrency=8),
            _group(
                tuple(r.name for r in c64),
                (18.0, 18.2, 17.9),
                concurrency=64,
                mean=18.03,
                ci95=(17.6, 18.4),
                cv_pct=0.8,
            ),
        ),
        "step_model": (
            StepModel(
                configuration="baseline",
                kind="line",
                n_points=3,
                level_ms=3.8,
                level_ci95_ms=(3.5, 4.1),
                slope_ms_per_seq=0.22,
                slope_ci95=(0.2, 0.24),
                knee_seqs_per_rank=None,
                knee_ci95=None,
                asymptote_ms=None,
                toll_share={"1": 95.0, "64": 21.0},
                residual_pct=1.2,
                points=((1.0, 4.0), (7.8, 6.0), (62.0, 18.0)),
                curve=tuple((float(x), 3.8 + 0.22 * x) for x in range(1, 64)),
            ),
        ),
        "floor": (
            FloorPoint(
                configuration="baseline",
                concurrency=8,
                seqs_per_rank=7.8,
                coverage=0.4,
                bytes_per_rank=12e9,
                floor_ms=2.5,
                step_ms=6.0,
                times_floor=2.4,
            ),
        ),
        "boot": (
            BootResult(
                launch="baseline-l0",
                ready=True,
                seconds_to_ready=1.5,
                phases=({"name": "load_weights", "seconds": 0.75, "ends_at_s": 101.0},),
                ledger=LEDGER,
                verdict={"outcome": "ready", "cause": None, "why": "", "fixes": ()},
                log_path="launches/baseline-l0/server.log",
            ),
        ),
        "comparisons": (
            Comparison(
                a="baseline",
                b="eager",
                concurrency=8,
                metric="tpot_ms",
                delta_pct=3.1,
                ci95_pct=None,
                verdict="undetermined",
                runs_needed=4,
                minutes_needed=12.0,
                usd_needed=0.7,
            ),
            Comparison(
                a="baseline",
                b="eager",
                concurrency=64,
                metric="tpot_ms",
                delta_pct=9.0,
                ci95_pct=(6.0, 12.1),
                verdict="slower",
                runs_needed=None,
                n_a=3,
                n_b=3,
                mean_a=18.03,
                mean_b=19.65,
            ),
        ),
        "pooled": (
            PooledComparison(
                a="baseline",
                b="eager",
                metric="tpot_ms",
                n_rows=2,
                delta_pct=6.0,
                ci95_pct=(1.0, 11.2),
                verdict="slower",
                rows_agree=False,
                q_p=0.01,
            ),
        ),
        "left_out": (
            LeftOut(
                cell="baseline-c128-r0",
                configuration="baseline",
                concurrency=128,
                reason="client-bound",
            ),
        ),
        "traced": (TRACED,),
        "stacks": (
            TokenStack(
                configuration="baseline",
                concurrency=8,
                tpot_ms=6.0,
                step_ms=5.9,
                step_source="engine step",
                floor_ms=2.5,
                parts=(
                    StackPart(name="floor: experts", ms=2.5),
                    StackPart(name="device busy above the floor", ms=3.0),
                    StackPart(name="after the server", ms=0.5),
                ),
                traced=True,
                cells=("baseline-c8-r0",),
            ),
        ),
        "findings": (
            Finding(
                code="client-bound",
                severity="warning",
                message="client TPOT is 9 % above the server's own",
                hint="Use stepscope bench.",
                cell="baseline-c128-r0",
                voids=True,
            ),
            Finding(
                code="no-repeats",
                severity="info",
                message="concurrency 1 and 8 were measured once",
                hint="Repeat them.",
            ),
        ),
    }
    return Analysis(**{**fields, **over})


def small_board(**over: Any) -> Board:
    """A verdict by hand, so that a better rule does not change the page's text."""

    def entry(
        hypothesis: str, status: Status, first: int, last: int, **more: Any
    ) -> BoardEntry:
        fields: dict[str, Any] = {
            "share_of_step_pct": None,
            "evidence": (),
            "would_decide": "A measurement that decides.",
        }
        return BoardEntry(
            hypothesis=hypothesis,
            scope=Scope(
                configuration="baseline", concurrency_from=first, concurrency_to=last
            ),
            status=status,
            **{**fields, **more},
        )

    def seen(cell: str, value: float) -> Evidence:
        return Evidence(
            source=cell,
            quantity="client TPOT over the server's own",
            value=value,
            unit="%",
            reasoning="both stamp the same tokens",
        )

    fields: dict[str, Any] = {
        "sentences": (
            "baseline: 3,220 output tokens/s at concurrency 64 (3 repeats).",
            "Supported by measurement: memory bandwidth.",
        ),
        "entries": (
            entry(
                "client",
                "ruled-out",
                1,
                64,
                share_of_step_pct=0.2,
                evidence=(seen("baseline-c1-r0", -0.1), seen("baseline-c64-r1", 0.2)),
                would_decide=None,
            ),
            entry("client", "untestable", 128, 128),
            entry(
                "bandwidth",
                "supported",
                64,
                64,
                share_of_step_pct=71.8,
                evidence=(seen("baseline-l0", 71.8),),
                next_ceiling="Without it, computation is next.",
            ),
            entry("compute", "standing", 1, 64),
        ),
        "solid": ("baseline: 14.3 times the throughput at concurrency 64 as at 1.",),
        "not_solid": (
            NotSolid(
                claim="baseline: TPOT 4.00 ms at concurrency 1 (baseline-c1-r0)",
                why="one run, so it has no interval",
                what_would_settle_it="Repeat it three times.",
            ),
        ),
        "ceilings": (
            Ceiling(
                configuration="baseline",
                concurrency=64,
                hypothesis="compute",
                output_tokens_per_s=9000.0,
                times_measured=2.8,
                basis="tensor pipes at the data sheet's rate",
            ),
        ),
    }
    return Board(**{**fields, **over})


class Small:
    """The small run, its analysis, a verdict, and variants of them."""

    run = staticmethod(small_run)
    analysis = staticmethod(small_analysis)
    board = staticmethod(small_board)


@pytest.fixture(scope="session")
def small() -> Small:
    return Small()
