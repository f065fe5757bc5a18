"""What a worker holds: it collects no cycles, so one left behind stays for good."""

import asyncio
import gc
import socket
import threading
from collections.abc import Callable, Iterator

import pytest
from tests.load.scripted import DONE, text, usage
from tests.load.specs import spec_for

from stepscope.clock import SystemClock
from stepscope.load.lane import Lane
from stepscope.load.response import Response
from stepscope.load.slot import Slot, State
from stepscope.load.stock import Prompt, Stock
from stepscope.load.wire import resolve
from stepscope.run.requests import Request

BODY = text("a") + text("b") + usage(2) + DONE
ANSWER = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
    b"content-length: %d\r\n\r\n%s" % (len(BODY), BODY)
)
N = 5


@pytest.fixture(autouse=True)
def _no_collection() -> Iterator[None]:
    """Collect no cycles, as a worker that measures."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def _n_responses() -> int:
    return sum(isinstance(held, Response) for held in gc.get_objects())


async def _slots_alone() -> int:
    lane = Lane(
        spec_for("http://127.0.0.1:1"),
        0,
        [resolve("http://127.0.0.1:1")],
        lambda *_: None,
        SystemClock(),
    )
    before = _n_responses()
    lane.slots.extend(Slot(number, lane) for number in range(N))
    made = _n_responses() - before
    lane.close()
    return made


def test_slots_that_have_sent_nothing_hold_no_response_of_their_own() -> None:
    assert asyncio.run(_slots_alone()) == 0


def _answer_once_a_connection(listener: socket.socket) -> None:
    """Answer the first request of each connection, and close it without a word."""
    n_answered = 0
    while n_answered < N:
        sock, _ = listener.accept()
        with sock:
            if sock.recv(1 << 16):
                sock.sendall(ANSWER)
                n_answered += 1


def _one_slot(url: str, ended: list[Request], n: int) -> Lane:
    """Start a lane that sends ``n`` requests in turn."""
    clock = SystemClock()
    peers = [resolve(url, b"POST / HTTP/1.1\r\ncontent-length: ")]
    spec = spec_for(url)
    lane = Lane(spec, 0, peers, lambda request, _: ended.append(request), clock)
    lane.slots.append(Slot(0, lane))
    stock = Stock()
    for index in range(n):
        stock.add(Prompt(index, b"0\r\n\r\n", output_tokens=2))
    lane.start(stock, clock.now_ns())
    return lane


async def _driven(url: str) -> tuple[list[Request], int]:
    ended: list[Request] = []
    before = _n_responses()
    lane = _one_slot(url, ended, N)
    try:
        async with asyncio.timeout(60):
            await lane.over.wait()
        return ended, _n_responses() - before
    finally:
        lane.close()


def test_a_request_that_is_sent_again_leaves_no_response_behind() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = threading.Thread(target=_answer_once_a_connection, args=(listener,))
        server.start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        ended, n_held = asyncio.run(_driven(url))
        server.join()
    assert [(r.index, r.failure) for r in ended] == [(i, None) for i in range(N)]
    assert n_held == 1  # the slot's last one


async def _until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not true():  # noqa: ASYNC110  # the loop has to turn
            await asyncio.sleep(0)


async def _looked_at(listener: socket.socket, before: bytes, after: bytes) -> bytes:
    """Return what is held of a request whose answer began with ``before``."""
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    lane = _one_slot(url, [], 1)
    (slot,) = lane.slots
    with listener.accept()[0] as sock:
        await _until(lambda: slot.state is State.BUSY)
        sock.sendall(before)
        await _until(lambda: slot._response.has_bytes or not before)
        lane.check()
        assert slot.prompt is not None
        held = slot.prompt.rest
        sock.sendall(after)
        await lane.over.wait()
    lane.close()
    return held


def test_a_request_is_held_until_its_answer_begins() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        assert asyncio.run(_looked_at(listener, b"", ANSWER)) == b"0\r\n\r\n"
        assert asyncio.run(_looked_at(listener, ANSWER[:50], ANSWER[50:])) == b""


async def _refused() -> tuple[bytes, list[Request]]:
    """Return what is held of a second request when nobody listens any more."""
    ended: list[Request] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        lane = _one_slot(url, ended, 2)
        (slot,) = lane.slots
        with listener.accept()[0] as sock:
            await _until(lambda: slot.state is State.BUSY)
            sock.sendall(
                ANSWER.replace(b"200 OK\r\n", b"200 OK\r\nconnection: close\r\n")
            )
            listener.close()
    await _until(lambda: len(ended) == 1 and slot.state is State.CLOSED)
    lane.check()
    assert slot.prompt is not None
    held = slot.prompt.rest
    await lane.over.wait()
    lane.close()
    return held, ended


def test_a_request_that_waits_for_a_connection_is_held_whole() -> None:
    held, ended = asyncio.run(_refused())
    assert held == b"0\r\n\r\n"
    assert [r.failure for r in ended] == [None, "refused"]
