"""What every command owes its caller: one line, the right code, whatever breaks."""

import gzip
import json
import os
import socket
import subprocess
import sys
from pathlib import Path

SHARED = Path(__file__).parents[2].parent / "shared" / "data"
STEPSCOPE = [sys.executable, "-m", "stepscope"]


def run(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [*STEPSCOPE, *arguments], capture_output=True, text=True, check=False
    )


def test_a_full_output_is_one_line_and_no_defect() -> None:
    with Path("/dev/full").open("w") as full:
        found = subprocess.run(
            [*STEPSCOPE, "doctor", "--json"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert found.returncode == 3
    assert found.stderr.count("\n") == 1
    assert "defect" not in found.stderr


def test_a_reader_that_leaves_early_is_no_failure() -> None:
    log = SHARED / "h200x1-qwen3moe-baseline" / "server.log.gz"
    line = f'{sys.executable} -m stepscope log "{log}" | head -1 >/dev/null'
    shell = f"set -o pipefail; {line}"
    assert subprocess.run(["bash", "-c", shell], check=False).returncode == 0


def test_a_reader_that_has_left_is_no_failure_of_any_command(tmp_path: Path) -> None:
    config = Path(__file__).parents[2] / "examples/post/config.json"
    for words in (("doctor",), ("floor", str(config), "--gpu", "B300")):
        gone, end = os.pipe()
        os.close(gone)
        found = subprocess.run(
            [*STEPSCOPE, *words],
            stdout=end,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
        os.close(end)
        assert (found.returncode, found.stderr) == (0, ""), words


def test_input_nested_too_deeply_is_damaged_input(tmp_path: Path) -> None:
    path = tmp_path / "deep.json"
    path.write_text("[" * 100_000)
    found = run("analyze", str(path))
    assert found.returncode == 4
    assert found.stderr.count("\n") == 1


def test_a_log_that_was_cut_says_so(tmp_path: Path) -> None:
    whole = (SHARED / "h200x1-boot-no-kv-memory" / "server.log").read_bytes()
    path = tmp_path / "l.gz"
    path.write_bytes(gzip.compress(whole)[:-200])
    document = json.loads(run("log", "--json", str(path)).stdout)
    assert "log-cut" in {finding["code"] for finding in document["findings"]}


def test_a_folder_is_no_trace(tmp_path: Path) -> None:
    found = run("trace", str(tmp_path))
    assert found.returncode == 2
    assert "is a folder" in found.stderr


def test_a_wrong_option_is_one_line(tmp_path: Path) -> None:
    for words in (
        ("bench", "--backend", "nope"),
        ("plan",),
        ("nope",),
        ("report", "--nope", "x"),
        ("plan", "x", "-o", str(tmp_path)),
    ):
        found = run(*words)
        assert found.returncode == 2, words
        assert found.stdout == ""
        assert found.stderr.count("\n") == 1, found.stderr
        assert "--help" in found.stderr


def test_an_error_names_any_path_in_one_line(tmp_path: Path) -> None:
    found = run("analyze", str(tmp_path / "a\nb\x1b[2J\N{RIGHT-TO-LEFT OVERRIDE}c"))
    assert found.returncode == 2
    assert found.stderr.count("\n") == 1
    assert found.stderr[:-1].isprintable()


def test_an_output_that_has_no_folder_is_a_wrong_path(tmp_path: Path) -> None:
    runs = Path(__file__).parents[1] / "data" / "runs" / "format1"
    found = run("trend", str(runs), "-o", str(tmp_path / "no" / "t.html"))
    assert found.returncode == 2
    assert "Check the path" in found.stderr


def test_a_trace_is_no_rank_beside_itself(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_text("[]")
    found = run("trace", str(path), f"{tmp_path}/./t.json")
    assert found.returncode == 2
    assert "given twice" in found.stderr


def test_no_number_is_no_untraced_step(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_text("[]")
    for number in ("nan", "inf"):
        found = run("trace", str(path), "--untraced-step-ms", number)
        assert found.returncode == 2
        assert found.stderr.startswith("--untraced-step-ms: ")


def test_a_recipe_of_an_editor_that_marks_its_bytes_is_read(tmp_path: Path) -> None:
    recipe = tmp_path / "r.toml"
    text = 'name = "r"\nengine = "embedded"\n[workload]\nconcurrency = [1]\n'
    text += "input_tokens = 8\noutput_tokens = 8\n"
    recipe.write_text(text, "utf-8-sig")
    assert run("run", str(recipe), "--dry-run").returncode == 0


def test_a_server_that_is_not_there_is_told_from_one_without_a_model() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    found = run("bench", "--base-url", f"http://127.0.0.1:{port}", "--num-prompts", "1")
    assert found.returncode == 3
    assert "no server answers there (Connection refused)" in found.stderr
    assert found.stderr.count("\n") == 1


def test_heads_that_can_not_be_shared_have_no_floor() -> None:
    config = Path(__file__).parents[2] / "examples/post/config.json"
    for degree in ("3", "999999999999999999999"):
        found = run("floor", str(config), "--gpu", "B300", "--tp", degree)
        assert found.returncode == 2
        assert found.stderr.startswith(f"--tp: {degree} does not divide the model's")


def test_a_run_that_measured_nothing_says_so_to_whoever_has_left(
    tmp_path: Path,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    recipe = tmp_path / "r.toml"
    recipe.write_text(
        f'name = "r"\nengine = "url"\nmodel = "m"\n'
        f'[server]\nbase_url = "http://127.0.0.1:{port}"\n'
        "[workload]\ninput_tokens = 4\noutput_tokens = 4\nconcurrency = [1]\n"
    )
    gone, end = os.pipe()
    os.close(gone)
    found = subprocess.run(
        [*STEPSCOPE, "run", str(recipe), "--out", str(tmp_path / "run")],
        stdout=end,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    os.close(end)
    assert found.returncode == 3
    assert "nothing was measured" in found.stderr
    assert (tmp_path / "run" / "report.html").is_file()
