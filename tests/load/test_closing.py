"""A server that closes the connection after each answer is served to the end."""

import asyncio
import socket

from tests.load.scripted import DONE, text, usage

from stepscope.clock import SystemClock
from stepscope.load.lane import Lane
from stepscope.load.slot import Slot, State
from stepscope.load.spec import LoadSpec
from stepscope.load.stock import Prompt, Stock
from stepscope.load.wire import resolve
from stepscope.run.requests import Request

BODY = text("a") + text("b") + usage(2) + DONE
ANSWER = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n"
    b"content-length: %d\r\n\r\n%s" % (len(BODY), BODY)
)


def _serve_one(listener: socket.socket, answer: bytes) -> None:
    """Answer one request and close; all of it lies with the client on return."""
    sock, _ = listener.accept()
    with sock:
        sock.recv(1 << 16)
        sock.sendall(answer)


async def _driven(answer: bytes) -> list[Request]:
    """Drive two prompts over one slot; the answer and its end are read as one."""
    ended: list[Request] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"http://127.0.0.1:{listener.getsockname()[1]}"
        spec = LoadSpec(
            base_url=address,
            model="m",
            n_prompts=2,
            concurrency=1,
            input_tokens=1,
            output_tokens=2,
        )
        peers = [resolve(address, b"POST / HTTP/1.1\r\ncontent-length: ")]
        clock = SystemClock()
        lane = Lane(spec, 0, peers, lambda request, _: ended.append(request), clock)
        slot = Slot(0, lane)
        lane.slots.append(slot)
        stock = Stock()
        for index in range(2):
            stock.add(Prompt(index=index, rest=b"0\r\n\r\n", output_tokens=2))
        lane.start(stock, clock.now_ns())
        try:
            async with asyncio.timeout(10):
                for _ in range(2):
                    while slot.state is not State.BUSY:  # noqa: ASYNC110  # the loop connects
                        await asyncio.sleep(0)
                    _serve_one(listener, answer)
                    # In one turn, as on a busy loop: what came, and that no more comes.
                    slot._line._on_readable()
                    slot._line._on_readable()
                await lane.over.wait()
        finally:
            lane.close()
    return ended


def test_the_next_request_gets_the_connection_that_it_opened() -> None:
    ended = asyncio.run(_driven(ANSWER))
    assert [(r.index, r.failure, r.output_tokens) for r in ended] == [
        (0, None, 2),
        (1, None, 2),
    ]


def test_the_same_after_what_is_no_answer_at_all() -> None:
    ended = asyncio.run(_driven(b"\x16\x03\x01\x02garbage\r\n\r\n"))
    assert [(r.index, r.failure) for r in ended] == [(0, "malformed"), (1, "malformed")]
