"""The parent's stand-in on another machine, and what Ray is refused for."""

import importlib.util
from pathlib import Path

import msgspec
import pytest
from tests.load.scripted import ScriptedServer, answer

from stepscope.clock import SystemClock
from stepscope.errors import RecipeError
from stepscope.load.foreman import Foreman, Heard
from stepscope.load.messages import FrameReader, Go, Job, Ready, Tally, ToParent
from stepscope.load.spec import LoadSpec, check_workers
from stepscope.run.frames import payloads
from stepscope.run.requests import Request

#: As if the other machine had booted earlier.
AHEAD_NS = 10**12


def job(url: str) -> Job:
    spec = LoadSpec(
        base_url=url, model="m", n_prompts=12, concurrency=3, input_tokens=4,
        output_tokens=4,
    )  # fmt: skip
    return Job(
        spec=spec, worker=0, n_workers=1, journal_dir="of another machine", cpus=(),
        text=None, ahead_ns=AHEAD_NS,
    )  # fmt: skip


def test_a_cell_comes_back_through_bytes_alone() -> None:
    clock, reader = SystemClock(), FrameReader(ToParent)
    began_at_ns = clock.now_ns()
    said, written, told = [], b"", False
    with ScriptedServer(lambda e: e.write(answer())) as server:
        foreman = Foreman()
        foreman.start(msgspec.msgpack.encode(job(server.url)), None)
        while True:
            heard = msgspec.msgpack.decode(foreman.hear(), type=Heard)
            said += list(reader.feed(heard.said))
            written += heard.written.get("requests-0.journal", b"")
            if not told and any(isinstance(s, Ready) for s in said):
                told = True
                at_ns = clock.now_ns() - AHEAD_NS + 20_000_000
                go = Go(at_ns=at_ns)
                foreman.tell(msgspec.msgpack.encode(go))
            if heard.over:
                break
        foreman.clear()
    assert heard.ending is None
    assert isinstance(said[-1], Tally)
    assert said[-1].n_ok == 12
    found = [msgspec.msgpack.decode(p, type=Request) for p in payloads(written)]
    assert sorted(r.index for r in found) == list(range(12))
    # Written on the clock of who asked, seconds of the tally too.
    for at_ns in (r.sent_at_ns + AHEAD_NS for r in found):
        assert began_at_ns < at_ns < clock.now_ns()
    seconds = {r.chunks_ns[0] // 10**9 for r in found}
    assert seconds <= set(said[-1].chunks_by_second)


def test_a_worker_that_is_told_to_end_says_what_it_has() -> None:
    foreman = Foreman()
    with ScriptedServer(lambda e: e.hold()) as server:
        foreman.start(msgspec.msgpack.encode(job(server.url)), None)
        foreman.end()
        while not (heard := msgspec.msgpack.decode(foreman.hear(), type=Heard)).over:
            pass
        foreman.clear()
    assert heard.ending is None


def test_a_worker_that_can_not_live_says_why() -> None:
    bad = msgspec.structs.replace(job("http://127.0.0.1:9"), cpus=(4_000,))
    foreman = Foreman()
    foreman.start(msgspec.msgpack.encode(bad), None)
    while not (heard := msgspec.msgpack.decode(foreman.hear(), type=Heard)).over:
        pass
    foreman.clear()
    assert heard.ending is not None
    assert "ended with" in heard.ending


def test_unknown_places_for_workers_are_refused() -> None:
    with pytest.raises(RecipeError, match="local, ray"):
        check_workers("slurm")


@pytest.mark.skipif(
    importlib.util.find_spec("ray") is not None, reason="Ray is installed here"
)
def test_without_ray_one_line_says_how_to_get_it(tmp_path: Path) -> None:
    with pytest.raises(RecipeError) as caught:
        check_workers("ray")
    assert "pip install 'stepscope[ray]'" in str(caught.value)
    assert caught.value.exit_code == 2
