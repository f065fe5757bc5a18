"""Nothing that ended is lost, whoever is killed."""

import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

from tests.load.scripted import HEAD, Exchange, ScriptedServer, answer, chunk, text

from stepscope.load.journal import read_requests

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
