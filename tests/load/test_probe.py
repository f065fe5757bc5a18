import socket

import msgspec
import pytest
from tests.load.scripted import (
    DONE,
    HEAD,
    Exchange,
    ScriptedServer,
    answer,
    chunk,
    stream,
    text,
    usage,
)
from tests.load.specs import spec_for

from stepscope.clock import SystemClock
from stepscope.load.probe import probe
from stepscope.load.spec import LoadSpec
from stepscope.load.text import text_plan

ONE = {
    "n_prompts": 1,
    "concurrency": 1,
    "input_tokens": 40,
    "vocab_size": None,
    "header_timeout_s": 0.3,
    "stall_timeout_s": 0.3,
}


def test_a_good_server_streams_and_counts() -> None:
    with ScriptedServer(lambda e: e.write(answer(4))) as server:
        found = probe(spec_for(server.url, **ONE), SystemClock())
    assert found.failure is None
    assert (found.streams, found.usage) == (True, True)
    assert (found.n_chunks, found.output_tokens, found.prompt_tokens) == (4, 4, 8)
    assert found.tokens_per_chunk == 1.0
    assert found.raw == answer(4)


def test_an_answer_in_one_piece_does_not_stream() -> None:
    whole = stream(text("a b c"), usage(3), DONE)
    with ScriptedServer(lambda e: e.write(whole)) as server:
        found = probe(spec_for(server.url, **ONE), SystemClock())
    assert (found.streams, found.n_chunks, found.tokens_per_chunk) == (False, 1, 3.0)


def test_one_token_can_not_show_whether_it_streams() -> None:
    with ScriptedServer(lambda e: e.write(answer(1))) as server:
        assert probe(spec_for(server.url, **ONE), SystemClock()).streams is None


def hold(exchange: Exchange) -> None:
    exchange.hold()


def half(exchange: Exchange) -> None:
    exchange.write(HEAD + chunk(text("a")))
    exchange.hold()


def cut(exchange: Exchange) -> None:
    exchange.write(HEAD + chunk(text("a")))
    exchange.hang_up()


@pytest.mark.parametrize(
    ("script", "kind"),
    [(hold, "header-timeout"), (half, "stall"), (cut, "closed")],
)
def test_a_server_that_does_not_answer_is_a_failure_of_its_kind(
    script: object, kind: str
) -> None:
    with ScriptedServer(script) as server:  # type: ignore[arg-type]  # parametrized
        found = probe(spec_for(server.url, **ONE), SystemClock())
    assert found.failure == kind
    assert found.failure_detail


def test_no_server_is_a_failure_too() -> None:
    with ScriptedServer(lambda e: e.write(answer())) as server:
        spec = spec_for(server.url, **ONE)
    assert probe(spec, SystemClock()).failure == "refused"


def test_without_a_tokenizer_a_word_is_taken_for_a_token() -> None:
    with ScriptedServer(lambda e: e.write(answer())) as server:
        plan = text_plan(spec_for(server.url, **ONE, token_ids=False))
    assert (plan.n_words, plan.exact) == (40, False)


class TokenizingServer(ScriptedServer):
    """Lends vLLM's tokenizer: a word is a token, a long word two, the frame three."""

    def _reply(self, request: bytes) -> bytes:
        asked = msgspec.json.decode(request.partition(b"\r\n\r\n")[2])
        words = asked["prompt"].split()
        count = 3 + sum(2 if len(word) > 5 else 1 for word in words)
        return msgspec.json.encode({"count": count})


def test_with_a_tokenizer_text_prompts_have_their_exact_length() -> None:
    with TokenizingServer(lambda e: e.write(answer())) as server:
        plan = text_plan(spec_for(server.url, **ONE, token_ids=False))
    assert plan.exact
    assert plan.n_words == 37
    assert all(len(word) <= 5 for word in plan.words)


def test_a_handshake_that_nobody_answers_is_told_with_its_own_limit() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        spec = LoadSpec(
            base_url=f"https://127.0.0.1:{silent.getsockname()[1]}",
            model="m",
            n_prompts=1,
            concurrency=1,
            input_tokens=8,
            output_tokens=4,
            connect_timeout_s=0.2,
            header_timeout_s=300,
            token_ids=True,
        )
        found = probe(spec, SystemClock())
    assert (found.failure, found.failure_detail) == (
        "connect",
        "no connection in 0.2 s",
    )
