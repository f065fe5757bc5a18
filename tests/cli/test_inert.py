"""No name and no log line steers the terminal that it is shown on."""

import io
import subprocess
import sys
from pathlib import Path
from typing import Any

from stepscope.cli.inert import Inert, inert

STEPSCOPE = [sys.executable, "-m", "stepscope"]
EVIL = "a\\u001b[2Jb\\u001b]0;pwn\\u0007c\\u202ed\\u009b5A"
BENCH = """{"date": "20261130-000000", "num_prompts": 1, "completed": 1,
"duration": 1.0, "total_input_tokens": 8, "total_output_tokens": 8,
"max_concurrency": 1, "mean_tpot_ms": 10.0, "mean_ttft_ms": 10.0}"""


def shown(tmp_path: Path, *words: str) -> bytes:
    (tmp_path / "r.json").write_text(BENCH)
    spec = tmp_path / "import.toml"
    spec.write_text(
        f'[run]\nengine = "vllm"\nmodel = "{EVIL}"\n[[cell]]\nname = "{EVIL}"\n'
        f'configuration = "{EVIL}"\nresults = ["r.json"]\n'
    )
    found = subprocess.run(
        [*STEPSCOPE, *words, str(spec)], capture_output=True, check=True
    )
    return found.stdout


def test_a_summary_holds_no_escape_of_a_name(tmp_path: Path) -> None:
    out = shown(tmp_path, "analyze").decode()
    assert "pwn" in out
    assert not set(out) & {"\x1b", "\x07", "\x9b", "\N{RIGHT-TO-LEFT OVERRIDE}"}


def test_a_query_holds_no_escape_of_a_model(tmp_path: Path) -> None:
    out = shown(tmp_path, "query", "SELECT model FROM runs").decode()
    assert "pwn" in out
    assert not set(out) & {"\x1b", "\x07", "\x9b", "\N{RIGHT-TO-LEFT OVERRIDE}"}


def test_colours_lines_and_tabs_pass() -> None:
    for text in ("\x1b[1;31mred\x1b[0m\n", "a\tb\n", "\u2013 é ☃"):
        assert inert(text) == text


def test_bytes_written_beside_the_text_pass() -> None:
    raw = io.BytesIO()
    out: Any = Inert(io.TextIOWrapper(raw, encoding="utf-8"))
    out.write("a\x1b[2J\n")
    out.flush()
    out.buffer.write(b"\x1b{}")
    out.flush()
    assert raw.getvalue() == "a\ufffd[2J\n".encode() + b"\x1b{}"
    assert out.encoding == "utf-8"
    assert not out.isatty()


def test_an_error_with_an_endless_name_is_a_line_of_bounded_length(
    tmp_path: Path,
) -> None:
    spec = tmp_path / "import.toml"
    cell = '[[cell]]\nname = "{}"\nconfiguration = "{}"\nresults = ["r.json"]\n'
    long = "N" * 50_000
    spec.write_text(
        '[run]\nengine = "vllm"\n' + cell.format("a", long) + cell.format("b", "c")
    )
    found = subprocess.run(
        [*STEPSCOPE, "analyze", str(spec)], capture_output=True, text=True, check=False
    )
    assert found.returncode == 2
    assert found.stderr.count("\n") == 1
    assert len(found.stderr) < 5000
    assert found.stderr.endswith("import them together.\n")
