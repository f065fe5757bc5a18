"""Boots of vLLM 0.26.0 that were made to fail on one H200."""

import gzip
from pathlib import Path

import pytest

from stepscope.analysis.boot.diagnose import diagnose
from stepscope.parse.serverlog import parse_log
from stepscope.run.serverlog import BootVerdict

LOGS = Path(__file__).parents[2] / "data" / "logs" / "h200"


def verdict(name: str) -> BootVerdict:
    data = gzip.decompress((LOGS / f"{name}.log.gz").read_bytes())
    return diagnose(parse_log(data, "vllm"), exit_code=1)


@pytest.mark.parametrize(
    ("name", "cause", "line"),
    [
        ("capture", "gpu-oom-sampler", 75),
        ("graphs", "gpu-oom-capture", 135),
        ("bad-arg", "bad-argument", 3),
        ("kv-small", "kv-smaller-than-context", 56),
        ("holder", "free-memory-below-request", 54),
    ],
)
def test_the_root_cause_is_found_under_its_wrappers(
    name: str, cause: str, line: int
) -> None:
    found = verdict(name)
    assert (found.outcome, found.cause, found.root_line) == ("failed", cause, line)


def test_a_number_that_ends_a_sentence_is_read() -> None:
    # "... --gpu-memory-utilization from 0.9945 to 0.9991." killed the reader.
    log = parse_log(gzip.decompress((LOGS / "capture.log.gz").read_bytes()), "vllm")
    assert log.ledger.graph_estimate_applied is False


def test_the_length_that_fits_is_the_one_that_booted() -> None:
    first = verdict("kv-small").fixes[0]
    # With --max-model-len 18896 the same server came up 44 s later.
    assert (first.flag, first.direction, first.value) == (
        "--max-model-len",
        "lower",
        18896,
    )


def test_room_for_the_graphs_is_computed_from_what_was_missing() -> None:
    first = verdict("graphs").fixes[0]
    # Asked for 0.12 GiB with 0.06 free of 139.80: 0.995 for that alone; the graphs
    # that follow are not in the message, so the value leaves room for more.
    assert (first.flag, first.direction) == ("--gpu-memory-utilization", "lower")
    assert first.value == 0.975
    assert "at most 0.995 for this allocation alone" in first.effect


def test_an_argument_with_a_slip_is_to_be_removed() -> None:
    # Without it the same command served 27 s after its first line.
    found = verdict("bad-arg")
    first, second = found.fixes
    assert (first.flag, first.direction) == ("--gpu-memory-utilizatoin", "remove")
    assert first.effect.endswith("did you mean --gpu-memory-utilization?")
    assert found.why.endswith("Did you mean --gpu-memory-utilization?")
    assert second.flag == "--gpu-memory-utilization"
    assert (second.direction, second.value) == ("set", "0.9")


def test_a_kill_with_an_empty_log_is_not_called_a_full_host() -> None:
    found = diagnose(parse_log(b"", None), exit_code=-9)
    assert (found.outcome, found.cause) == ("failed", "unknown")


def test_a_device_of_no_size_divides_nothing() -> None:
    line = (
        b"(EngineCore pid=10) ERROR 11-30 07:00:00 [core.py:100] ValueError:"
        b" Free memory on device cuda:0 (0.0/0.0 GiB) on startup is less than desired"
        b" GPU memory utilization (0.0, 0.0 GiB). Decrease GPU memory utilization or"
        b" reduce GPU memory used by other processes.\n"
    )
    found = diagnose(parse_log(line, "vllm"), exit_code=1)
    assert found.cause == "free-memory-below-request"


def test_two_data_parallel_ranks_are_read_as_one_gpu_each() -> None:
    log = parse_log(gzip.decompress((LOGS / "dp2-ep2.log.gz").read_bytes()), "vllm")
    found = diagnose(log, exit_code=None)
    ledger = log.ledger
    assert found.outcome == "ready"
    assert (ledger.weights_gib, ledger.kv_tokens) == (15.91, 3_496_048)
    # Latent attention keeps 512 + 64 values of two bytes in each of 27 layers.
    assert ledger.kv_gib is not None
    per_token = ledger.kv_gib * 2**30 / 3_496_048
    assert per_token == pytest.approx((512 + 64) * 2 * 27, rel=1e-4)
