"""The command: what it accepts, its one document, its exit codes."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from stepscope.archive.writer import RunWriter
from stepscope.cli.main import entry
from stepscope.recipe.records import Cost, Workload
from stepscope.run.run import Cell, Launch, Machine, Run, Summary, Timeline

SHARED = Path(__file__).parents[2].parent / "shared"
SWEEP = SHARED / "data/h200x1-qwen3moe-baseline"
DETAILS = SHARED / "data/h200x1-qwen3moe-iteration-details"
SECOND = 1_000_000_000
HOST = Machine(host="h", gpu_uuids=("GPU-1",), driver="580", container="c1", n_cpus=2)


Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def stepscope(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Command:
    """Call the command line as a shell does, in this process."""

    def call(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["stepscope", *map(str, arguments)])
        with pytest.raises(SystemExit) as left:
            entry()
        out, err = capfd.readouterr()
        return int(left.value.code or 0), out, err

    return call


def saved(
    folder: Path, rates: dict[str, list[list[float]]], machine: Machine = HOST
) -> Path:
    """A run with a launch for each list of rates, a run at 1, 2, 4 in each."""
    order = [
        (name, i) for i in range(4) for name in rates if i < len(rates[name])
    ]  # fmt: skip
    run = Run(
        id=folder.name,
        engine="vllm",
        timeline=Timeline(kind="monotonic", anchor_at_ns=0, anchor_unix_ns=10**18),
        machine=machine,
        cost=Cost(usd_per_core_hour=1.0, n_cores=6),
    )
    writer = RunWriter.create(folder, run)
    for at, (name, i) in enumerate(order):
        writer.put_launch(
            Launch(
                name=f"{name}-l{i}",
                configuration=name,
                command=("vllm", "serve", "m", f"--{name}"),
                ready=True,
                started_at_ns=60 * SECOND * at,
                stopped_at_ns=60 * SECOND * (at + 1),
            )
        )
        for row, rate in enumerate(rates[name][i]):
            writer.put_cell(cell(name, i, row, rate))
    writer.close(complete=True)
    return folder


def cell(name: str, launch: int, row: int, rate: float) -> Cell:
    concurrency = 2**row
    tokens = 6400 * concurrency
    return Cell(
        name=f"{name}-c{concurrency}-r{launch}",
        configuration=name,
        launch=f"{name}-l{launch}",
        repeat=launch,
        workload=Workload(
            concurrency=concurrency, n_prompts=64 * concurrency, output_tokens=100
        ),
        summary=Summary(
            n_completed=64 * concurrency,
            n_failed=0,
            duration_s=tokens / rate,
            input_tokens=None,
            output_tokens=tokens,
            stats={"tpot_ms": {"mean": 1000 * concurrency / rate}},
        ),
    )


#: Launches with half a percent of noise; rows of 100, 200 and 400 tokens/s.
QUIET = [[100.1, 199.5, 401.0], [99.8, 200.7, 399.1], [100.4, 199.9, 400.2]]


def scaled(by: float) -> list[list[float]]:
    """The same figures in another order, moved by a factor."""
    return [[by * x for x in launch] for launch in QUIET[::-1]]


def test_a_run_compares_its_configurations_with_the_first(
    stepscope: Command, tmp_path: Path
) -> None:
    rates = {"base": QUIET, "same": scaled(1), "slow": scaled(0.9)}
    run = saved(tmp_path / "run", rates)
    code, out, err = stepscope("compare", run, "--json")
    document = json.loads(out)
    assert (code, err) == (1, "")
    assert (document["a"], document["b"]) == ("base", ["same", "slow"])
    told = {(c["b"], c["verdict"]) for c in document["comparisons"]}
    assert told == {("same", "same"), ("slow", "slower")}
    assert {c["unit"] for c in document["comparisons"]} == {"launch"}
    assert document["order"] == "A B C A B C A B C"
    assert stepscope("compare", run, "--b", "same")[0] == 0
    assert stepscope("compare", f"{run}:slow", f"{run}:base")[0] == 0
    assert stepscope("compare", f"{run}:base", f"{run}:slow")[0] == 1
    # Without a name A is the baseline.
    assert stepscope("compare", run, f"{run}:slow")[0] == 1


def test_a_margin_decides_what_fails(stepscope: Command, tmp_path: Path) -> None:
    run = saved(tmp_path / "run", {"base": QUIET, "slow": scaled(0.95)})
    codes = {
        margin: stepscope("compare", run, "--fail-if-worse", margin)[0]
        for margin in ("2%", "5%", "8%")
    }
    assert codes == {"2%": 1, "5%": 5, "8%": 0}


def test_the_named_metric_decides(stepscope: Command, tmp_path: Path) -> None:
    run = saved(tmp_path / "run", {"base": QUIET, "slow": scaled(0.9)})
    code, out, _ = stepscope("compare", run, "--metric", "tpot_ms", "--json")
    document = json.loads(out)
    assert (code, document["metric"]) == (1, "tpot_ms")
    assert {c["metric"] for c in document["comparisons"]} == {"tpot_ms"}


def test_two_runs_of_one_machine_are_one_session(
    stepscope: Command, tmp_path: Path
) -> None:
    a = saved(tmp_path / "old", {"base": QUIET})
    b = saved(tmp_path / "new", {"base": scaled(0.9)})
    code, out, _ = stepscope("compare", a, b, "--json")
    document = json.loads(out)
    assert code == 1
    assert (document["a"], document["b"]) == ("old:base", ["new:base"])
    assert "GPU-1" in document["sessions"]["old:base"][0]


def test_two_machines_are_compared_through_what_both_measured(
    stepscope: Command, tmp_path: Path
) -> None:
    there = msgspec.structs.replace(HOST, gpu_uuids=("GPU-2",))
    a = saved(tmp_path / "old", {"base": QUIET})
    b = saved(tmp_path / "new", {"patch": scaled(0.7)}, there)
    code, out, err = stepscope("compare", a, b, "--json")
    document = json.loads(out)
    assert code == 5
    assert document["comparisons"] == []
    assert len(document["not_compared"]) == 6
    assert "anchor" in document["what_to_run"]
    assert len(err.splitlines()) == 1
    both = saved(tmp_path / "both", {"base": scaled(0.7), "patch": scaled(0.77)}, there)
    code, out, _ = stepscope("compare", a, both, "--b", "patch", "--json")
    document = json.loads(out)
    assert code == 0
    assert {c["anchor"] for c in document["comparisons"]} == {"old:base"}
    assert document["pooled"][0]["delta_pct"] == pytest.approx(10, abs=0.5)


def test_two_bare_results_have_a_difference_and_no_interval(stepscope: Command) -> None:
    a, b = SWEEP / "c64_1.json.gz", DETAILS / "c64_0.json.gz"
    code, out, err = stepscope("compare", a, b, "--json")
    document = json.loads(out)
    assert code == 5
    rate = document["comparisons"][0]
    assert rate["metric"] == "output_tokens_per_s"
    assert rate["delta_pct"] == pytest.approx(0.16, abs=0.02)
    assert rate["ci95_pct"] is None
    assert rate["verdict"] == "undetermined"
    assert "n_launches" in document["what_to_run"]
    assert [f["code"] for f in document["findings"]] == ["session-unknown"]
    assert len(err.splitlines()) == 1


def test_two_sweeps_of_unknown_sessions_get_no_verdict(stepscope: Command) -> None:
    code, out, _ = stepscope("compare", SWEEP, DETAILS, "--json")
    document = json.loads(out)
    assert code == 5
    assert {c["verdict"] for c in document["comparisons"]} == {"undetermined"}
    assert {c["ci95_pct"] for c in document["comparisons"]} == {None}
    assert {c["runs_needed"] for c in document["comparisons"]} == {None}
    assert {c["concurrency"] for c in document["comparisons"]} == {16, 64, 256}
    stalled = [c for c in document["comparisons"] if c["concurrency"] == 16]
    assert all("stall" in c["reason"] for c in stalled)
    left = {x["cell"]: x["reason"] for x in document["left_out"]}
    assert left["c512_0"] == "client-bound"
    assert "c256_0" in left


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("nowhere",), 2, "does not exist"),
        ((SWEEP,), 2, "nothing to compare baseline with"),
        ((SWEEP, SWEEP), 2, "given as A and as B"),
        ((SWEEP, "--a", "x"), 2, "no configuration 'x'"),
        ((SWEEP, DETAILS, SWEEP), 2, "3 paths"),
        ((SWEEP, DETAILS, "--fail-if-worse", "much"), 2, "such as 2%"),
        ((SWEEP / "server.log.gz", DETAILS), 4, "server.log.gz"),
    ],
)
def test_what_can_not_be_compared_is_one_line(
    stepscope: Command, arguments: tuple[object, ...], code: int, words: str
) -> None:
    got, out, err = stepscope("compare", *arguments)
    assert (got, out) == (code, "")
    assert words in err
    assert len(err.strip().splitlines()) == 1


@pytest.mark.parametrize("words", [(), ("--json",)])
def test_a_verdict_that_nobody_reads_is_still_the_exit_code(
    tmp_path: Path, words: tuple[str, ...]
) -> None:
    run = saved(tmp_path / "run", {"base": QUIET, "slow": scaled(0.9)})
    command = [sys.executable, "-m", "stepscope", "compare", str(run), *words]
    with Path(os.devnull).open("w") as nothing:
        found = subprocess.run(command, stdout=nothing, check=False)
    assert found.returncode == 1
    gone, end = os.pipe()
    os.close(gone)
    found = subprocess.run(command, stdout=end, stderr=subprocess.PIPE, check=False)
    os.close(end)
    assert (found.returncode, found.stderr) == (1, b"")


def test_the_printed_page_says_the_answer_first(
    stepscope: Command, tmp_path: Path
) -> None:
    run = saved(tmp_path / "run", {"base": QUIET, "slow": scaled(0.9)})
    code, out, _ = stepscope("compare", run)
    assert code == 1
    assert out.startswith("slow is worse than base in output_tokens_per_s.")
    assert "-10.0" in out
    assert "slower" in out
    assert "order-unbalanced" in out


def test_a_configuration_may_hold_colons(stepscope: Command, tmp_path: Path) -> None:
    run = saved(tmp_path / "run", {"base": QUIET, "kv:fp8:e4m3": scaled(0.9)})
    code, out, _ = stepscope("compare", f"{run}:base", f"{run}:kv:fp8:e4m3", "--json")
    assert (code, json.loads(out)["b"]) == (1, ["kv:fp8:e4m3"])
    code, _, err = stepscope("compare", f"{run}:base", f"{run}:kv:none")
    assert code == 2
    assert "no configuration 'kv:none'" in err
    assert "does not exist" in stepscope("compare", "nowhere:kv:none")[2]


def test_different_models_are_said(stepscope: Command, tmp_path: Path) -> None:
    a, b = tmp_path / "a.json", tmp_path / "b.json"
    raw = {
        "duration": 2.0, "completed": 8, "failed": 0, "num_prompts": 8,
        "max_concurrency": 4, "total_input_tokens": 80, "total_output_tokens": 800,
        "mean_ttft_ms": 20.0, "mean_tpot_ms": 9.0,
    }  # fmt: skip
    a.write_text(json.dumps(raw | {"model_id": "small"}))
    b.write_text(json.dumps(raw | {"model_id": "large"}))
    code, out, _ = stepscope("compare", a, b, "--json")
    assert code == 5
    note = {f["code"]: f["message"] for f in json.loads(out)["findings"]}
    assert "a.json: small, b.json: large" in note["different-models"]
    b.write_text(json.dumps(raw | {"model_id": "small"}))
    codes = {
        f["code"]
        for f in json.loads(stepscope("compare", a, b, "--json")[1])["findings"]
    }
    assert "different-models" not in codes


def test_loads_of_an_open_loop_are_told_apart(
    stepscope: Command, tmp_path: Path
) -> None:
    raw = {
        "duration": 2.0, "completed": 8, "failed": 0, "num_prompts": 8,
        "total_input_tokens": 80, "total_output_tokens": 800,
        "mean_ttft_ms": 20.0, "mean_tpot_ms": 9.0,
    }  # fmt: skip
    for side in "ab":
        (tmp_path / side).mkdir()
        for rate in (2.5, 40.0, "inf"):
            text = json.dumps(raw | {"request_rate": rate})
            (tmp_path / side / f"{rate}.json").write_text(text)
    _, out, _ = stepscope("compare", tmp_path / "a", tmp_path / "b")
    # Throughput is compared where there is no schedule, latencies everywhere.
    assert [out.count(f"\n{load} ") for load in ("at once", "2.5/s", "40/s")] == [
        3,
        2,
        2,
    ]
