"""`explain = true` on the real embedded engine: judge, choose, measure, judge again."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from stepscope.archive.reader import open_run

pytest.importorskip("xllamacpp", reason="the embedded engine is not installed")

RECIPE = """
name = "small"
engine = "embedded"
explain = {explain}
[baseline.flags]
slots = 2
slot-context = 128
threads = 2
[workload]
input_tokens = 8
output_tokens = 32
concurrency = [1]
n_prompts = 4
[warm_up]
concurrency = 1
blocks = 1
"""


def stepscope(*words: str, cwd: Path) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "stepscope", *words],
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("explain", ["true", "{ minutes = 0.001 }"])
def test_what_it_runs_joins_the_run_and_is_told_before_and_after(
    tmp_path: Path, explain: str
) -> None:
    # How busy the threads look decides whether their cause is open: all outcomes hold.
    (tmp_path / "recipe.toml").write_text(RECIPE.format(explain=explain))
    done = stepscope("run", "recipe.toml", "--out", "run", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "no further experiment: " in done.stderr
    run = open_run(tmp_path / "run")
    assert run.complete
    assert [c.name for c in run.cells if c.launch == "baseline-l0"] == [
        "baseline-warm0",
        "baseline-c1-r0",
    ]
    added = [x for x in run.launches if x.experiment is not None]
    told = stepscope("analyze", "run", "--json", cwd=tmp_path)
    document = json.loads(told.stdout)
    chosen = [e for e in document["experiments"] if e["chosen"] is not None]
    assert [e["chosen"]["launches"] for e in chosen] == [[x.name] for x in added]
    if explain != "true":
        assert added == []
    for launch, one in zip(added, chosen, strict=True):
        assert launch.name == "baseline-threads-x0"
        assert "--threads 1" in " ".join(launch.command)
        assert one["change"] == "threads"
        before = one["chosen"]["before"]
        assert [t["hypothesis"] for t in before] == ["compute"]
        assert before[0]["status"] in ("standing", "untestable")
        assert one["chosen"]["after"]
        assert one["moved"][0]["outcome"] in (
            "longer",
            "shorter",
            "unchanged",
            "needs-launches",
        )
        assert "chosen to decide compute" in done.stdout
