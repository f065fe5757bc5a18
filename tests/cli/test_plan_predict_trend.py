"""`plan`, `predict` and `trend` as a person calls them."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SHARED = ROOT.parent / "shared"
H200 = SHARED / "data" / "h200x1-qwen3moe-baseline"
GOLDEN = ROOT / "tests" / "data" / "runs" / "format1"
TINY = """
name = "tiny"
engine = "embedded"
[baseline.flags]
slots = 4
slot-context = 64
[workload]
input_tokens = 8
output_tokens = 16
concurrency = [4]
waves = 1
[warm_up]
blocks = 0
"""


def run(*args: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "stepscope", *map(str, args)],
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_plan_is_a_document_and_a_recipe_that_runs_dry(tmp_path: Path) -> None:
    out = tmp_path / "next.toml"
    done = run("plan", H200, "--budget-minutes", "8", "-o", out, "--json")
    assert done.returncode == 0
    assert done.stderr == ""
    document = json.loads(done.stdout)
    assert document["schema"] == 1
    assert document["minutes"] <= 8
    assert document["usd"] is None
    assert document["recipe"] in out.read_text("utf-8")
    assert out.read_text("utf-8").startswith("# What to measure after")
    dry = run("run", out, "--dry-run")
    assert dry.returncode == 0
    assert "serve /models/qwen3moe" in dry.stdout


def test_people_read_ranks_reasons_and_the_recipe() -> None:
    done = run("plan", H200, "--budget-minutes", "8")
    assert done.returncode == 0
    assert "1. the same cells under stepscope run" in done.stdout
    assert "decides " in done.stdout
    assert "because " in done.stdout
    assert "# LOOK HERE: model" in done.stdout


@pytest.mark.parametrize(
    ("args", "code", "said"),
    [
        (("plan", H200, "--budget-usd", "3"), 5, "no prices"),
        (("plan", H200, "--budget-minutes", "-1"), 2, "--budget-minutes"),
        (("plan", H200, "--budget-minutes", "nan"), 2, "--budget-minutes"),
        (("plan", "nowhere"), 2, "does not exist"),
        (("predict", H200, "--concurrency", "8,x"), 2, "--concurrency"),
        (("predict", H200, "--concurrency", "8", "--gpu", "abacus"), 2, "abacus"),
        (("predict", H200, "--concurrency", "8", "--configuration", "x"), 2, "'x'"),
        (("predict", H200, "--concurrency", "8", "--tp", "3"), 2, "attention heads"),
        (("predict", GOLDEN, "--concurrency", "8"), 5, "no step model"),
        (("trend", GOLDEN, GOLDEN), 5, "given before"),
    ],
)
def test_a_question_that_can_not_be_answered_is_one_line(
    args: tuple[str | Path, ...], code: int, said: str
) -> None:
    done = run(*args)
    assert done.returncode == code
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1
    assert said in done.stderr


def test_a_prediction_has_an_interval_for_every_figure() -> None:
    done = run("predict", H200, "--concurrency", "24", "--json")
    assert done.returncode == 0
    (point,) = json.loads(done.stdout)["predictions"][0]["points"]
    for name in ("step", "tpot", "ttft"):
        low, high = point[f"{name}_ci95_ms"]
        assert low < point[f"{name}_ms"] < high
    low, high = point["output_tokens_per_s_ci95"]
    assert low < point["output_tokens_per_s"] < high


def test_one_run_is_a_trend_of_one(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    done = run("trend", GOLDEN, "-o", page, "--json")
    assert done.returncode == 0
    document = json.loads(done.stdout)
    assert document["runs_needed"] == 20
    assert {s["runs_missing"] for s in document["series"]} == {19}
    assert [f["code"] for f in document["findings"]] == ["too-few-runs"]
    assert "too-few-runs" not in page.read_text("utf-8")
    assert "19 are missing" in page.read_text("utf-8")
    assert "<h1>1 run over time</h1>" in page.read_text("utf-8")
    told = run("trend", GOLDEN).stdout
    assert told.startswith("1 run, ")
    assert "1 runs" not in told + page.read_text("utf-8")


@pytest.mark.slow
def test_twenty_real_runs_are_looked_at_for_changes(tmp_path: Path) -> None:
    recipe = tmp_path / "tiny.toml"
    recipe.write_text(TINY, "utf-8")
    paths = [tmp_path / f"r{i:02}" for i in range(20)]
    for path in paths:
        assert run("run", recipe, "--out", path).returncode == 0
    done = run("trend", *paths, "--json")
    assert done.returncode == 0
    document = json.loads(done.stdout)
    assert document["identity_changes"] == []
    assert all(len(s["points"]) == 20 for s in document["series"])
    assert all(s["changes"] is not None for s in document["series"])
