"""What a dry run and the doctor say of nsys, before anything is started."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

RECIPE = """
name = "small"
engine = "embedded"
[workload]
input_tokens = 8
output_tokens = 16
concurrency = [1]
[capture]
tool = "nsys"
"""


def stepscope(folder: Path, *arguments: str) -> str:
    """Run it with nothing on PATH but what the folder ``bin`` holds."""
    (folder / "bin").mkdir(exist_ok=True)
    done = subprocess.run(
        [sys.executable, "-m", "stepscope", *arguments],
        cwd=folder,
        env={**os.environ, "PATH": str(folder / "bin")},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


def nsys_that_says(folder: Path, text: str) -> None:
    program = folder / "bin" / "nsys"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\necho '{text}'\n")
    program.chmod(0o755)


def test_a_dry_run_shows_the_words_of_nsys_and_only_where_they_are_used(
    tmp_path: Path,
) -> None:
    nsys_that_says(tmp_path, "")
    (tmp_path / "r.toml").write_text(RECIPE)
    measured, traced = stepscope(tmp_path, "run", "r.toml", "--dry-run").split(
        "# baseline-trace-l0\n"
    )
    assert "nsys" not in measured
    assert traced.startswith("nsys launch --session-new=stepscope-")
    assert "left out" not in traced


def test_a_dry_run_says_which_launch_is_left_out_without_nsys(tmp_path: Path) -> None:
    (tmp_path / "r.toml").write_text(RECIPE)
    shown = stepscope(tmp_path, "run", "r.toml", "--dry-run")
    traced = shown[shown.index("# baseline-trace-l0") :]
    assert "# left out on this machine: nsys is not on PATH" in traced


@pytest.mark.parametrize(
    ("says", "state", "found"),
    [
        ("NVIDIA Nsight Systems version 2025.3.2.474-1v0", "ok", "2025.3.2.474"),
        ("Segmentation fault", "limited", "it gives no version"),
        (None, "missing", "not on PATH"),
    ],
)
def test_the_doctor_asks_nsys_for_its_version(
    tmp_path: Path, says: str | None, state: str, found: str
) -> None:
    if says is not None:
        nsys_that_says(tmp_path, says)
    lines = json.loads(stepscope(tmp_path, "doctor", "--json"))["lines"]
    (line,) = [line for line in lines if line["name"] == "nsys"]
    assert line["state"] == state
    assert found in line["found"]
    assert bool(line["get"]) == (state != "ok")
