"""Secrets reach a server and not the program that starts it."""

import json
import os
import subprocess
import sys
from pathlib import Path

from stepscope.clock import SystemClock
from stepscope.session.halt import Halt
from stepscope.session.server import LocalServer, ServerOrder

SHOW = "import json, os; print(json.dumps(dict(os.environ)))"


def entrusted(file: Path, *command: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "stepscope.session.entrust", str(file), *command],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "SEEN": "1"},
    )


def test_the_program_has_the_variables_and_the_file_is_gone(tmp_path: Path) -> None:
    file = tmp_path / "e.json"
    file.write_text(json.dumps({"HF_TOKEN": "s3"}))
    done = entrusted(file, sys.executable, "-c", SHOW)
    environment = json.loads(done.stdout)
    assert (environment["HF_TOKEN"], environment["SEEN"]) == ("s3", "1")
    assert not file.exists()


def test_a_program_that_is_missing_is_named(tmp_path: Path) -> None:
    file = tmp_path / "e.json"
    file.write_text("{}")
    done = entrusted(file, "no-such-program")
    assert done.returncode == 127
    assert done.stderr == "no-such-program: No such file or directory\n"


def test_hidden_variables_are_in_a_file_for_us_alone_and_nowhere_else(
    tmp_path: Path,
) -> None:
    scratch, log = tmp_path / "scratch", tmp_path / "log"
    listed = (
        "import os, json, pathlib; p = pathlib.Path(os.environ['WHERE'])\n"
        "print(json.dumps([(x.name, x.stat().st_mode & 0o777) for x in p.iterdir()]))\n"
        "print(p.stat().st_mode & 0o777, (p / 'entrusted.json').read_text())\n"
        "print([k for k in os.environ if k in ('HF_TOKEN', 'WHERE')])\n"
    )
    server = LocalServer(
        ServerOrder(
            command=(sys.executable, "-c", listed),
            environment={"HF_TOKEN": "s3", "WHERE": str(scratch)},
            log=log,
            scratch=str(scratch),
            hidden=("HF_TOKEN", "NOT_SET"),
        ),
        Halt(),
    )
    server.start()
    clock = SystemClock()
    while server.exit_code() is None:
        clock.sleep_until(clock.now_ns() + 20_000_000)
    assert scratch.exists()
    server.stop()
    files, folder, names = log.read_text().splitlines()
    assert json.loads(files) == [["entrusted.json", 0o600]]
    assert folder == f'{0o700} {{"HF_TOKEN": "s3"}}'
    assert names == "['WHERE']"
    assert not scratch.exists()
