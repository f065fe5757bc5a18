"""The real client, as a session stops it."""

import socket
import threading
from pathlib import Path

import pytest

from stepscope.clock import SystemClock
from stepscope.load.spec import LoadSpec
from stepscope.session.halt import Halt
from stepscope.session.site import LocalSite


@pytest.mark.parametrize("times", range(3))
def test_a_client_that_is_stopped_before_it_begins_comes_back(
    tmp_path: Path, times: int
) -> None:
    """The order to stop may reach a worker in one read with its job."""
    stop = threading.Event()
    stop.set()
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        spec = LoadSpec(
            base_url=f"http://127.0.0.1:{server.getsockname()[1]}",
            model="m",
            n_prompts=2,
            concurrency=1,
            input_tokens=4,
            output_tokens=4,
            vocab_size=100,
        )
        result = LocalSite(SystemClock(), Halt(), None).drive(
            spec, tmp_path, on_progress=lambda _: None, stop=stop
        )
    assert result.stopped
    assert result.n_ok == 0
