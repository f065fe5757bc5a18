"""`stepscope log`: exit codes, JSON keys, the printed verdict."""

import gzip
import json
import subprocess
import sys
from pathlib import Path

LOGS = Path(__file__).parents[1] / "data" / "logs"


def run(*args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "stepscope", "log", *args],
        capture_output=True,
        text=True,
        check=False,
    )


def test_equal_stamps_of_whole_seconds_are_not_told_as_no_time() -> None:
    """vLLM stamps seconds: the KV cache of two H200s was laid out within one."""
    lines = run(str(LOGS / "h200" / "dp2-ep2.log.gz")).stdout.splitlines()
    (told,) = [line for line in lines if line.split()[:1] == ["kv_alloc"]]
    assert "< 1 s" in told
    assert " 0.0 s" not in told


def test_json_has_the_contracts_keys() -> None:
    done = run(str(LOGS / "vllm-dsv41-warmup-oom.log"), "--json")
    assert done.returncode == 0
    assert done.stderr == ""
    document = json.loads(done.stdout)
    assert {"engine", "version", "resolved", "non_default_args", "phases", "ledger",
            "capture_passes", "verdict"} <= set(document)  # fmt: skip
    assert {"device_gib", "requested_gib", "utilization", "weights_gib",
            "non_torch_gib", "activation_peak_gib", "graph_estimate_gib",
            "graph_estimate_applied", "graph_actual_gib", "kv_gib", "kv_tokens",
            "max_concurrency", "free_at_start_gib",
            "unaccounted_gib"} <= set(document["ledger"])  # fmt: skip
    assert {"name", "seconds", "process"} <= set(document["phases"][0])
    assert {"purpose", "modes", "n_graphs", "seconds", "gib"} <= set(
        document["capture_passes"][0]
    )
    verdict = document["verdict"]
    assert set(verdict) == {"outcome", "cause", "root_line", "process", "why", "fixes",
                            "wrong_readings"}  # fmt: skip
    assert set(verdict["fixes"][0]) == {"flag", "direction", "value", "effect",
                                        "confidence"}  # fmt: skip
    assert document["ledger"]["non_torch_gib"] is None


def test_people_read_the_verdict_first() -> None:
    done = run(str(LOGS / "boot" / "17-mamba-blocks.log"))
    assert done.returncode == 0
    assert "failed: mamba-blocks (line 15, EngineCore)" in done.stdout
    assert "lower --max-num-seqs 969" in done.stdout


def test_a_missing_file_is_exit_2_and_one_line() -> None:
    done = run(str(LOGS / "none.log"))
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert "no such file" in done.stderr


def test_a_folder_is_exit_2() -> None:
    assert run(str(LOGS)).returncode == 2


def test_bytes_that_are_no_log_get_an_honest_verdict(tmp_path: Path) -> None:
    for name, data in (("empty", b""), ("binary", bytes(range(256)) * 50)):
        path = tmp_path / name
        path.write_bytes(data)
        done = run(str(path), "--json")
        assert done.returncode == 0
        document = json.loads(done.stdout)
        assert document["engine"] is None
        assert document["verdict"]["outcome"] == "unfinished"
        assert document["verdict"]["cause"] is None
        assert document["findings"][0]["code"] == "unknown-log-version"


def test_gzip_is_read_as_it_is_even_when_cut(tmp_path: Path) -> None:
    packed = gzip.compress((LOGS / "vllm-dsv41-baseline.log").read_bytes())
    (tmp_path / "whole.gz").write_bytes(packed)
    (tmp_path / "cut.gz").write_bytes(packed[: len(packed) // 2])
    (tmp_path / "bad.gz").write_bytes(b"\x1f\x8bno gzip at all")
    whole = json.loads(run(str(tmp_path / "whole.gz"), "--json").stdout)
    assert whole["verdict"]["outcome"] == "ready"
    cut = json.loads(run(str(tmp_path / "cut.gz"), "--json").stdout)
    assert cut["verdict"]["outcome"] == "unfinished"
    assert run(str(tmp_path / "bad.gz")).returncode == 4


def test_an_exit_code_turns_silence_into_a_kill() -> None:
    path = str(LOGS / "boot" / "26-log-ends-in-profile.log")
    calm = json.loads(run(path, "--json").stdout)["verdict"]
    assert calm["outcome"] == "unfinished"
    crashed = json.loads(run(path, "--json", "--exit-code", "139").stdout)["verdict"]
    assert (crashed["outcome"], crashed["cause"]) == ("failed", "unknown")
    assert "SIGSEGV" in crashed["why"]
