"""The figures of a published 8-GPU start, from its log lines (tests/data/logs)."""

from pathlib import Path

import pytest

from stepscope.analysis.boot.diagnose import diagnose
from stepscope.analysis.boot.explain import audited_suggestions, kv_reading
from stepscope.parse.serverlog import parse_log
from stepscope.run.serverlog import ServerLog

LOGS = Path(__file__).parents[2] / "data" / "logs"


def parsed(name: str) -> ServerLog:
    return parse_log((LOGS / f"vllm-dsv41-{name}.log").read_bytes())


def test_the_first_ceiling_is_the_warm_up_after_the_cache() -> None:
    log = parsed("warmup-oom")
    verdict = diagnose(log)
    assert log.ledger.requested_gib == pytest.approx(246.27, abs=0.005)
    assert log.ledger.kv_gib == 167.35
    assert verdict.cause == "gpu-oom-warmup-after-kv"
    assert verdict.process == "Worker_DP3_EP3"
    fix = verdict.fixes[0]
    assert fix.flag == "--gpu-memory-utilization"
    assert fix.direction == "lower"
    # (1.85 - 1.22 + 9.61) / 267.69 below 0.92; without the graphs 0.63 / 267.69.
    assert fix.value == 0.881
    assert "at most 0.917" in fix.effect
    assert "tokens" in fix.effect
    assert any(w.startswith("Raise --gpu-mem") for w in verdict.wrong_readings)


def test_the_second_ceiling_is_a_kill_without_a_word() -> None:
    log = parsed("silent-kill")
    verdict = diagnose(log)
    assert (verdict.outcome, verdict.cause) == ("failed", "host-oom-kill")
    assert log.boot.pinned_host_gib == pytest.approx(188.8, abs=0.05)
    assert (log.boot.shards_loaded, log.boot.shards_total) == (20, 48)
    limit = verdict.fixes[0]
    assert limit.value is None
    assert "at least 316 GiB" in limit.effect


def test_with_the_checkpoints_size_the_host_need_is_a_number() -> None:
    text = (LOGS / "vllm-dsv41-silent-kill.log").read_text().split("\n")
    known = (
        "(EngineCore_DP0 pid=100) (Worker_DP0_EP0 pid=200) INFO 09-11 22:24:15"
        " [weight_utils.py:900] Auto-prefetch is disabled because the filesystem"
        " (OVERLAY) is local and the checkpoint size (475.25 GiB) exceeds 90% of"
        " available RAM (400.00 GiB)."
    )
    log = parse_log("\n".join([*text[:40], known, *text[40:]]).encode())
    assert log.boot.host_memory_gib == 400.0
    # The start with this memory limit raised peaked at 792.1 GiB.
    assert diagnose(log).fixes[0].value == pytest.approx(792, abs=1)


@pytest.mark.parametrize(
    ("name", "weights", "kv", "tokens", "concurrency", "graphs", "peak"),
    [
        ("baseline", 45.11, 129.87, 51_558_777, 49.17, 9.61, 27.7),
        ("engram-on-gpu", 68.72, 106.33, 42_213_340, 40.26, 9.61, 27.7),
        ("short-context", 45.11, 145.71, 5_066_461, 1236.93, 5.13, 15.78),
    ],
)
def test_the_ledger_of_a_good_start_closes(
    name: str,
    weights: float,
    kv: float,
    tokens: int,
    concurrency: float,
    graphs: float,
    peak: float,
) -> None:
    ledger = parsed(name).ledger
    assert ledger.device_gib == 267.69
    assert ledger.requested_gib == 208.8
    assert ledger.weights_gib == weights
    assert ledger.kv_gib == kv
    assert ledger.kv_tokens == tokens
    assert ledger.max_concurrency == concurrency
    assert ledger.graph_actual_gib == graphs
    # From 0.27 the printed peak contains the applied estimate.
    assert ledger.peak_logged_gib == peak
    assert ledger.peak_contains_estimate
    assert ledger.graph_estimate_applied
    assert ledger.graph_estimate_gib == pytest.approx(graphs, abs=0.02)
    assert ledger.unaccounted_gib == pytest.approx(0, abs=0.05)
    parts = (
        ledger.weights_gib,
        ledger.non_torch_gib,
        ledger.activation_peak_gib,
        ledger.graph_estimate_gib,
        ledger.kv_gib,
        ledger.unaccounted_gib,
    )
    assert sum(p for p in parts if p is not None) == pytest.approx(208.8)


def test_two_capture_passes_are_told_apart() -> None:
    profile, real = parsed("baseline").capture_passes
    assert (profile.purpose, real.purpose) == ("profile", "real")
    assert profile.modes == real.modes == ("PIECEWISE", "FULL")
    assert (profile.n_graphs, profile.seconds) == (85, 117)
    assert (real.n_graphs, real.seconds, real.gib) == (166, 45, 9.61)


def test_the_cache_hint_counts_graphs_twice_since_0_27() -> None:
    hints = [
        s for s in audited_suggestions(parsed("baseline"))
        if s.flag == "--kv-cache-memory"
    ]  # fmt: skip
    fit = hints[0]
    assert fit.sound is False
    assert "twice" in fit.why
    assert isinstance(fit.value, int)
    assert isinstance(fit.better, int)
    assert fit.better - fit.value == pytest.approx(9.61 * 2**30, rel=1e-6)


def test_bytes_per_token_are_called_an_average() -> None:
    reading = kv_reading(parsed("baseline"))
    assert reading.bytes_per_token == pytest.approx(2704.6, abs=0.1)
    assert reading.request_gib == pytest.approx(129.87 / 49.17)
    assert "average" in reading.text


def test_an_unknown_version_is_said_and_still_read() -> None:
    log = parsed("baseline")
    assert log.version == "0.1.dev20904+g179dd0fa9"
    assert "unknown-log-version" in [f.code for f in log.findings]


def test_settings_that_were_resolved_silently_have_their_lines() -> None:
    log = parsed("baseline")
    lines = (LOGS / "vllm-dsv41-baseline.log").read_text().split("\n")
    for name, value, words in (
        ("async_scheduling", True, "Disabling NCCL for DP synchronization"),
        ("engram_cpu_offload", True, "Engram table offloaded"),
        ("moe_backend", "FLASHINFER_TRTLLM", "Mxfp4 MoE backend"),
        ("breakable_cudagraph", True, "Auto-enabling"),
        ("world_size", 8, "in world size 8"),
        ("max_model_len", 1048576, "Using max model len"),
    ):
        assert log.resolved[name] == value
        assert words in lines[log.resolved_lines[name] - 1]
