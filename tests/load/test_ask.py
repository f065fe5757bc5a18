"""Short questions before the clock starts: whole answers, and all else is none."""

import json
import subprocess
import sys

import pytest
from tests.load.scripted import Exchange, ScriptedServer, chunk

from stepscope.load.ask import ask, ask_text
from stepscope.load.wire import Server

OK = b"HTTP/1.1 200 OK\r\n"
BODY = b'{"count": 7}'
CHUNKED = OK + b"transfer-encoding: chunked\r\n\r\n"
SIZED = OK + b"Content-Length: 12\r\n\r\n"


def silent(_: Exchange) -> None:
    """Say nothing."""


def asked(
    answer: bytes, body: object = None, split: int | None = 1
) -> tuple[object, bytes]:
    """What is understood of an answer that comes byte by byte, and what was sent."""

    def say(exchange: Exchange) -> None:
        exchange.write(answer, split=split)
        exchange.hang_up()

    with ScriptedServer(say) as server:
        found = ask(Server(server.url, {"X-Key": "open"}), "/v1/count", body)
        return found, server.requests[0]


@pytest.mark.parametrize(
    "answer",
    [
        SIZED + BODY,
        CHUNKED + chunk(BODY[:5]) + chunk(BODY[5:]) + b"0\r\n\r\n",
        OK + b"\r\n" + BODY,
        b"HTTP/1.1 100 Continue\r\n\r\n" + SIZED + BODY,
    ],
    ids=["sized", "chunked", "to the end of the connection", "after an interim one"],
)
def test_a_whole_answer_is_understood(answer: bytes) -> None:
    assert asked(answer)[0] == {"count": 7}


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        SIZED + BODY[:-1],
        CHUNKED + chunk(BODY),
        b"HTTP/1.1 404 Not Found\r\ncontent-length: 12\r\n\r\n" + BODY,
        b"HTTP/1.1 100 Continue\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\n"
        b"connection: upgrade\r\nupgrade: h2c\r\n\r\n",
        b"\x16\x03\x01\x02garbage\r\n\r\n",
        OK + b"\r\n{",
    ],
    ids=[
        *("none", "cut", "cut chunks", "404", "interim alone", "another protocol"),
        *("no HTTP", "no JSON"),
    ],
)
def test_anything_else_is_no_answer(answer: bytes) -> None:
    assert asked(answer)[0] is None


@pytest.mark.parametrize("further", [b"garbage\r\n\r\n", SIZED + BODY])
def test_what_follows_a_whole_answer_is_not_part_of_it(further: bytes) -> None:
    assert asked(SIZED + BODY + further, split=None)[0] == {"count": 7}


def test_what_is_asked_goes_as_json_with_the_servers_headers() -> None:
    _, request = asked(SIZED + BODY, {"prompt": "é"})
    head, _, body = request.partition(b"\r\n\r\n")
    assert head.startswith(b"POST /v1/count HTTP/1.1\r\nHost: 127.0.0.1:")
    assert b"X-Key: open" in head.split(b"\r\n")
    assert json.loads(body) == {"prompt": "é"}
    _, request = asked(SIZED + BODY)
    assert request.startswith(b"GET /v1/count HTTP/1.1\r\n")
    assert request.endswith(b"\r\n\r\n")


def test_text_is_given_as_it_is() -> None:
    with ScriptedServer(silent, {"/metrics": b"a 1\n"}) as server:
        assert ask_text(Server(server.url), "/metrics") == "a 1\n"
        assert ask_text(Server(server.url), "/nothing") is None


def test_nobody_listens_and_there_is_no_answer() -> None:
    assert ask(Server("http://127.0.0.1:1"), "/v1/count") is None


def test_the_process_that_waits_beside_the_client_loads_little() -> None:
    heavy = "{'ssl', '_hashlib', 'http.client', 'email', 'asyncio', 'numpy', 'rich'}"
    code = (
        "import sys, stepscope.cli.main, stepscope.cli.bench\n"
        f"print(sorted({heavy} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, check=True, text=True
    )
    assert done.stdout == "[]\n"
