"""Secrets are taken out of an export of nsys, and nothing else is."""

import shutil
import sqlite3
from pathlib import Path

import pytest

from stepscope.session.phases.nsysfiles import held_by
from stepscope.session.phases.nsyssecrets import (
    holds_any,
    secrets_of,
    without_secrets,
)
from stepscope.timeline.load import load_trace

TRACES = Path(__file__).parents[3] / "shared" / "data" / "traces"
KNOWN = {"MY_KEY": "value-of-the-key"}


def export(path: Path, *texts: str) -> Path:
    db = sqlite3.connect(path)
    db.execute("CREATE TABLE StringIds (id INTEGER NOT NULL, value TEXT)")
    db.executemany("INSERT INTO StringIds VALUES (?, ?)", enumerate(texts))
    db.commit()
    db.close()
    return path


def texts(path: Path) -> list[str]:
    db = sqlite3.connect(path)
    found = [row[0] for row in db.execute("SELECT value FROM StringIds ORDER BY id")]
    db.close()
    return found


def test_a_variable_is_known_by_its_name_its_value_or_as_the_clients_key() -> None:
    environment = {
        "HF_TOKEN": "x", "HOME": "/h", "EMPTY_SECRET": "", "MINE": "k",
        "PROXY": "http://user:pass@host",
    }  # fmt: skip
    assert set(secrets_of(environment, None)) == {"HF_TOKEN", "PROXY"}
    assert set(secrets_of(environment, "MINE")) == {"HF_TOKEN", "PROXY", "MINE"}


@pytest.mark.parametrize(
    ("text", "cleaned"),
    [
        ("A=1\0HF_TOKEN=s3\0B=2", "A=1\0HF_TOKEN=<removed>\0B=2"),
        ("HF_TOKEN=s3;with;semicolons\0B=2", "HF_TOKEN=<removed>\0B=2"),
        ('HF_TOKEN="s3"', "HF_TOKEN=<removed>"),
        ("A=1;HF_TOKEN=s3;B=2", "A=1;HF_TOKEN=<removed>;B=2"),
        ("MY_KEY=value-of-the-key\0B=2", "MY_KEY=<removed>\0B=2"),
        ("serve --key value-of-the-key", "serve --key <removed>"),
    ],
)
def test_values_go_and_names_stay(tmp_path: Path, text: str, cleaned: str) -> None:
    path = export(tmp_path / "x.sqlite", "gemm", text)
    (name,) = without_secrets(path, KNOWN)
    assert texts(path) == ["gemm", cleaned]
    assert name == ("HF_TOKEN" if "HF_TOKEN" in text else "MY_KEY")


@pytest.mark.parametrize(
    "text",
    [
        "void gemm<int, (bool)1>(T1 *, a=b)",
        "execute_32_context_0(0)_generation_32(32)",
        "HF_TOKEN=\0B=2",
        "TOKENIZERS_PARALLELISM=false",
        "",
    ],
)
def test_what_is_no_secret_is_left_as_it_is(tmp_path: Path, text: str) -> None:
    path = export(tmp_path / "x.sqlite", text)
    before = path.read_bytes()
    assert without_secrets(path, KNOWN) == ()
    assert texts(path) == [text]
    assert path.read_bytes() == before


def test_nothing_of_a_long_environment_stays_in_the_free_space_of_the_file(
    tmp_path: Path,
) -> None:
    long = "\0".join([f"V{i}={'v' * 50}" for i in range(400)])
    path = export(tmp_path / "x.sqlite", f"{long}\0MY_KEY=value-of-the-key\0{long}")
    assert holds_any(path, KNOWN)
    assert without_secrets(path, KNOWN) == ("MY_KEY",)
    assert not holds_any(path, KNOWN)
    assert texts(path)[0].count("\0") == 800


def test_copies_in_the_free_space_that_came_with_the_file_go_too(
    tmp_path: Path,
) -> None:
    path = export(tmp_path / "x.sqlite", "gemm", "MY_KEY=value-of-the-key\0A=1")
    db = sqlite3.connect(path)
    db.execute("PRAGMA secure_delete = OFF")
    db.execute("DELETE FROM StringIds WHERE id = 1")
    db.commit()
    db.close()
    assert holds_any(path, KNOWN)
    assert without_secrets(path, KNOWN) == ("MY_KEY",)
    assert not holds_any(path, KNOWN)


def test_a_value_that_lies_over_two_pieces_of_a_file_is_found(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"." * ((1 << 22) - 5) + b"value-of-the-key" + b"." * 9)
    assert holds_any(path, KNOWN)
    assert not holds_any(path, {"SHORT": "..."}), "too short to be looked for"


def test_a_real_export_loses_the_secret_of_its_machine_and_no_operation(
    tmp_path: Path,
) -> None:
    path = tmp_path / "real.sqlite"
    shutil.copyfile(TRACES / "nsys_2xh100_train" / "before.sqlite", path)
    before = [len(t.ops.start_ns) for t in load_trace(path)]
    assert without_secrets(path, {}) == ("MODAL_TASK_SECRET",)
    assert [len(t.ops.start_ns) for t in load_trace(path)] == before
    held = held_by(path)
    assert held is not None
    assert held.n_ranks == 2
    assert without_secrets(path, {}) == ()
