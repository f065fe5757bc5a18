"""Public boot failures, retold in the wording of their versions (tests/data/logs)."""

from pathlib import Path

import pytest

from stepscope.analysis.boot.diagnose import diagnose
from stepscope.parse.serverlog import parse_log
from stepscope.run.serverlog import BootVerdict, Fix, ServerLog

LOGS = Path(__file__).parents[2] / "data" / "logs" / "boot"


def judged(name: str) -> tuple[ServerLog, BootVerdict, list[str]]:
    data = (LOGS / f"{name}.log").read_bytes()
    log = parse_log(data)
    return log, diagnose(log), data.decode().split("\n")


#: name -> (cause, words of the root line)
FAILED = {
    "02-builtin-memory-error": ("gpu-oom-warmup-after-kv", "MemoryError: CUDA out"),
    "03-large-bucket": ("gpu-oom-warmup-after-kv", "allocate 12.22 GiB"),
    "05-sampler-not-profiled": ("gpu-oom-sampler", "allocate 608.00 MiB"),
    "05b-sampler-message": ("gpu-oom-sampler", "with 1024 dummy requests"),
    "07-sglang-first-batch": ("gpu-oom-runtime", "allocate 1.34 GiB"),
    "07b-sglang-not-enough": ("no-kv-memory", "Not enough memory"),
    "07c-sglang-capture": ("gpu-oom-capture", "allocate 600.00 MiB. GPU 0"),
    "08-over-estimate": ("no-kv-memory", "ValueError: No available memory"),
    "11-capture-under-estimate": ("gpu-oom-capture", "allocate 512.00 MiB"),
    "13-negative-estimate": ("gpu-oom-warmup-after-kv", "allocate 71.40 GiB"),
    "15-first-request-triton": ("gpu-oom-runtime", "Triton Error [CUDA]"),
    "16-peak-of-many-sequences": ("no-kv-memory", "ValueError: No available memory"),
    "17-mamba-blocks": ("mamba-blocks", "available Mamba cache blocks (969)"),
    "19-context-too-long": ("kv-smaller-than-context", "max seq len (131072)"),
    "20-share-too-small": ("no-kv-memory", "ValueError: No available memory"),
    "21-memory-race": ("memory-race", "AssertionError: Error in memory profiling"),
    "24-page-cache-counts": ("free-memory-below-request", "(74.9/142.5 GiB)"),
    "25-unified-memory": ("gpu-oom-load", "NV_ERR_NO_MEMORY"),
    "27-wsl-keeps-some": ("free-memory-below-request", "(30.12/31.84 GiB)"),
    "29-kernel-kill": ("host-oom-kill", "Killed process 31337"),
    "30-streamer-kill": ("host-oom-kill", "Killed"),
    "31-minus-nine": ("host-oom-kill", "worker died (-9)"),
    "32-nccl-shared-memory": ("shm-exhausted", "/dev/shm/nccl-"),
    "32b-nccl-system-error": ("nccl-system-error", "ncclSystemError"),
    "35b-hang-after-capture": ("hang", "Graph capturing finished"),
    "37-toolkit-too-old": ("missing-toolchain", "No supported CUDA architectures"),
    "37b-new-gpu-called-old": ("missing-toolchain", "sm75 or higher"),
    "37c-old-gpu": ("unsupported-arch", "sm75 or higher"),
    "38-nvcc-option": ("missing-toolchain", "Unknown option '--compress-mode"),
    "39-piecewise-unavailable": ("bad-argument", "piecewise CUDA graphs"),
    "42-workspace-at-load": ("gpu-oom-load", "allocate 1.20 GiB"),
    "43-allocator-clash": ("bad-argument", "Expandable segments are not"),
    "44-illegal-access": ("unknown", "illegal memory access"),
    "45-llama-context": ("kv-smaller-than-context", "allocating 32768.00 MiB"),
    "46-llama-weights": ("gpu-oom-load", "allocating 39979.48 MiB"),
    "47-llama-host": ("unknown", "failed to allocate SYCL_Host buffer"),
    "48-llama-no-file": ("model-not-found", "failed to open GGUF file"),
    "49-key-error": ("unknown", "KeyError: 'layers.0.mlp"),
    "50-port-late": ("port-in-use", "[Errno 98]"),
    "51-port-early": ("port-in-use", "[Errno 98]"),
    "52-unknown-flag": ("bad-argument", "unrecognized arguments"),
    "53-model-name": ("model-not-found", "is not a local folder"),
    "54-ready-timeout": ("ready-timeout", "Timed out waiting"),
    "55-package-bare-traceback": ("missing-package", "No module named 'flash_mla'"),
    "56-profile-run": ("gpu-oom-profile", "allocate 9.25 GiB"),
    "57-load-oom-tenant": ("gpu-oom-load", "allocate 448.00 MiB"),
    "61-killed-while-serving": ("unknown", "exit code: -9"),
    "62-peer-first": ("gpu-oom-warmup-after-kv", "allocate 2.00 GiB"),
    "63-json": ("no-kv-memory", "No available memory"),
    "64-docker-colour": ("free-memory-below-request", "(10.12/79.11 GiB)"),
}


@pytest.mark.parametrize("name", FAILED)
def test_each_public_failure_gets_its_cause_and_its_first_line(name: str) -> None:
    cause, words = FAILED[name]
    _, verdict, lines = judged(name)
    assert (verdict.outcome, verdict.cause) == ("failed", cause)
    assert verdict.root_line is not None
    assert words in lines[verdict.root_line - 1]


@pytest.mark.parametrize(
    "name", ["01-autotune-falls-back", "60-healthy-interrupted", "65-cri-healthy"]
)
def test_nothing_is_wrong_with_a_server_that_came_up(name: str) -> None:
    _, verdict, _ = judged(name)
    assert verdict.outcome == "ready"
    assert verdict.cause is None
    assert verdict.fixes == ()


@pytest.mark.parametrize("name", ["26-log-ends-in-profile", "35-slow-load"])
def test_a_log_that_only_ends_is_unfinished(name: str) -> None:
    _, verdict, _ = judged(name)
    assert verdict.outcome == "unfinished"
    assert verdict.cause is None


def test_every_case_in_the_folder_is_judged() -> None:
    healthy = {
        "01-autotune-falls-back",
        "26-log-ends-in-profile",
        "35-slow-load",
        "60-healthy-interrupted",
        "65-cri-healthy",
    }
    assert {p.stem for p in LOGS.glob("*.log")} == set(FAILED) | healthy


def first_fix(name: str, flag: str) -> Fix:
    _, verdict, _ = judged(name)
    found = [fix for fix in verdict.fixes if fix.flag == flag]
    assert found, [fix.flag for fix in verdict.fixes]
    return found[0]


SHARE = "--gpu-memory-utilization"


@pytest.mark.parametrize(
    ("name", "flag", "direction", "value"),
    [
        # 4.06 asked, 2.86 free and 2.50 for graphs, of 178.35.
        ("02-builtin-memory-error", SHARE, "lower", 0.879),
        # 12.22 asked and 9.68 free, of 178.35.
        ("03-large-bucket", SHARE, "lower", 0.905),
        ("03-large-bucket", "--max-num-batched-tokens", "lower", 16384),
        # The printed parts exceed the request by 2.04 of 79.11 GiB.
        ("05-sampler-not-profiled", SHARE, "lower", 0.894),
        ("05b-sampler-message", "--max-num-seqs", "lower", 512),
        # Of 78.1 free, 40 for weights and 1 for the cache.
        ("07b-sglang-not-enough", "--mem-fraction-static", "raise", 0.53),
        ("08-over-estimate", "VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS", "set", "0"),
        ("16-peak-of-many-sequences", "--max-num-seqs", "lower", 256),
        ("17-mamba-blocks", "--max-num-seqs", "lower", 969),
        ("19-context-too-long", "--max-model-len", "lower", 54432),
        # 1.35 missing and 1 for the cache, of 79.2.
        ("20-share-too-small", SHARE, "raise", 0.08),
        ("27-wsl-keeps-some", SHARE, "lower", 0.93),
        ("39-piecewise-unavailable", "VLLM_USE_BREAKABLE_CUDAGRAPH", "set", "1"),
        ("55-package-bare-traceback", "pip install", "set", "flash_mla"),
        # 500 s for 24 of 48 shards: (600 + 500) x 1.5
        ("54-ready-timeout", "VLLM_ENGINE_READY_TIMEOUT_S", "raise", 1650),
    ],
)
def test_a_fix_has_the_value_that_the_ledger_gives(
    name: str, flag: str, direction: str, value: float | str
) -> None:
    fix = first_fix(name, flag)
    assert fix.direction == direction
    assert (
        fix.value == pytest.approx(value)
        if isinstance(value, float)
        else (fix.value == value)
    )


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("02-builtin-memory-error", "Host memory ran out"),
        ("03-large-bucket", "Raise --gpu-memory-utilization"),
        ("08-over-estimate", "The budget is too small"),
        ("21-memory-race", "Lower --gpu-memory-utilization"),
        ("42-workspace-at-load", "Lower --gpu-memory-utilization"),
        ("43-allocator-clash", "GPU memory ran out"),
        ("37b-new-gpu-called-old", "The GPU is too old"),
        ("32-nccl-shared-memory", "The network or NCCL is broken"),
        ("35-slow-load", "No available shared memory broadcast block"),
    ],
)
def test_the_tempting_reading_is_refuted(name: str, words: str) -> None:
    _, verdict, _ = judged(name)
    assert any(words in reading for reading in verdict.wrong_readings)


def test_a_tenant_is_to_be_removed_and_the_share_left_alone() -> None:
    _, verdict, _ = judged("64-docker-colour")
    assert [fix.direction for fix in verdict.fixes] == ["remove"]


def test_an_untuned_server_is_ready_and_says_so() -> None:
    log, verdict, _ = judged("01-autotune-falls-back")
    assert "autotune-oom" in [f.code for f in log.findings]
    assert any("untuned" in reading for reading in verdict.wrong_readings)


def test_a_kill_is_only_certain_with_the_kernels_word() -> None:
    certain = first_fix("29-kernel-kill", "memory limit of the container")
    assert certain.confidence == "high"
    # 146.2 GiB that could not be reclaimed, four ranks, a quarter on top.
    assert certain.value == 731
    suspected = first_fix("31-minus-nine", "memory limit of the container")
    assert suspected.confidence == "medium"
    assert suspected.value is None


#: What the rest of a log says rightly where the root was cut away.
OF_THE_REST = {
    "32-nccl-shared-memory": "nccl-system-error",
    "62-peer-first": "nccl-system-error",
}


@pytest.mark.parametrize("name", sorted(p.stem for p in LOGS.glob("*.log")))
def test_a_public_log_that_was_cut_gets_its_cause_or_none(name: str) -> None:
    data = (LOGS / f"{name}.log").read_bytes()
    causes = {diagnose(parse_log(data)).cause, OF_THE_REST.get(name), "unknown", None}
    lines = data.split(b"\n")
    for at in range(1, len(lines), 3):
        for part in (lines[:at], lines[at:]):
            log = parse_log(b"\n".join(part))
            for code in (None, 1):
                verdict = diagnose(log, exit_code=code)
                assert verdict.cause in causes, (at, code, verdict)
