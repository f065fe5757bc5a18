"""Real processes: they die, refuse to die, hide, and lose their stepscope."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from stepscope.clock import SystemClock
from stepscope.errors import SessionError
from stepscope.session.halt import Halt
from stepscope.session.server import LocalServer, ServerOrder

#: Long enough for a loaded machine; a test that passes never waits for it.
_PATIENCE_NS = 30_000_000_000

PRINTS_AND_FAILS = """
import sys
print("loading")
print("ValueError: no room", file=sys.stderr)
sys.exit(5)
"""
IGNORES_TERM = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("deaf", flush=True)
while True: time.sleep(1)
"""
HIDES_A_CHILD = """
import os, subprocess, sys, time
child = subprocess.Popen(
    [sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True
)
print(child.pid, flush=True)
time.sleep(600)
"""
LEAVES_AN_ORPHAN = """
import os, subprocess, sys
child = subprocess.Popen(
    [sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True
)
print(child.pid, flush=True)
"""
TELLS = """
import os
print(os.environ["FLAVOUR"], sorted(os.sched_getaffinity(0)), os.getsid(0), os.getpid())
"""


def wait_for(check: Callable[[], bool]) -> None:
    """Wait until ``check()`` is true."""
    clock = SystemClock()
    until = clock.now_ns() + _PATIENCE_NS
    while not check():
        assert clock.now_ns() < until, "it did not happen"
        clock.sleep_until(clock.now_ns() + 20_000_000)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "server.log"


@pytest.fixture
def halt() -> Halt:
    return Halt()


def started(
    program: str, log: Path, halt: Halt, *, cpus: str | None = None, grace_s: float = 10
) -> LocalServer:
    order = ServerOrder(
        command=(sys.executable, "-c", program),
        environment={"FLAVOUR": "plain"},
        log=log,
        cpus=cpus,
        grace_s=grace_s,
    )
    server = LocalServer(order, halt)
    server.start()
    return server


def first_line(log: Path) -> str:
    wait_for(lambda: b"\n" in log.read_bytes())
    return log.read_text().splitlines()[0]


@pytest.fixture
def hidden(log: Path, halt: Halt) -> Iterator[tuple[LocalServer, int]]:
    server = started(HIDES_A_CHILD, log, halt)
    child = int(first_line(log))
    yield server, child
    if psutil.pid_exists(child):
        os.kill(child, signal.SIGKILL)


def test_its_output_and_its_exit_code_are_kept(log: Path, halt: Halt) -> None:
    server = started(PRINTS_AND_FAILS, log, halt)
    wait_for(lambda: server.exit_code() is not None)
    assert server.exit_code() == 5
    assert sorted(log.read_text().split("\n")) == [
        "",
        "ValueError: no room",
        "loading",
    ]
    assert server.stop().exit_code == 5


def test_it_has_its_environment_its_cpus_and_a_session_of_its_own(
    log: Path, halt: Halt
) -> None:
    cpu = min(os.sched_getaffinity(0))
    server = started(TELLS, log, halt, cpus=str(cpu))
    flavour, cpus, session, pid = first_line(log).split()
    assert (flavour, cpus) == ("plain", f"[{cpu}]")
    assert session == pid
    server.stop()


def test_it_ends_when_asked(log: Path, halt: Halt) -> None:
    server = started("import time; time.sleep(600)", log, halt)
    assert server.exit_code() is None
    end = server.stop()
    assert end.exit_code == -signal.SIGTERM
    assert (end.killed, end.leftovers, end.alive) == (False, (), ())
    assert server.exit_code() == -signal.SIGTERM


def test_a_server_that_ignores_being_asked_is_killed(log: Path, halt: Halt) -> None:
    server = started(IGNORES_TERM, log, halt, grace_s=0.2)
    first_line(log)
    end = server.stop()
    assert end.killed
    assert end.exit_code == -signal.SIGKILL


def test_hurry_kills_without_waiting_for_grace(log: Path, halt: Halt) -> None:
    server = started(IGNORES_TERM, log, halt, grace_s=600.0)
    first_line(log)
    halt.ask()
    threading.Timer(0.2, halt.ask).start()
    assert server.stop().exit_code == -signal.SIGKILL


def test_a_child_in_a_session_of_its_own_is_found_and_ended(
    hidden: tuple[LocalServer, int],
) -> None:
    server, child = hidden
    end = server.stop()
    assert [left.pid for left in end.leftovers] == [child]
    assert end.alive == ()
    assert not psutil.pid_exists(child)


def test_an_orphan_of_a_server_that_died_is_found_and_ended(
    log: Path, halt: Halt
) -> None:
    server = started(LEAVES_AN_ORPHAN, log, halt)
    child = int(first_line(log))
    wait_for(lambda: server.exit_code() is not None)
    assert psutil.pid_exists(child)
    end = server.stop()
    assert [left.pid for left in end.leftovers] == [child]
    assert not psutil.pid_exists(child)


def test_a_guard_that_is_killed_takes_the_server_with_it(log: Path, halt: Halt) -> None:
    server = started("import os, time; print(os.getpid()); time.sleep(600)", log, halt)
    pid = int(first_line(log))
    os.kill(next(iter(server.roots())), signal.SIGKILL)
    wait_for(lambda: not psutil.pid_exists(pid))
    assert server.exit_code() is not None
    server.stop()


def test_a_program_that_is_not_there_is_one_line(log: Path, halt: Halt) -> None:
    order = ServerOrder(command=("/nonexistent/vllm",), environment={}, log=log)
    with pytest.raises(SessionError, match="No such file or directory"):
        LocalServer(order, halt).start()


def test_processors_that_are_not_ours_are_refused(log: Path, halt: Halt) -> None:
    with pytest.raises(SessionError, match="are not ours"):
        started(TELLS, log, halt, cpus="9999")


PARENT = """
import sys, time
from pathlib import Path
from stepscope.session.halt import Halt
from stepscope.session.server import LocalServer, ServerOrder
order = ServerOrder(
    command=(sys.executable, "-c", sys.argv[1]), environment={}, log=Path(sys.argv[2])
)
LocalServer(order, Halt()).start()
time.sleep(600)
"""


def test_kill_nine_of_stepscope_ends_the_server_and_what_it_hides(log: Path) -> None:
    parent = subprocess.Popen([sys.executable, "-c", PARENT, HIDES_A_CHILD, str(log)])
    wait_for(log.exists)
    child = int(first_line(log))
    server = psutil.Process(child).parent()
    assert server is not None
    parent.kill()
    parent.wait()
    wait_for(lambda: not psutil.pid_exists(server.pid))
    wait_for(lambda: not psutil.pid_exists(child))


def test_what_left_the_group_may_end_by_itself_as_long_as_it_was_promised(
    log: Path, halt: Halt
) -> None:
    program = """
import subprocess, sys, time
code = '''
import os, time
parent = os.getppid()
print("waits", flush=True)
while os.getppid() == parent: time.sleep(0.01)
time.sleep(4)
print("ended by itself", flush=True)
'''
subprocess.Popen([sys.executable, "-c", code], start_new_session=True)
time.sleep(600)
"""
    order = ServerOrder(
        command=(sys.executable, "-c", program),
        environment={},
        log=log,
        linger_s=60,
        grace_s=60,
    )
    server = LocalServer(order, halt)
    server.start()
    first_line(log)
    end = server.stop()
    assert (end.killed, end.leftovers, end.alive) == (False, (), ())
    assert "ended by itself" in log.read_text()


def test_a_scratch_folder_is_new_and_goes_with_the_server(
    log: Path, halt: Halt, tmp_path: Path
) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    (scratch / "of-a-killed-guard").touch()
    program = f"import os, time; print(os.listdir({str(scratch)!r}), flush=True)"
    order = ServerOrder(
        command=(sys.executable, "-c", program + "; time.sleep(600)"),
        environment={},
        log=log,
        scratch=str(scratch),
    )
    server = LocalServer(order, halt)
    server.start()
    assert first_line(log) == "[]"
    assert scratch.stat().st_mode & 0o777 == 0o700
    server.stop()
    assert not scratch.exists()


def test_a_scratch_folder_that_can_not_be_made_starts_nothing(
    log: Path, halt: Halt, tmp_path: Path
) -> None:
    order = ServerOrder(
        command=(sys.executable, "-c", "print('started')"),
        environment={},
        log=log,
        scratch=str(tmp_path / "absent" / "scratch"),
    )
    with pytest.raises(SessionError, match="No such file or directory"):
        LocalServer(order, halt).start()
    assert log.read_text() == ""
