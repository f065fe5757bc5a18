"""``stepscope doctor`` on whatever machine this is."""

import json
import subprocess
import sys


def doctor(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "stepscope", "doctor", *arguments],
        capture_output=True,
        text=True,
        check=False,
    )


def test_it_says_what_is_there_and_how_to_get_the_rest() -> None:
    found = doctor("--json")
    assert found.returncode == 0
    document = json.loads(found.stdout)
    lines = {line["name"]: line for line in document["lines"]}
    assert lines["engine embedded"]["state"] == "ok"
    assert all(line["get"] for line in lines.values() if line["state"] == "missing")
    assert document["bandwidth"] is None


def test_bandwidth_without_a_gpu_is_one_line() -> None:
    found = doctor("--bandwidth")
    if found.returncode == 0:
        assert "TB/s read" in found.stdout
        return
    assert found.returncode == 3
    assert found.stderr.count("\n") == 1
