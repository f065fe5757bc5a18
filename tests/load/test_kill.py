"""Nothing that ended is lost, whoever is killed: worker, parent, server, network.

A worker's death is in ``test_drive``.
"""

import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from tests.load.proxy import Proxy
from tests.load.scripted import HEAD, Exchange, ScriptedServer, answer, chunk, text

from stepscope.clock import SystemClock
from stepscope.load.drive import drive
from stepscope.load.journal import read_requests
from stepscope.load.spec import LoadResult, LoadSpec

PARENT = """
import sys
from pathlib import Path
from stepscope.clock import SystemClock
from stepscope.load.drive import drive
from stepscope.load.spec import LoadSpec
spec = LoadSpec(base_url=sys.argv[1], model="m", n_prompts=100, concurrency=2,
                input_tokens=4, output_tokens=4, processes=2)
drive(spec, Path(sys.argv[2]), clock=SystemClock())
"""


def test_killing_the_parent_loses_no_finished_request_and_ends_the_workers(
    tmp_path: Path,
) -> None:
    answered = threading.Semaphore(0)

    def script(exchange: Exchange) -> None:
        if exchange.number < 10:
            exchange.write(answer())
            answered.release()
        else:
            exchange.write(HEAD + chunk(text("a")))
            answered.release()
            exchange.hold()

    with ScriptedServer(script) as server:
        parent = subprocess.Popen(
            [sys.executable, "-c", PARENT, server.url, str(tmp_path)]
        )
        for _ in range(12):  # ten answers, and both slots held in the eleventh
            assert answered.acquire(timeout=30)
        parent.send_signal(signal.SIGKILL)
        parent.wait()
        until = time.monotonic() + 20
        while len(read_requests(tmp_path)) < 12 and time.monotonic() < until:
            time.sleep(0.02)
    requests = read_requests(tmp_path)
    assert sum(r.ok for r in requests) == 10
    assert [r.failure for r in requests if not r.ok] == ["cancelled"] * 2


N_ANSWERED, N_PROMPTS, N_SLOTS = 8, 16, 4

SERVER = """
import threading
from tests.load.scripted import HEAD, ScriptedServer, answer, chunk, text
def script(exchange):
    if exchange.number < 8:
        exchange.write(answer())
    else:
        exchange.write(HEAD + chunk(text("a")))
        exchange.hold()
with ScriptedServer(script) as server:
    print(server.url, flush=True)
    threading.Event().wait()
"""


def some_answers(exchange: Exchange) -> None:
    if exchange.number < N_ANSWERED:
        exchange.write(answer())
    else:
        exchange.write(HEAD + chunk(text("a")))
        exchange.hold()


def driven_into(
    folder: Path, url: str, disaster: Callable[[], None], patience_s: float = 30.0
) -> tuple[LoadResult, Counter[str | None]]:
    """Drive a cell; ``disaster`` strikes when all answers are in and more is asked."""

    def watch() -> None:
        until = time.monotonic() + 60
        while len(read_requests(folder)) < N_ANSWERED and time.monotonic() < until:
            time.sleep(0.02)
        disaster()

    watcher = threading.Thread(target=watch)
    watcher.start()
    spec = LoadSpec(
        base_url=url, model="m", n_prompts=N_PROMPTS, concurrency=N_SLOTS,
        input_tokens=4, output_tokens=4, processes=2, header_timeout_s=patience_s,
        stall_timeout_s=30.0, connect_timeout_s=patience_s,
    )  # fmt: skip
    result = drive(spec, folder, clock=SystemClock())
    watcher.join()
    requests = read_requests(folder)
    assert sorted(r.index for r in requests) == list(range(N_PROMPTS))
    assert all(r.output_tokens == 4 and r.n_chunks for r in requests if r.ok)
    assert (result.n_ok, result.n_failed) == (N_ANSWERED, N_PROMPTS - N_ANSWERED)
    assert result.lost_workers == 0
    return result, Counter(r.failure for r in requests)


def test_killing_the_server_loses_no_finished_request(tmp_path: Path) -> None:
    server = subprocess.Popen(
        [sys.executable, "-c", SERVER],
        stdout=subprocess.PIPE,
        cwd=Path(__file__).parents[2],
    )
    assert server.stdout is not None
    url = server.stdout.readline().decode().strip()

    def kill() -> None:
        server.send_signal(signal.SIGKILL)
        server.wait()

    _, failures = driven_into(tmp_path, url, kill)
    server.stdout.close()
    assert failures[None] == N_ANSWERED
    assert failures["reset"] + failures["closed"] >= 1
    assert failures["refused"] >= 1


@pytest.mark.parametrize("how", ["reset", "drop"])
def test_cutting_the_network_loses_no_finished_request(
    tmp_path: Path, how: str
) -> None:
    with (
        ScriptedServer(some_answers) as server,
        Proxy(urlsplit(server.url).port or 0) as proxy,
    ):
        _, failures = driven_into(
            tmp_path, proxy.url, getattr(proxy, how), 0.6 if how == "drop" else 30.0
        )
    assert failures[None] == N_ANSWERED
    if how == "drop":  # nobody says that the network is gone: time has to
        assert set(failures) == {None, "stall", "header-timeout"}
    else:
        assert set(failures) <= {None, "reset", "closed", "refused"}
        assert failures["refused"] >= 1
