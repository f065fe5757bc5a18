"""No answer goes on for ever, whatever keeps the server talking."""

import asyncio
import time
from pathlib import Path

import pytest
from tests.load.scripted import (
    DONE,
    HEAD,
    Exchange,
    Script,
    ScriptedServer,
    answer,
    chunk,
    stream,
    text,
    usage,
)
from tests.load.specs import driven, spec_for

from stepscope.clock import SystemClock
from stepscope.load.lane import Lane
from stepscope.load.limits import Limits, Seen, limits_of
from stepscope.load.probe import probe
from stepscope.load.prompts import request_head, request_rest
from stepscope.load.response import Response
from stepscope.load.slot import Slot
from stepscope.load.stock import Prompt, Stock
from stepscope.load.wire import resolve
from stepscope.run.requests import Request

PATIENT = {"header_timeout_s": 100.0, "stall_timeout_s": 100.0}


def repeated(data: bytes, pause_s: float = 0.0, head: bytes = HEAD) -> Script:
    def script(exchange: Exchange) -> None:
        exchange.write(head)
        while True:
            exchange.write(data)
            if pause_s:
                time.sleep(pause_s)

    return script


GENERATED = (
    b'data: {"text":"a","meta_info":{"prompt_tokens":8,"completion_tokens":%d}}\n\n'
)
EMPTY = text("")
#: What a server says for ever, what ends it, and what is changed of the load.
ENDLESS: dict[str, tuple[Script, str, dict[str, object]]] = {
    "tokens": (repeated(chunk(text("a"))), "overlong", {}),
    "tokens, many in a read": (repeated(chunk(text("a")) * 500), "overlong", {}),
    "events without content": (repeated(chunk(EMPTY)), "overlong", {}),
    "reasoning": (
        repeated(chunk(b'data: {"choices":[{"delta":{"reasoning":"a"}}]}\n\n')),
        "overlong",
        {"endpoint": "/v1/chat/completions"},
    ),
    "tokens that the server counts": (
        repeated(chunk(GENERATED % 1_009), 0.01),
        "overlong",
        {"endpoint": "/generate"},
    ),
    "a token now and then": (
        repeated(chunk(text("a")), 0.02),
        "total-timeout",
        {"total_timeout_s": 0.5},
    ),
}


@pytest.mark.parametrize("name", ENDLESS)
def test_what_would_never_end_is_a_failure_and_the_slot_goes_on(
    tmp_path: Path, name: str
) -> None:
    endless, kind, changes = ENDLESS[name]
    good = answer()
    if changes.get("endpoint") == "/generate":
        last = GENERATED.replace(b'"meta_info":{', b'"meta_info":{"finish_reason":"x",')
        good = stream(last % 4, DONE)

    def script(exchange: Exchange) -> None:
        if exchange.number == 0:
            endless(exchange)
        else:
            exchange.write(good)

    limits = {**PATIENT, **changes}
    _, requests, _ = driven(tmp_path, script, n_prompts=2, concurrency=1, **limits)
    assert [r.failure for r in requests] == [kind, None]


@pytest.mark.parametrize("name", ENDLESS)
def test_the_probe_does_not_wait_for_the_end_of_what_has_none(name: str) -> None:
    endless, kind, changes = ENDLESS[name]
    with ScriptedServer(endless) as server:
        spec = spec_for(server.url, **{**PATIENT, **changes})
        assert probe(spec, SystemClock()).failure == kind


class HastyClock(SystemClock):
    """A second passes with each look."""

    def __init__(self) -> None:
        self._at_ns = 0

    def now_ns(self) -> int:
        self._at_ns += 10**9
        return self._at_ns


def test_the_probe_takes_comments_for_no_sign_of_life() -> None:
    with ScriptedServer(repeated(chunk(b":\n\n") * 100)) as server:
        found = probe(spec_for(server.url, stall_timeout_s=100), HastyClock())
    assert (found.failure, found.failure_detail) == (
        "stall",
        "bytes, but no whole event for 20 s",
    )


def test_whether_an_overlong_answer_ended_in_time_makes_no_difference(
    tmp_path: Path,
) -> None:
    def script(exchange: Exchange) -> None:
        n = 1_009 if exchange.number == 0 else 1_008
        exchange.write(stream(text("a b c"), usage(n), DONE))

    _, requests, _ = driven(tmp_path, script, n_prompts=2, concurrency=1)
    assert [r.failure for r in requests] == ["overlong", None]
    assert requests[0].failure_detail == (
        "1009 tokens by the server's count where 4 tokens were asked for"
    )


class JumpingClock(SystemClock):
    """The machine's clock, and what a test puts on top."""

    def __init__(self) -> None:
        self.ahead_ns = 0

    def now_ns(self) -> int:
        return SystemClock.now_ns() + self.ahead_ns


async def _given_up(url: str) -> Request:
    """Drive one request; minutes pass when its first bytes have come."""
    ended: list[Request] = []
    spec = spec_for(url, n_prompts=1, concurrency=1, stall_timeout_s=1e6)
    clock = JumpingClock()
    peers = [resolve(url, request_head(spec))]
    lane = Lane(spec, 0, peers, lambda request, _: ended.append(request), clock)
    lane.slots.append(Slot(0, lane))
    stock = Stock()
    stock.add(Prompt(index=0, rest=request_rest(spec, [1], 4)))
    lane.start(stock, clock.now_ns())
    try:
        async with asyncio.timeout(60):
            while not lane.counts.delays.n:  # reads
                await asyncio.sleep(0.001)
                lane.counts.fold()
            clock.ahead_ns = 10**12
            while not ended:
                lane.check()
                await asyncio.sleep(0.001)
    finally:
        lane.close()
    return ended[0]


@pytest.mark.parametrize(
    ("endless", "kind"),
    [
        (repeated(chunk(b":\n\n") * 100), "stall"),
        (repeated(chunk(b"d"), 0.001), "stall"),
        (repeated(b"HTTP/1.1 102 Processing\r\n\r\n", 0.001, b""), "header-timeout"),
        (repeated(b"x: y\r\n", 0.001, HEAD[:-2]), "header-timeout"),
    ],
    ids=["comments without a pause", "parts of an event", "interim", "headers"],
)
def test_bytes_that_bring_no_event_are_no_sign_of_life(
    endless: Script, kind: str
) -> None:
    with ScriptedServer(endless) as server:
        request = asyncio.run(_given_up(server.url))
    assert request.failure == kind


def with_events(n: int, data: bytes) -> Response:
    response = Response()
    response.feed(HEAD, 0)
    for _ in range(n):
        response.feed(chunk(data), 0)
    return response


def verdict(limits: Limits, response: Response, asked: int | None) -> str | None:
    found = limits.broken(response, asked, Seen(0, 0, 0), 0)
    return None if found is None else found[0]


def test_a_token_may_come_in_sixteen_parts_and_an_answer_bring_further_events() -> None:
    limits = limits_of(spec_for("http://127.0.0.1:1"))
    assert verdict(limits, with_events(16 * 100 + 1_000, text("a")), 100) is None
    assert verdict(limits, with_events(16 * 100 + 1_001, text("a")), 100) == "overlong"
    assert verdict(limits, with_events(5_000, text("a")), None) is None


@pytest.mark.parametrize(
    ("extra", "most"),
    [
        ({}, 2 * 4 + 1_000),
        ({"max_tokens": 600}, 2 * 600 + 1_000),
        ({"max_tokens": 600, "n": 3}, 3 * 2 * 600 + 1_000),
        ({"max_tokens": 2}, 2 * 4 + 1_000),
        ({"sampling_params": {"max_new_tokens": 70}}, 2 * 70 + 1_000),
        ({"max_tokens": None}, None),
        ({"n_predict": -1}, None),
    ],
)
def test_what_extra_fields_ask_for_is_asked_for(
    extra: dict[str, object], most: int | None
) -> None:
    limits = limits_of(spec_for("http://127.0.0.1:1", extra_body=extra))
    if most is None:
        assert verdict(limits, with_events(1, usage(10**9)), 4) is None
        return
    assert verdict(limits, with_events(1, usage(most)), 4) is None
    assert verdict(limits, with_events(1, usage(most + 1)), 4) == "overlong"
