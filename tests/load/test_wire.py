"""TLS, Unix sockets, replicas, keys and the engines' own endpoints, for real."""

import json
from collections import Counter
from pathlib import Path

import msgspec
import pytest
from tests.load.scripted import (
    CERTIFICATE,
    DONE,
    END,
    HEAD,
    Exchange,
    ScriptedServer,
    answer,
    chunk,
    stream,
    text,
    usage,
)
from tests.load.specs import driven, spec_for
from tests.load.test_drive import failures

from stepscope.clock import SystemClock
from stepscope.errors import RecipeError, SessionError
from stepscope.load.ask import served_models
from stepscope.load.bench_result import by_replica
from stepscope.load.columns import columns
from stepscope.load.drive import drive
from stepscope.load.journal import read_requests
from stepscope.load.probe import probe
from stepscope.load.wire import Server, parse_address

SECRET = "sk-open-sesame-0123456789"


def whole(exchange: Exchange) -> None:
    exchange.write(answer())


def in_pieces(exchange: Exchange) -> None:
    exchange.write(answer(), split=40)


def test_an_encrypted_server_is_measured_and_the_kernels_stamps_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(CERTIFICATE))
    with ScriptedServer(in_pieces, tls=True) as server:
        result = drive(spec_for(server.url), tmp_path, clock=SystemClock())
    requests = read_requests(tmp_path)
    assert failures(requests) == {None: 6}
    assert all(r.output_tokens == 4 and r.n_chunks == 4 for r in requests)
    assert server.n_connections == 3
    assert result.health.stamps == "kernel"


def test_a_certificate_that_nobody_vouches_for_is_refused_unless_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    with ScriptedServer(whole, tls=True) as server:
        found = probe(spec_for(server.url), SystemClock())
        assert found.failure == "connect"
        with pytest.raises(SessionError, match="certificate verify failed"):
            drive(spec_for(server.url), tmp_path, clock=SystemClock())
        cell = tmp_path / "cell"
        cell.mkdir()
        drive(spec_for(server.url, insecure=True), cell, clock=SystemClock())
        assert probe(spec_for(server.url, insecure=True), SystemClock()).failure is None
    assert failures(read_requests(cell)) == {None: 6}


def test_a_plain_server_behind_an_https_address_is_said(tmp_path: Path) -> None:
    def plain(exchange: Exchange) -> None:
        exchange.write(b"HTTP/1.1 400 Bad\r\ncontent-length: 0\r\n\r\n")

    with ScriptedServer(plain) as server:
        url = server.url.replace("http:", "https:")
        spec = spec_for(url, connect_timeout_s=1.0)
        with pytest.raises(SessionError, match="no connection"):
            drive(spec, tmp_path, clock=SystemClock())


def test_a_unix_socket_is_measured_with_stamps_of_our_own_and_a_bound(
    tmp_path: Path,
) -> None:
    cell = tmp_path / "cell"
    cell.mkdir()
    models = {"/v1/models": b'{"data":[{"id":"m"}]}'}
    with ScriptedServer(in_pieces, models, path=tmp_path / "s") as server:
        result = drive(spec_for(server.url), cell, clock=SystemClock())
        assert served_models(Server(server.url)) == [{"id": "m"}]
        assert probe(spec_for(server.url), SystemClock()).failure is None
    assert failures(read_requests(cell)) == {None: 6}
    assert b"Host: localhost\r\n" in server.requests[0]
    assert result.health.stamps == "user"
    assert result.health.unstamped_pct == 100
    assert result.health.delay_ms is not None


def test_more_clients_than_a_unix_sockets_backlog_get_in(tmp_path: Path) -> None:
    cell = tmp_path / "cell"
    cell.mkdir()
    with ScriptedServer(whole, path=tmp_path / "s") as server:
        spec = spec_for(server.url, n_prompts=80, concurrency=80)
        drive(spec, cell, clock=SystemClock())
    assert failures(read_requests(cell)) == {None: 80}


def test_slots_are_dealt_over_replicas_in_turn_and_each_is_counted(
    tmp_path: Path,
) -> None:
    with ScriptedServer(whole) as one, ScriptedServer(whole) as other:
        urls = (one.url, other.url)
        spec = spec_for(one.url, replicas=urls[1:], n_prompts=8, concurrency=4)
        drive(spec, tmp_path, clock=SystemClock())
    requests = read_requests(tmp_path)
    assert Counter(r.replica for r in requests) == {
        0: len(one.requests),
        1: len(other.requests),
    }
    assert {r.slot % 2 for r in requests if r.replica == 1} == {1}
    host = urls[1].removeprefix("http://").encode()
    assert all(b"Host: " + host + b"\r\n" in r for r in other.requests)
    told = by_replica(columns(requests), urls)
    assert [r["completed"] for r in told] == [len(one.requests), len(other.requests)]


def test_a_key_from_a_file_goes_along_and_is_written_nowhere(tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text(SECRET + "\n")
    cell = tmp_path / "cell"
    cell.mkdir()
    with ScriptedServer(whole) as server:
        spec = spec_for(server.url, api_key_file=str(key), headers={"X-Team": "a b"})
        drive(spec, cell, clock=SystemClock())
    assert all(
        f"Authorization: Bearer {SECRET}\r\n".encode() in r for r in server.requests
    )
    assert all(b"X-Team: a b\r\n" in r for r in server.requests)
    assert all(SECRET.encode() not in p.read_bytes() for p in cell.iterdir())
    assert SECRET not in msgspec.json.encode(spec).decode()


@pytest.mark.parametrize("content", [None, "", "\n"])
def test_a_key_file_without_a_key_is_said_before_anything_is_sent(
    tmp_path: Path, content: str | None
) -> None:
    key = tmp_path / "key"
    if content is not None:
        key.write_text(content)
    with ScriptedServer(whole) as server:
        spec = spec_for(server.url, api_key_file=str(key))
        with pytest.raises(RecipeError, match="API key file"):
            drive(spec, tmp_path, clock=SystemClock())
    assert not server.requests


@pytest.mark.parametrize(
    "url", ["unix://", "unix://host/p", "unix:///", "http://", "ftp://h", "h:1"]
)
def test_an_address_that_can_not_be_connected_to_is_refused(url: str) -> None:
    with pytest.raises(RecipeError, match="base URL"):
        parse_address(url)


def own(content: str, n: int) -> bytes:
    return (
        f'data: {{"content":"{content}","stop":false,"tokens_predicted":{n},'
        f'"tokens_evaluated":8}}\n\n'
    ).encode()


LLAMA_END = (
    b'data: {"content":"","stop":true,"stop_type":"limit","tokens_predicted":4,'
    b'"tokens_evaluated":8,"timings":{"cache_n":3}}\n\n'
)


def test_llamacpps_own_endpoint_is_asked_in_its_words_and_measured(
    tmp_path: Path,
) -> None:
    def script(exchange: Exchange) -> None:
        events = [own(f" {n}", n) for n in range(1, 5)]
        exchange.write(stream(*events, LLAMA_END))

    changes: dict[str, object] = {"endpoint": "/completion", "temperature": 0.5}
    _, requests, server = driven(tmp_path, script, **changes)
    assert failures(requests) == {None: 6}
    assert all((r.prompt_tokens, r.output_tokens) == (8, 4) for r in requests)
    assert all(r.n_chunks == 4 and r.cached_tokens == 3 for r in requests)
    body = json.loads(server.requests[0].partition(b"\r\n\r\n")[2])
    assert len(body.pop("prompt")) == 8
    assert body == {
        "n_predict": 4,
        "stream": True,
        "temperature": 0.5,
        "ignore_eos": True,
    }


def test_a_native_stream_without_its_last_event_is_no_whole_answer(
    tmp_path: Path,
) -> None:
    def script(exchange: Exchange) -> None:
        exchange.write(stream(own(" a", 1), own(" b", 2)))

    _, requests, _ = driven(tmp_path, script, endpoint="/completion")
    assert failures(requests) == {"closed": 6}


def test_sglangs_own_endpoint_is_asked_in_its_words_and_measured(
    tmp_path: Path,
) -> None:
    def event(n: int, reason: str = "null") -> bytes:
        said = "".join(f" t{i}" for i in range(n))
        return (
            f'data: {{"text":"{said}","meta_info":{{"finish_reason":{reason},'
            f'"prompt_tokens":8,"completion_tokens":{n},"cached_tokens":2}}}}\n\n'
        ).encode()

    def script(exchange: Exchange) -> None:
        last = event(4, '{"type":"length","length":4}')
        exchange.write(stream(event(1), event(2), event(2), last, DONE))

    _, requests, server = driven(tmp_path, script, endpoint="/generate")
    assert failures(requests) == {None: 6}
    assert all((r.n_chunks, r.output_tokens) == (3, 4) for r in requests)
    assert all(r.finish_reason == "length" for r in requests)
    body = json.loads(server.requests[0].partition(b"\r\n\r\n")[2])
    assert len(body.pop("input_ids")) == 8
    assert body == {
        "sampling_params": {"max_new_tokens": 4, "ignore_eos": True},
        "stream": True,
    }


def test_time_to_the_first_answer_is_kept_beside_time_to_the_first_token(
    tmp_path: Path,
) -> None:
    def delta(field: str) -> bytes:
        said = f'data: {{"choices":[{{"index":0,"delta":{{"{field}":"a"}}}}]}}\n\n'
        return chunk(said.encode())

    def script(exchange: Exchange) -> None:
        exchange.write(HEAD + delta("reasoning_content"))
        exchange.released.wait(0.03)
        exchange.write(delta("reasoning"))
        exchange.released.wait(0.03)
        exchange.write(delta("content") + delta("content"))
        exchange.write(chunk(usage(4)) + chunk(DONE) + END)

    _, requests, _ = driven(
        tmp_path, script, endpoint="/v1/chat/completions", n_prompts=2, concurrency=1
    )
    for request in requests:
        assert request.ttft_ns is not None
        assert request.ttfat_ns is not None
        assert request.ttfat_ns > request.ttft_ns
        assert request.chunks_ns[2] == request.first_answer_at_ns


@pytest.mark.parametrize("status", ["429 Too Many Requests", "503 Unavailable"])
def test_a_busy_server_and_when_to_come_again_are_recorded(
    tmp_path: Path, status: str
) -> None:
    def script(exchange: Exchange) -> None:
        head = f"HTTP/1.1 {status}\r\nRetry-After: 7\r\ncontent-length: 4\r\n\r\n"
        exchange.write(head.encode() + b"full")

    _, requests, _ = driven(tmp_path, script)
    assert failures(requests) == {"rate-limited": 6}
    assert requests[0].failure_detail == f"HTTP {status[:3]} (Retry-After: 7): full"


def test_events_with_carriage_returns_are_events(tmp_path: Path) -> None:
    def script(exchange: Exchange) -> None:
        events = (text(" a"), text(" b"), text(" c"), text(" d"), usage(4), DONE)
        exchange.write(stream(*(e.replace(b"\n", b"\r\n") for e in events)), split=7)

    _, requests, _ = driven(tmp_path, script)
    assert failures(requests) == {None: 6}
    assert all(r.n_chunks == 4 for r in requests)


def test_a_header_that_comes_late_and_in_parts_is_waited_for(tmp_path: Path) -> None:
    def script(exchange: Exchange) -> None:
        exchange.released.wait(0.05)
        exchange.write(HEAD[:30])
        exchange.released.wait(0.05)
        exchange.write(HEAD[30:] + answer()[len(HEAD) :])

    _, requests, _ = driven(tmp_path, script, n_prompts=2, concurrency=1)
    assert failures(requests) == {None: 2}
    assert all(r.ttft_ns is not None and r.ttft_ns > 50_000_000 for r in requests)
