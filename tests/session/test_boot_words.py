"""Small answers of the phases: exit codes, log lines, processors, vocabularies."""

from pathlib import Path

import pytest

from stepscope.session.context import client_cpus, vocabulary
from stepscope.session.halt import Halt
from stepscope.session.phases.boot import ending, last_line

SHARED = Path(__file__).parents[2].parent / "shared"


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (0, "exit code 0"),
        (3, "exit code 3"),
        (-9, "killed by SIGKILL"),
        (-99, "killed by signal 99"),
    ],
)
def test_an_exit_code_is_told_in_words(code: int, words: str) -> None:
    assert ending(code) == words


def test_the_last_error_is_told_before_lines_that_only_repeat_it(
    tmp_path: Path,
) -> None:
    log = tmp_path / "server.log"
    log.write_text(
        "INFO start\n"
        "\x1b[31mValueError: To serve at least one request\x1b[0m\n"
        "RuntimeError: Engine core initialization failed. See root cause above.\n"
        "shutting down\n"
    )
    assert last_line(log) == "ValueError: To serve at least one request"


def test_without_an_error_the_last_line_is_told(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_text("loading\nstill loading\n\n")
    assert last_line(log) == "still loading"
    log.write_text("")
    assert last_line(log) == "its log is empty"
    assert last_line(tmp_path / "none") == "there is no log"


@pytest.mark.skipif(not SHARED.exists(), reason="the real logs are not here")
def test_a_real_boot_under_an_orphan_is_told_by_its_free_memory() -> None:
    log = SHARED / "data" / "h200x1-boot-orphan-holds-memory" / "server.log"
    assert "Free memory on device" in last_line(log)


def test_the_client_gets_what_the_server_leaves() -> None:
    assert client_cpus("0-1", {0, 1, 2, 3}) == "2,3"
    assert client_cpus("0-3", {0, 1, 2, 3}) is None
    assert client_cpus(None, {0, 1}) is None


def test_a_vocabulary_is_read_from_the_config_or_its_text_part() -> None:
    assert vocabulary('{"vocab_size": 151936}') == 151936
    assert vocabulary('{"text_config": {"vocab_size": 7}}') == 7
    assert vocabulary('{"model_type": "x"}') is None
    assert vocabulary(None) is None


def test_asking_twice_is_hurry() -> None:
    halt = Halt()
    halt.ask()
    assert (halt.asked.is_set(), halt.hurry.is_set()) == (True, False)
    halt.ask()
    assert halt.hurry.is_set()
