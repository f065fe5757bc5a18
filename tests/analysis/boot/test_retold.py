"""Failures of every cause in several engines and versions, retold from public reports.

The logs (tests/data/logs/retold) were written from the wording of their versions and
the shapes of public reports, with figures of their own; what is right was written down
before the doctor saw them. Where a fix has a value, it was computed by hand.
"""
# ruff: noqa: E501  # a row is read as one line

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.parse.log_invariants import check_document, check_log

from stepscope.analysis.boot.diagnose import diagnose
from stepscope.parse.serverlog import parse_log
from stepscope.run.serverlog import BootVerdict

LOGS = Path(__file__).parents[2] / "data" / "logs" / "retold"

FixRow = tuple[str, str, float | str | None]


@dataclass(frozen=True, slots=True)
class Right:
    """What is right: causes with a bar between them, each of which is.

    A fix is (flag, direction, value; None: any). ``never`` holds words that no fix may
    hold.
    """

    causes: str
    root: str | None = None
    process: str | None = None
    code: int | None = None
    fixes: tuple[FixRow, ...] = ()
    never: tuple[str, ...] = ()


# fmt: off
MEMORY = {
    "load-031-rank5-of-8": Right("gpu-oom-load", root="Tried to allocate 1.75 GiB", process="Worker_TP5", code=1, fixes=(("--tensor-parallel-size", "raise", 16),), never=("utilization", "NCCL")),
    "load-0.8.5-lost-esc": Right("gpu-oom-load", root="Tried to allocate 224.00 MiB", process="VllmWorker rank=1", code=1, never=("utilization",)),
    "load-sglang-0.4.9-tp2-of-4": Right("gpu-oom-load", root="Tried to allocate 1.31 GiB", process="TP2", code=137, fixes=(("other process on the GPU", "remove", None),), never=("mem-fraction", "memory limit")),
    "load-llama-cuda": Right("gpu-oom-load", root="allocating 32768.00 MiB", code=1, fixes=(("--n-gpu-layers", "lower", 42),)),
    "load-0.13-own-process-in-container": Right("gpu-oom-load", root="Tried to allocate 96.00 MiB", code=1, never=("other process",)),
    "load-sglang-dp-tp-ep-tags": Right("gpu-oom-load", root="10.50 GiB", process="DP6 TP6 EP6", code=-9),
    "profile-0.12-nested-tp4": Right("gpu-oom-profile", root="Tried to allocate 12.50 GiB", process="Worker_TP3", code=1, fixes=(("--max-num-batched-tokens", "lower", 8192), ("--max-num-seqs", "lower", 256)), never=("lower --gpu-memory",)),
    "profile-0.8.2-noprefix": Right("gpu-oom-profile", root="Tried to allocate 7.83 GiB", code=137, never=("memory limit",)),
    "profile-v0-0.9.0": Right("gpu-oom-profile", root="Tried to allocate 13.50 GiB", code=1, fixes=(("--max-num-batched-tokens", "lower", 32768),)),
    "profile-encoder-mm-0.20": Right("gpu-oom-profile", root="22.00 GiB", code=1, fixes=(("--max-num-batched-tokens", "lower", 4096),)),
    "warmup-0.29-dp4-ep": Right("gpu-oom-warmup-after-kv", root="MemoryError: CUDA out of memory. Tried to allocate 5.20", process="Worker_DP2_EP2", code=1, fixes=(("--gpu-memory-utilization", "lower", 0.919),), never=("memory limit", "raise --gpu")),
    "warmup-0.11.2-deepgemm": Right("gpu-oom-warmup-after-kv", root="Tried to allocate 1.00 GiB. GPU 1", process="Worker_TP1", code=1, fixes=(("--gpu-memory-utilization", "lower", 0.893),)),
    # 45000 free - 30000 - 12288 = 2712 MiB for 4096; 65536 x (1 - 1.1 x 1384 / 12288)
    "warmup-llama-compute-buffer": Right("gpu-oom-warmup-after-kv", root="allocating 4096.00 MiB", code=1, fixes=(("--ctx-size", "lower", 57344),)),
    "warmup-tenant-joined": Right("gpu-oom-capture", code=1, fixes=(("other process on the GPU", "remove", "7.90 GiB"),)),
    "capture-0.10.2-tp2": Right("gpu-oom-capture", root="Tried to allocate 192.00 MiB", process="Worker_TP1", code=1, fixes=(("--gpu-memory-utilization", "lower", 0.95),), never=("raise --gpu",)),
    "capture-sglang-0.4.6-tp8-rank7": Right("gpu-oom-capture", root="Tried to allocate 512.00 MiB. GPU 7", process="TP7", code=137, fixes=(("--mem-fraction-static", "lower", 0.88),), never=("other process", "memory limit")),
    "capture-sglang-collateral-first": Right("gpu-oom-capture", root="Tried to allocate 896.00 MiB", process="TP1"),
    "capture-rocm-0.14": Right("gpu-oom-capture", root="HIP out of memory", code=1, fixes=(("--gpu-memory-utilization", "lower", 0.93),)),
    "capture-illegal": Right("unknown", root="illegal memory access", code=1, never=("utilization",)),
    "capture-0.31-v2": Right("gpu-oom-capture", root="1.00 GiB", code=1, fixes=(("--gpu-memory-utilization", "lower", 0.92),)),
    "sampler-0.9.2": Right("gpu-oom-sampler", root="Tried to allocate 446.00 MiB", code=1, fixes=(("--max-num-seqs", "lower", 256), ("--gpu-memory-utilization", "lower", 0.944))),
    "sampler-0.28-message-only": Right("gpu-oom-sampler", root="warming up sampler with 1024", code=1, fixes=(("--max-num-seqs", "lower", 512),)),
    "sampler-pooler-0.26": Right("gpu-oom-sampler", code=1, fixes=(("--max-num-seqs", "lower", 256),)),
    "runtime-0.16-dies-later": Right("gpu-oom-runtime", root="Tried to allocate 900.00 MiB", process="EngineCore_DP0", code=0, fixes=(("--gpu-memory-utilization", "lower", 0.924),)),
    "runtime-sglang-0.5.3": Right("gpu-oom-runtime", root="Tried to allocate 1.24 GiB", process="TP1", code=-9, fixes=(("--mem-fraction-static", "lower", 0.877),)),
    "runtime-llama-first-request": Right("gpu-oom-runtime", root="CUDA error: out of memory", code=134),
    "runtime-worker-sigsegv": Right("unknown", root="exit code: -11", code=1, never=("memory limit",)),
    "runtime-ecc": Right("unknown", root="ECC", process="Worker_TP3", code=1),
    "runtime-nccl-watchdog": Right("hang", root="Watchdog caught", code=1),
    "runtime-sglang-prefill-pool": Right("gpu-oom-runtime", code=-9, never=("lower --mem-fraction",)),
    "nokv-0.8.4-noprefix": Right("no-kv-memory", root="No available memory for the cache", code=137, never=("memory limit",)),
    "nokv-0.25-weights-dominate": Right("no-kv-memory", root="No available memory for the cache", process="EngineCore", code=1),
    "nokv-sglang-0.5.12": Right("no-kv-memory", root="Not enough memory", code=-9, fixes=(("--mem-fraction-static", "raise", 0.61),)),
    "nokv-0.22-estimate": Right("no-kv-memory", code=1, fixes=(("VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS", "set", "0"),)),
    "smallkv-v0-0.8.5": Right("kv-smaller-than-context", root="max seq len (40960)", code=1, fixes=(("--max-model-len", "lower", 22608),)),
    "smallkv-0.32-json": Right("kv-smaller-than-context", root="max seq len (262144)", process="EngineCore", code=1, fixes=(("--max-model-len", "lower", 91744),)),
    "smallkv-0.15-no-estimate": Right("kv-smaller-than-context", root="max seq len (65536)", code=1, fixes=(("--max-model-len", "lower", 24576), ("--gpu-memory-utilization", "raise", 0.77))),
    "smallkv-llama-kv": Right("kv-smaller-than-context", root="allocating 16384.00 MiB", code=1, fixes=(("--ctx-size", "lower", 112128),)),
    "free-0.9.2": Right("free-memory-below-request", root="Free memory on device (3.22/4.0", code=1, fixes=(("--gpu-memory-utilization", "lower", 0.74),)),
    "free-0.32-excluding": Right("free-memory-below-request", root="Free memory on device cuda:1", process="Worker_TP1", code=1),
    "free-sglang-unbalanced": Right("free-memory-below-request", root="memory capacity is unbalanced", code=-9),
    "free-gb10": Right("free-memory-below-request", code=1),
    "race-0.8.5": Right("memory-race", root="Error in memory profiling", code=1, never=("lower --gpu",)),
    "race-0.30.0": Right("memory-race", root="Error in memory profiling", code=1, never=("lower --gpu",)),
    "race-tp-0.26": Right("memory-race", root="AssertionError: Error in memory", process="Worker_TP1", code=1),
    "mamba-0.20.0": Right("mamba-blocks", root="Mamba cache blocks (613)", code=1, fixes=(("--max-num-seqs", "lower", 613),)),
    "mamba-0.33.0": Right("mamba-blocks", root="Mamba cache blocks (613)", code=1, fixes=(("--max-num-seqs", "lower", 613),)),
    "bare-031-worker-oom": Right("gpu-oom-load", root="640.00 MiB", code=1),
    "oom-only-in-wrapper": Right("gpu-oom-profile", root="Worker failed with error", code=1),
    "dp-033-engine3-first": Right("kv-smaller-than-context", root="5.2 GiB", process="EngineCore_DP3", code=1, fixes=(("--max-model-len", "lower", 54512),)),
    "ranks-all-oom-first-is-2": Right("gpu-oom-capture", root="GPU 2 has", process="Worker_TP2", code=1),
    "interleaved-two-ranks": Right("gpu-oom-load", root="1.00 GiB", process="Worker_TP1", code=1),
    "interleaved-bare": Right("gpu-oom-load", root="1.00 GiB", code=1),
    "cpu-kv-space": Right("kv-smaller-than-context", code=1, fixes=(("--max-model-len", "lower", 32768),)),
    "llama-vulkan-oom": Right("gpu-oom-load", code=1, fixes=(("--n-gpu-layers", "lower", 40),)),
}

ELSEWHERE = {
    "host-0.26-silent-worker-137": Right("host-oom-kill", code=1, never=("utilization", "tensor-parallel")),
    "host-sglang-killed": Right("host-oom-kill", code=1, never=("mem-fraction",)),
    "host-llama-killed": Right("host-oom-kill", code=137, never=("n-gpu-layers", "ctx-size")),
    "host-ray-0.10": Right("host-oom-kill", root="node running low on memory", code=1, never=("utilization",)),
    "host-kernel-and-traceback": Right("host-oom-kill", root="Killed process 71234", code=1, fixes=(("memory limit of the container", "raise", 250),)),
    "host-020-uni-minus9": Right("host-oom-kill", code=1, never=("utilization",)),
    "host-alloc-sglang": Right("unknown", code=-9, never=("mem-fraction",)),
    "host-systemd-oom": Right("host-oom-kill", code=137),
    "host-k8s-reason": Right("host-oom-kill"),
    "segv-020-uni": Right("unknown", code=1, never=("utilization", "memory limit")),
    "shm-0.8.5-nccl": Right("shm-exhausted", code=1, never=("NCCL_DEBUG",)),
    "shm-sglang-buserror": Right("shm-exhausted", root="Bus error", code=1),
    "shm-0.17-enospc-psm": Right("shm-exhausted", code=1, fixes=(("--shm-size", "raise", None),)),
    "shm-torch-store": Right("shm-exhausted", process="TP1", code=-9),
    "nccl-0.9.1-system-error": Right("nccl-system-error", process="VllmWorker rank=0", code=1),
    "nccl-sglang-system-error": Right("nccl-system-error", process="TP5", code=-9, never=("set --shm",)),
    "nccl-cuda-error-driver": Right("unknown", root="unhandled cuda error", code=1, never=("shm",)),
    "gloo-full-mesh-vllm-ray": Right("unknown", root="Gloo connectFullMesh failed", code=1, fixes=(("GLOO_SOCKET_IFNAME", "set", None),), never=("shm",)),
    "gloo-timeout-sglang": Right("hang|unknown", root="Timed out waiting 1800000ms", code=-9),
    "package-vllm-cli": Right("missing-package", root="No module named 'pynvml'", code=1, fixes=(("pip install", "set", None),)),
    "package-sglang": Right("missing-package", root="'flashinfer'", process="TP0", code=1),
    "package-vllm-please-install": Right("missing-package", root="Please install vllm[runai]", code=1),
    "package-libcuda": Right("missing-package", root="libcudart.so.13", code=1),
    "toolchain-ninja-missing": Right("missing-toolchain", root="'ninja'", code=1, fixes=(("pip install", "set", "ninja"),), never=("utilization",)),
    "toolchain-ninja-failed-nvcc": Right("missing-toolchain", code=1, never=("utilization",)),
    "toolchain-curand-sglang": Right("missing-toolchain", code=-9, never=("mem-fraction",)),
    "toolchain-no-c-compiler": Right("missing-toolchain", root="Failed to find C compiler", code=1, never=("utilization",)),
    "arch-0.8.5-noprefix-warned": Right("unsupported-arch", root="no kernel image", code=1, never=("utilization",)),
    "arch-fp8-on-3090": Right("unsupported-arch", root="fp8e4nv", process="Worker_TP0", code=1, fixes=(("--kv-cache-dtype", "set", None),), never=("utilization",)),
    "arch-sglang-sm": Right("unsupported-arch", root="only supports sm75", code=-9),
    "arch-llama": Right("unsupported-arch", root="no kernel image", code=134),
    "arch-awq-capability": Right("unsupported-arch", root="Minimum capability: 80", code=1),
    "arch-v0-xformers-bf16": Right("unsupported-arch", code=1, fixes=(("--dtype", "set", "half"),)),
    "arch-warning-then-oom": Right("gpu-oom-load", root="Tried to allocate 2.00 GiB", code=1),
    "arch-not-supported-class": Right("bad-argument|unknown", code=1, never=("attention-backend",)),
    "arg-sglang-unknown": Right("bad-argument", root="unrecognized", code=2, fixes=(("--mem-fraction-sttic", "remove", None),)),
    "arg-trust-remote-code-0.11": Right("bad-argument", code=1, fixes=(("--trust-remote-code", "set", None),)),
    "arg-trust-remote-code-0.8": Right("bad-argument", code=1, fixes=(("--trust-remote-code", "set", None),)),
    "arg-trust-sglang": Right("bad-argument", code=1, fixes=(("--trust-remote-code", "set", None),)),
    "arg-heads-0.10": Right("bad-argument", root="attention heads (28)", code=1, fixes=(("--tensor-parallel-size", "lower", 7),)),
    "arg-llama-unknown": Right("bad-argument", code=1, fixes=(("--max-model-len", "remove", None),)),
    "arg-fp8-e5m2": Right("bad-argument", root="fp8_e5m2", code=1, fixes=(("--kv-cache-dtype", "set", None),)),
    "arg-mla-uint8-0.32": Right("bad-argument|unknown", root="ValueError: MLA kv_data_type", process="Worker_TP1", code=1, never=("attention-backend to None",)),
    "arg-world-size-0.16": Right("bad-argument", code=1, fixes=(("--tensor-parallel-size", "lower", 4),)),
    "arg-max-len-derived-0.29": Right("bad-argument", code=1, fixes=(("--max-model-len", "lower", 40960),)),
    "arg-batched-0.10": Right("bad-argument", code=1, fixes=(("--max-num-batched-tokens", "raise", 8192),)),
    "arg-sglang-choice": Right("bad-argument", code=2, fixes=(("--attention-backend", "set", None),)),
    "arg-llama-value": Right("bad-argument", root="error while handling", code=1, fixes=(("--ctx-size", "set", None),)),
    "arg-pydantic-extra": Right("bad-argument", code=1),
    "arg-json": Right("bad-argument", code=2, fixes=(("--compilation-config", "set", None),)),
    "arg-tool-parser": Right("bad-argument|unknown", code=1),
    "port-0.13-early": Right("port-in-use", code=1, fixes=(("--port", "set", 8124),)),
    "port-sglang-late": Right("port-in-use", root="[Errno 98]", code=1, fixes=(("--port", "set", 30001),)),
    "port-llama-new": Right("port-in-use", code=1, fixes=(("--port", "set", 8081),)),
    "port-late-vllm-0.18": Right("port-in-use", root="[Errno 98]", code=1, fixes=(("--port", "set", 8001),)),
    "port-sglang-early": Right("port-in-use", code=1, fixes=(("--port", "set", 30001),)),
    "port-sglang-nccl": Right("port-in-use", code=-9, never=("set --port",)),
    "port-vllm-rendezvous": Right("port-in-use", process="EngineCore_DP1", code=1, never=("set --port",)),
    "model-401-0.10": Right("model-not-found", code=1, fixes=(("HF_TOKEN", "set", None),)),
    "model-404-sglang": Right("model-not-found", root="RepositoryNotFoundError", code=1),
    "model-tokenizer-missing-0.23": Right("model-not-found", root="Can't load tokenizer", code=1, fixes=(("--tokenizer", "set", None),)),
    "model-tokenizer-not-a-string": Right("unknown", root="TypeError: not a string", code=1),
    "model-llama-missing": Right("model-not-found", root="failed to open GGUF", code=1),
    "model-offline-cache": Right("model-not-found", code=1),
    "model-local-path-missing-0.28": Right("model-not-found", code=1),
    "model-no-weights-sglang": Right("model-not-found", root="Cannot find any model weights", code=-9),
    "model-llama-mmproj": Right("model-not-found|unknown", code=1),
    "model-revision": Right("model-not-found", code=1),
    "timeout-0.24": Right("ready-timeout", root="Timed out waiting for engine", code=1, fixes=(("VLLM_ENGINE_READY_TIMEOUT_S", "raise", None),)),
    "timeout-0.17-small": Right("ready-timeout", code=1, fixes=(("VLLM_ENGINE_READY_TIMEOUT_S", "raise", 810),)),
    "timeout-after-oom": Right("gpu-oom-load", process="Worker_TP2", code=1),
    "hang-rpc-0.14-serving": Right("hang", root="RPC call to execute_model timed out", code=1),
    "hang-after-capture-0.22": Right("hang"),
    "unknown-keyerror-sglang": Right("unknown", root="KeyError", code=-9, never=("mem-fraction",)),
    "unknown-shape-vllm-0.27": Right("unknown", root="Attempted to load weight", code=1),
    "unknown-draft": Right("unknown", code=1),
    "compile-inductor-error": Right("unknown", root="BackendCompilerFailed", code=1),
    "disk-full-tmp": Right("unknown", code=1, never=("shm",)),
    "driver-old": Right("unknown", code=1, never=("utilization",)),
    "no-gpu": Right("unknown", code=1),
    "rotated-dies": Right("unknown", root="illegal memory access", process="EngineCore", code=1),
    "worker-dies-serving-kernel": Right("host-oom-kill", root="Killed process 61", code=1),
    "kill-after-ready-oomkilled": Right("unknown", never=("utilization",)),
    "ray-placement": Right("bad-argument", code=1, fixes=(("--tensor-parallel-size", "lower", 4),)),
    "sglang-invalid-device": Right("bad-argument", root="invalid device ordinal", process="TP4", code=-9, never=("mem-fraction",)),
    "sglang-warmup-failed": Right("hang|ready-timeout|unknown", code=137, never=("memory limit",)),
    "sglang-quant-mismatch": Right("bad-argument|unknown", code=1, never=("mem-fraction",)),
    "sglang-dp-controller-dead": Right("host-oom-kill", code=1, never=("mem-fraction",)),
    "sglang-watchdog-scheduler": Right("hang", root="Watchdog timeout", code=137),
    "sglang-illegal-access-serving": Right("unknown", root="illegal memory access", process="TP1", code=-9),
    "sglang-mamba-not-enough": Right("no-kv-memory", code=-9, fixes=(("--tp-size", "raise", 2),), never=("raise --mem-fraction",)),
    "import-warnings-then-port": Right("port-in-use", code=1, fixes=(("--port", "set", 9001),)),
    "custom-ar": Right("unknown", code=-9, never=("mem-fraction",)),
    "autotune-choices-then-port": Right("port-in-use", root="[Errno 98]", code=1),
    "triton-out-of-resources": Right("unknown", root="OutOfResources", code=1, never=("utilization", "max-num")),
    "usage-stats-noise": Right("kv-smaller-than-context", process="EngineCore_DP0", code=1),
    "lora-missing": Right("model-not-found|unknown", code=1, never=("utilization",)),
    "chat-template-missing": Right("bad-argument|unknown", code=1, never=("utilization",)),
    "vllm-quant-mismatch": Right("bad-argument", code=1, fixes=(("--quantization", "remove", None),)),
    "transformers-unknown-type": Right("bad-argument|unknown", code=1),
    "vllm-v0-mq-dead-serving": Right("gpu-oom-runtime", root="1.16 GiB", code=0),
    "vllm-asyncllm-dead-health": Right("unknown", code=1, never=("memory limit", "utilization")),
    "cudagraph-profile-oom-0.20": Right("gpu-oom-profile", root="900.00 MiB", code=1),
    "v1-load-oom-quant-postprocess": Right("gpu-oom-load", root="7.00 GiB", code=1),
    "compose-with-nginx": Right("no-kv-memory", root="No available memory", code=1),
    "supervisord-exit": Right("host-oom-kill"),
    "slurm-oom": Right("host-oom-kill", code=137),
    "slurm-oom-nocode": Right("host-oom-kill"),
    "bash-killed": Right("host-oom-kill", code=137),
    "bash-killed-nocode": Right("host-oom-kill"),
    "bash-segv": Right("unknown", code=139, never=("memory limit",)),
    "faulthandler-segv": Right("unknown", code=1, never=("memory limit",)),
    "illegal-instruction": Right("unknown|unsupported-arch", code=132, never=("memory limit",)),
}

#: name -> exit code
READY: dict[str, int | None] = {
    "sigterm-0.26": 0,
    "sigterm-0.8-traceback": 0,
    "sglang-sigterm": 137,
    "rotated-serving": None,
    "retry-then-ready": None,
    "warnings-like-errors": None,
    "ready-then-kill9-container": 137,
    "health-then-oom-request-llama": 0,
    "survived-oom-then-ready": None,
    "ready-only-access": None,
    "sigterm-llama": 130,
    "cuda-driver-init-llama": None,
    "ready-ctrl-c-traceback": 0,
    "ready-request-errors": None,
    "llama-oom-then-serves": None,
    "compose-nginx-errors-then-ready": None,
    "slurm-time-limit": 143,
}

UNFINISHED: dict[str, int | None] = {
    "slow-load-hints-0.11": None,
    "user-ctrl-c-loading": 130,
    "ctrl-c-loading-bare": 130,
    "k8s-probe-sigterm": 143,
}
# fmt: on
FAILED = MEMORY | ELSEWHERE


def log_bytes(name: str) -> bytes:
    return (LOGS / f"{name}.log").read_bytes()


def judged(data: bytes, code: int | None) -> BootVerdict:
    log = parse_log(data)
    check_log(log, data)
    check_document(log, code)
    return diagnose(log, exit_code=code)


def check(verdict: BootVerdict, data: bytes, right: Right) -> None:
    assert verdict.outcome == "failed", verdict
    assert verdict.cause in right.causes.split("|"), verdict
    lines = data.decode("utf-8", "replace").split("\n")
    if right.root is not None:
        assert verdict.root_line is not None
        assert right.root in lines[verdict.root_line - 1]
    if right.process is not None:
        assert verdict.process == right.process
    told = [(f.flag, f.direction, f.value) for f in verdict.fixes]
    for flag, direction, value in right.fixes:
        values = [v for f, d, v in told if (f, d) == (flag, direction)]
        assert values, told
        assert value is None or value in values, told
    words = [f"{direction} {flag} to {value}" for flag, direction, value in told]
    for word in right.never:
        assert not any(word in each for each in words), words


@pytest.mark.parametrize("name", FAILED)
def test_a_failure_gets_its_cause_its_first_line_and_the_value_that_fits(
    name: str,
) -> None:
    data, right = log_bytes(name), FAILED[name]
    check(judged(data, right.code), data, right)


@pytest.mark.parametrize("name", READY)
def test_a_server_that_came_up_is_ready(name: str) -> None:
    verdict = judged(log_bytes(name), READY[name])
    assert (verdict.outcome, verdict.cause) == ("ready", None), verdict


@pytest.mark.parametrize("name", UNFINISHED)
def test_a_start_that_nothing_ended_is_unfinished(name: str) -> None:
    verdict = judged(log_bytes(name), UNFINISHED[name])
    assert (verdict.outcome, verdict.cause) == ("unfinished", None), verdict


def test_every_log_of_the_folder_is_judged() -> None:
    assert {p.stem for p in LOGS.glob("*.log")} == {*FAILED, *READY, *UNFINISHED}


def docker_json(line: str) -> str:
    return json.dumps({"log": line + "\n", "stream": "stderr", "time": "t"})


WRAPS: dict[str, Callable[[str], str]] = {
    "docker compose": lambda x: "vllm-1  | " + x,
    "docker json": docker_json,
    "CRI": lambda x: "2026-06-02T09:00:00.123456789+02:00 stderr F " + x,
    "kubectl": lambda x: "[pod/vllm-0/server] " + x,
    "stern": lambda x: "glm-5-agg-78f968cf54-6c78t modelserver " + x,
    "journal": lambda x: "Jun 02 09:00:00 gpu-7 vllm[123]: " + x,
    "a launcher": lambda x: "2026-06-09 14:01:54.604 [Info] (Process) " + x,
    "Python's logging": lambda x: "2026-06-02 09:50:27,531 - __main__ - INFO - " + x,
    "a stamp in brackets": lambda x: "[2026-06-06T02:10:00.703Z] " + x,
    "a terminal": lambda x: "\x1b[32m" + x + "\x1b[0m",
    "Windows": lambda x: x + "\r",
}


@pytest.mark.parametrize("wrap", WRAPS)
@pytest.mark.parametrize(
    "name", ["profile-0.12-nested-tp4", "nokv-sglang-0.5.12", "warmup-0.29-dp4-ep"]
)
def test_what_a_container_adds_to_each_line_changes_no_verdict(
    name: str, wrap: str
) -> None:
    lines = log_bytes(name).decode().removesuffix("\n").split("\n")
    wrapped = "".join(WRAPS[wrap](line) + "\n" for line in lines).encode()
    right = FAILED[name]
    bare = judged(log_bytes(name), right.code)
    assert judged(wrapped, right.code) == bare
    check(bare, log_bytes(name), right)


#: What the rest of a log says rightly where the root was cut away.
OF_THE_REST = {
    "timeout-after-oom": "ready-timeout",
    "shm-0.8.5-nccl": "nccl-system-error",
    "import-warnings-then-port": "missing-package",
    "llama-oom-then-serves": "gpu-oom-warmup-after-kv",
    "load-sglang-0.4.9-tp2-of-4": "host-oom-kill",  # "Killed" while loading.
}


@pytest.mark.parametrize("name", [*FAILED, *READY, *UNFINISHED])
def test_a_log_that_was_cut_anywhere_gets_its_cause_or_none(name: str) -> None:
    right = FAILED.get(name, Right(""))
    causes = {*right.causes.split("|"), OF_THE_REST.get(name), "unknown", None}
    if right.code in (137, -9) or READY.get(name) == 137:
        causes.add("host-oom-kill")  # Whoever was killed while it loads.
    lines = log_bytes(name).split(b"\n")
    for at in range(1, len(lines), 3):
        for part in (lines[:at], lines[at:]):
            log = parse_log(b"\n".join(part))
            for code in {None, 1, right.code}:
                verdict = diagnose(log, exit_code=code)
                assert verdict.cause in causes, (at, code, verdict)


CUT = "profile-0.12-nested-tp4"


@pytest.mark.parametrize("code", [1, None])
def test_a_log_that_ends_before_the_root_accuses_nobody(code: int | None) -> None:
    data = log_bytes(CUT).split(b"torch.OutOfMemoryError")[0]
    verdict = judged(data, code)
    assert (verdict.outcome, verdict.cause) == ("failed", "unknown")
    assert not any("memory limit" in fix.flag for fix in verdict.fixes)


def test_a_log_that_ends_within_the_root_is_judged_by_it() -> None:
    data = log_bytes(CUT).split(b"Of the allocated memory")[0]
    check(judged(data, None), data, Right("gpu-oom-profile", root="12.50 GiB"))


def test_a_log_that_lost_its_head_is_judged_by_the_rest() -> None:
    data = b"\n".join(log_bytes(CUT).split(b"\n")[-60:])
    check(judged(data, 1), data, Right("gpu-oom-profile", root="12.50 GiB"))


def test_a_line_of_any_length_hides_nothing_behind_it() -> None:
    long = b"non-default args: {'chat_template': '" + b"x" * 300_000 + b"', "
    data = log_bytes(CUT).replace(b"non-default args: {", long, 1)
    check(judged(data, 1), data, Right("gpu-oom-profile", root="12.50 GiB"))


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("load-0.8.5-lost-esc", "retry-then-ready"),
        ("free-0.32-excluding", "sigterm-0.26"),
        ("smallkv-llama-kv", "health-then-oom-request-llama"),
        ("nokv-sglang-0.5.12", "sglang-sigterm"),
    ],
)
def test_the_last_start_of_a_file_is_the_one_that_is_judged(
    first: str, second: str
) -> None:
    good, bad = log_bytes(second), log_bytes(first)
    assert judged(bad + good, None).outcome == "ready"
    assert judged(bad * 2 + good, None).outcome == "ready"
    right = FAILED[first]
    verdict = judged(good + bad, right.code)
    assert verdict.outcome == "failed"
    assert verdict.cause in right.causes.split("|")
    assert verdict.root_line is not None
    assert verdict.root_line > good.count(b"\n")
