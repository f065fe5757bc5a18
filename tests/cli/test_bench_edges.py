"""``stepscope bench`` where servers are dead or fail, and with vLLM's further flags."""

import json
import threading
from collections.abc import Callable

import pytest
from tests.cli.test_bench import MODELS, bench, quick
from tests.load.scripted import Exchange, ScriptedServer, answer

BAD = b"HTTP/1.1 500 X\r\ncontent-length: 2\r\n\r\nno"


def dead_url() -> str:
    with ScriptedServer(lambda _: None) as server:
        return server.url


@pytest.mark.parametrize("dead_first", [True, False])
def test_a_replica_that_is_dead_before_the_start_exits_3_wherever_it_stands(
    dead_first: bool,
) -> None:
    dead = dead_url()
    with ScriptedServer(lambda e: e.write(answer()), MODELS) as server:
        urls = (dead, server.url) if dead_first else (server.url, dead)
        done = bench(
            *("--base-url", urls[0], "--base-url", urls[1], "--model", "m"),
            *("--num-prompts", "6", "--input-len", "8", "--output-len", "4"),
        )
    assert done.returncode == 3
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1
    assert done.stderr.startswith(f"{dead}: the first request failed (refused")


def after(n: int) -> Callable[[Exchange], None]:
    return lambda e: e.write(answer() if e.number < n else BAD)


def test_a_replica_that_fails_later_exits_0_and_is_told_aloud() -> None:
    with (
        ScriptedServer(lambda e: e.write(answer()), MODELS) as one,
        ScriptedServer(after(1)) as other,
    ):
        done = quick(one, "--base-url", other.url, "--json", "--num-warmups", "0")
        told = other.url
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    n = document["failed"]
    assert 0 < n < 6
    (finding,) = document["findings"]
    assert (finding["code"], finding["severity"]) == ("failed-requests", "warning")
    assert (
        f"{n} of 6 requests failed ({n} http-status; {n} of {n} at {told})"
        in (finding["message"])
    )
    assert f"failed-requests: {n} of 6" in done.stderr


def test_all_requests_failed_exits_3_and_is_an_error() -> None:
    with ScriptedServer(after(1), MODELS) as server:
        done = quick(server, "--json", "--num-warmups", "0")
    assert done.returncode == 3
    document = json.loads(done.stdout)
    assert (document["completed"], document["failed"]) == (0, 6)
    (finding,) = document["findings"]
    assert (finding["code"], finding["severity"]) == ("failed-requests", "error")


def test_sampling_goes_with_each_request_and_an_extra_body_before_it() -> None:
    with ScriptedServer(lambda e: e.write(answer()), MODELS) as server:
        done = quick(
            server,
            *("--top-p", "0.9", "--top-k", "7", "--min-p", "0.1", "--logprobs", "2"),
            *("--frequency-penalty", "0.5", "--presence-penalty", "0.25"),
            *("--repetition-penalty", "1.5", "--extra-body", '{"top_k": 8}'),
            *("--tokenizer-mode", "auto", "--trust-remote-code", "--no-stream"),
            *("--skip-tokenizer-init", "--skip-chat-template"),
        )
    assert done.returncode == 0, done.stderr
    body = json.loads(server.requests[-1].partition(b"\r\n\r\n")[2])
    assert (body["top_p"], body["top_k"], body["min_p"]) == (0.9, 8, 0.1)
    assert (body["frequency_penalty"], body["presence_penalty"]) == (0.5, 0.25)
    assert (body["repetition_penalty"], body["logprobs"]) == (1.5, 2)
    with ScriptedServer(lambda e: e.write(answer()), MODELS) as server:
        assert quick(server).returncode == 0
    body = json.loads(server.requests[-1].partition(b"\r\n\r\n")[2])
    assert not {"top_p", "top_k", "min_p", "logprobs"} & set(body)


@pytest.mark.parametrize(
    ("words", "do"),
    [
        (("--profile",), "capture"),
        (("--plot-timeline",), "stepscope report"),
        (("--use-beam-search",), "without it"),
        (("--lora-modules", "a"), "--served-model-name"),
        (("--chat-template-kwargs", "{}"), "--extra-body"),
        (("--hf-split", "train"), "--dataset-name custom"),
        (("--prefix-repetition-prefix-len", "9"), "--random-prefix-len"),
    ],
)
def test_what_only_vllm_does_is_refused_by_name(
    words: tuple[str, ...], do: str
) -> None:
    done = bench("--model", "m", *words)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"{words[0]}: vllm bench serve has it, stepscope bench does")
    assert do in line


def test_a_server_that_comes_up_late_is_waited_for_where_that_was_asked() -> None:
    starting = b"HTTP/1.1 503 X\r\ncontent-length: 2\r\n\r\nno"
    refused = threading.Event()

    def script(exchange: Exchange) -> None:
        exchange.write(answer() if refused.is_set() else starting)
        refused.set()

    with ScriptedServer(script, MODELS) as server:
        done = quick(server, "--ready-check-timeout-sec", "60")
    assert done.returncode == 0, done.stderr
    later = starting.replace(b"X\r\n", b"X\r\nretry-after: 3600\r\n")
    with ScriptedServer(lambda e: e.write(later), MODELS) as server:
        assert quick(server).returncode == 3
