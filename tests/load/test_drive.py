import os
import signal
import threading
import time
from collections import Counter
from pathlib import Path

import msgspec
import pytest
from tests.load.scripted import (
    DONE,
    END,
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
from stepscope.errors import RecipeError, SessionError
from stepscope.load.drive import clock_note, drive
from stepscope.load.journal import read_requests, read_texts
from stepscope.load.spec import LoadProgress
from stepscope.run.client import ClientNode
from stepscope.run.requests import Request


def failures(requests: tuple[Request, ...]) -> dict[str | None, int]:
    return dict(Counter(r.failure for r in requests))


def test_every_prompt_is_answered_once_over_one_connection_a_slot(
    tmp_path: Path,
) -> None:
    result, requests, server = driven(tmp_path, lambda e: e.write(answer()))
    assert failures(requests) == {None: 6}
    assert sorted(r.index for r in requests) == list(range(6))
    assert server.n_connections == 3
    assert (result.n_ok, result.n_failed) == (6, 0)
    for request in requests:
        assert request.output_tokens == request.n_chunks == 4
        assert request.prompt_tokens == 8
        stamps = request.chunks_ns.tolist()
        assert stamps == sorted(stamps)
        assert request.first_content_at_ns == stamps[0]
        assert request.last_content_at_ns == stamps[-1]
        assert result.started_at_ns <= request.sent_at_ns < stamps[0]
        assert stamps[-1] <= request.ended_at_ns <= result.ended_at_ns


def test_requests_differ_and_are_drawn_from_the_seed_alone(tmp_path: Path) -> None:
    seen = []
    for run, processes in enumerate((1, 2, 1)):
        folder = tmp_path / str(run)
        folder.mkdir()
        _, _, server = driven(
            folder,
            lambda e: e.write(answer()),
            processes=processes,
            seed=7 if run < 2 else 8,
        )
        seen.append(sorted(r.partition(b"\r\n\r\n")[2] for r in server.requests))
    assert len(set(seen[0])) == 6
    assert seen[0] == seen[1]
    assert not set(seen[0]) & set(seen[2])


def test_slots_and_prompts_are_dealt_over_the_workers(tmp_path: Path) -> None:
    result, requests, server = driven(
        tmp_path, lambda e: e.write(answer()), n_prompts=10, concurrency=5, processes=2
    )
    assert result.health.processes == 2
    assert server.n_connections == 5
    assert {r.worker for r in requests} == {0, 1}
    assert {(r.slot % 2, r.worker) for r in requests} == {(0, 0), (1, 1)}
    assert sorted(r.index for r in requests) == list(range(10))


def test_the_body_says_what_was_asked_and_extra_fields_have_the_last_word(
    tmp_path: Path,
) -> None:
    _, _, server = driven(
        tmp_path,
        lambda e: e.write(answer()),
        n_prompts=1,
        temperature=0.5,
        extra_body={"max_tokens": 9, "cache_prompt": False},
        headers={"X-Test": "yes"},
    )
    head, _, body = server.requests[0].partition(b"\r\n\r\n")
    asked = msgspec.json.decode(body)
    prompt = asked.pop("prompt")
    assert len(prompt) == 8
    assert all(0 <= token < 4096 for token in prompt)
    assert b"X-Test: yes" in head
    assert asked == {
        "model": "m",
        "max_tokens": 9,
        "stream": True,
        "stream_options": {"include_usage": True},
        "temperature": 0.5,
        "ignore_eos": True,
        "cache_prompt": False,
    }


# Shapes of a stream that are good answers: (bytes, content chunks, output tokens).
GOOD = {
    "role first": (
        stream(
            b'data: {"choices":[{"delta":{"role":"assistant","content":""}}]}\n\n',
            b'data: {"choices":[{"delta":{"content":"a"}}]}\n\n',
            usage(1),
            DONE,
        ),
        1,
        1,
    ),
    "empty chunks": (stream(text(""), text("a"), text(""), usage(1), DONE), 1, 1),
    "several tokens in a chunk": (stream(text("a b c"), usage(3), DONE), 1, 3),
    "events merged in one HTTP chunk": (
        stream(text("a") + text("b") + usage(2) + DONE),
        2,
        2,
    ),
    "an event over two HTTP chunks": (
        HEAD + chunk(text("a")[:9]) + chunk(text("a")[9:] + usage(1) + DONE) + END,
        1,
        1,
    ),
    "comments": (stream(b":\n\n", text("a"), b": ping\n\n", usage(1), DONE), 1, 1),
    "carriage returns": (
        stream(*(e.replace(b"\n", b"\r\n") for e in (text("a"), usage(1), DONE))),
        1,
        1,
    ),
    "no DONE": (stream(text("a"), usage(1)), 1, 1),
    "null first": (stream(b"data: null\n\n", text("a"), usage(1), DONE), 1, 1),
    "early stop": (stream(text("a"), text("b"), usage(2), DONE), 2, 2),
    "usage in the last chunk": (
        stream(
            text("a"),
            b'data: {"choices":[{"text":"","finish_reason":"length"}],'
            b'"usage":{"prompt_tokens":8,"completion_tokens":1}}\n\n',
            DONE,
        ),
        1,
        1,
    ),
}


@pytest.mark.parametrize("split", [None, 1])
def test_every_good_shape_is_measured(tmp_path: Path, split: int | None) -> None:
    shapes = list(GOOD.values())

    def script(exchange: Exchange) -> None:
        exchange.write(shapes[exchange.number][0], split=split)

    _, requests, _ = driven(tmp_path, script, n_prompts=len(shapes), concurrency=1)
    for request, name in zip(requests, GOOD, strict=True):
        found = (request.failure, request.n_chunks, request.output_tokens)
        assert found == (None, *GOOD[name][1:]), name


def whole(data: bytes) -> Script:
    return lambda exchange: exchange.write(data)


def cut(data: bytes) -> Script:
    def script(exchange: Exchange) -> None:
        exchange.write(data)
        exchange.hang_up()

    return script


def reset_after(data: bytes) -> Script:
    def script(exchange: Exchange) -> None:
        exchange.write(data)
        time.sleep(0.05)  # a reset throws away what the client has not read yet
        exchange.reset()

    return script


def stalled(data: bytes) -> Script:
    def script(exchange: Exchange) -> None:
        exchange.write(data)
        exchange.hold()

    return script


def pinging(exchange: Exchange) -> None:
    exchange.write(HEAD)
    while True:
        exchange.write(chunk(b":\n\n"))
        time.sleep(0.02)


BAD: dict[str, tuple[Script, str]] = {
    "error object after 200": (
        whole(stream(text("a"), b'data: {"error":{"message":"died"}}\n\n', DONE)),
        "stream-error",
    ),
    "no events": (whole(stream()), "empty"),
    "no usage": (whole(stream(text("a"), DONE)), "no-usage"),
    "429": (whole(b"HTTP/1.1 429 X\r\ncontent-length: 2\r\n\r\n{}"), "rate-limited"),
    "503": (whole(b"HTTP/1.1 503 X\r\ncontent-length: 2\r\n\r\n{}"), "rate-limited"),
    "500": (cut(b"HTTP/1.1 500 X\r\n\r\nTraceback"), "http-status"),
    "a page": (whole(b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\nx"), "not-a-stream"),
    "no HTTP": (whole(b"hello\r\n\r\n"), "malformed"),
    "broken JSON": (whole(stream(b"data: {\n\n", usage(1), DONE)), "malformed"),
    "closed in mid-stream": (cut(HEAD + chunk(text("a"))), "closed"),
    "closed in the header": (cut(HEAD[:20]), "closed"),
    "reset in mid-stream": (reset_after(HEAD + chunk(text("a"))), "reset"),
    "no header": (stalled(b""), "header-timeout"),
    "half a header": (stalled(HEAD[:30]), "header-timeout"),
    "silence in mid-stream": (stalled(HEAD + chunk(text("a"))), "stall"),
    "only comments": (pinging, "stall"),
}


@pytest.mark.parametrize("name", BAD)
def test_every_bad_shape_is_a_failure_and_the_slot_goes_on(
    tmp_path: Path, name: str
) -> None:
    bad, kind = BAD[name]

    def script(exchange: Exchange) -> None:
        (bad if exchange.number == 0 else whole(answer()))(exchange)

    result, requests, _ = driven(
        tmp_path,
        script,
        n_prompts=3,
        concurrency=1,
        header_timeout_s=1.0,
        stall_timeout_s=0.4,
    )
    assert [r.failure for r in requests] == [kind, None, None]
    assert requests[0].failure_detail
    assert (result.n_ok, result.n_failed) == (2, 1)


def test_a_server_that_closes_after_each_answer_is_connected_to_again(
    tmp_path: Path,
) -> None:
    closing = answer().replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n", 1)
    _, requests, server = driven(tmp_path, cut(closing))
    assert failures(requests) == {None: 6}
    assert server.n_connections == 6


def test_a_request_on_a_connection_that_was_just_closed_is_sent_once_more(
    tmp_path: Path,
) -> None:
    def script(exchange: Exchange) -> None:
        # The second request finds the connection closed without an answer.
        if exchange.number == 1:
            exchange.hang_up()
        else:
            exchange.write(answer())

    _, requests, server = driven(tmp_path, script, n_prompts=3, concurrency=1)
    assert failures(requests) == {None: 3}
    assert len(server.requests) == 4


def test_it_is_not_sent_a_third_time(tmp_path: Path) -> None:
    def script(exchange: Exchange) -> None:
        exchange.hang_up()

    _, requests, server = driven(tmp_path, script, n_prompts=2, concurrency=1)
    assert failures(requests) == {"closed": 2}
    assert len(server.requests) <= 4


def test_a_server_that_is_gone_ends_the_cell_with_everything_recorded(
    tmp_path: Path,
) -> None:
    server = ScriptedServer(lambda _: None)

    def script(exchange: Exchange) -> None:
        if exchange.number < 3:
            exchange.write(answer())
        else:
            exchange.reset()
            exchange.sock.close()
            threading.Thread(target=server.stop).start()

    server._script = script
    with server:
        result = drive(
            spec_for(server.url, n_prompts=50), tmp_path, clock=SystemClock()
        )
    requests = read_requests(tmp_path)
    assert sorted(r.index for r in requests) == list(range(50))
    assert failures(requests)[None] >= 3
    assert failures(requests)["refused"] > 30
    assert result.n_ok + result.n_failed == 50


def test_a_server_that_never_was_there_is_said_before_anything_is_sent(
    tmp_path: Path,
) -> None:
    with ScriptedServer(lambda _: None) as server:
        spec = spec_for(server.url)
    with pytest.raises(SessionError, match="refused"):
        drive(spec, tmp_path, clock=SystemClock())
    assert read_requests(tmp_path) == ()


def test_stopping_cancels_what_is_in_flight_and_invents_nothing(
    tmp_path: Path,
) -> None:
    stop = threading.Event()

    def script(exchange: Exchange) -> None:
        if exchange.number < 3:
            exchange.write(answer())
            return
        exchange.write(HEAD + chunk(text("a")))
        if exchange.number == 5:
            stop.set()
        exchange.hold()

    with ScriptedServer(script) as server:
        spec = spec_for(server.url, n_prompts=40)
        result = drive(spec, tmp_path, clock=SystemClock(), stop=stop)
    assert result.stopped
    assert failures(read_requests(tmp_path)) == {None: 3, "cancelled": 3}


def worker_pids() -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                argv = (entry / "cmdline").read_bytes()
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
            if b"stepscope.load.worker" in argv and parent == os.getpid():
                found.append(int(entry.name))
    return sorted(found)


def test_a_killed_worker_loses_nothing_finished_and_the_others_go_on(
    tmp_path: Path,
) -> None:
    killed = threading.Event()
    lock = threading.Lock()

    def script(exchange: Exchange) -> None:
        with lock:
            if exchange.number >= 8 and not killed.is_set():
                os.kill(worker_pids()[0], signal.SIGKILL)
                killed.set()
        exchange.write(answer())

    result, requests, _ = driven(
        tmp_path, script, n_prompts=400, concurrency=4, processes=2
    )
    by_worker = Counter(r.worker for r in requests)
    assert max(by_worker.values()) == 200
    assert min(by_worker.values()) < 200
    assert len({r.index for r in requests}) == len(requests)
    assert result.lost_workers == 1
    assert result.health.verdict == "limited"
    assert any("SIGKILL" in reason for reason in result.health.reasons)
    assert [f.code for f in result.findings] == ["client-worker-lost"]
    assert result.n_ok == len(requests)


def test_progress_ends_with_all_requests_counted(tmp_path: Path) -> None:
    heard: list[LoadProgress] = []
    with ScriptedServer(lambda e: e.write(answer())) as server:
        drive(
            spec_for(server.url),
            tmp_path,
            clock=SystemClock(),
            on_progress=heard.append,
        )
    assert heard[-1].n_done == 6
    assert heard[-1].output_tokens == 24
    assert heard[-1].in_flight == 0


def test_the_clients_health_is_computed_from_what_it_saw(tmp_path: Path) -> None:
    def script(exchange: Exchange) -> None:
        exchange.write(HEAD)
        for i in range(8):
            time.sleep(0.005)
            exchange.write(chunk(text(f"t{i}") + text(f"u{i}")))
        exchange.write(chunk(usage(32)) + chunk(DONE) + END)

    result, _, _ = driven(tmp_path, script, n_prompts=30, concurrency=3)
    health = result.health
    assert health.loop in {"uvloop", "asyncio"}
    assert health.stamps == "kernel"
    assert health.delay_ms is not None
    assert 0 < health.delay_ms.mean <= health.delay_ms.p99 <= health.delay_ms.max
    assert health.unstamped_pct is not None
    assert health.unstamped_pct < 50
    assert health.merged_reads_pct is not None
    assert health.merged_reads_pct > 50
    assert health.tokens_per_chunk_mean == 2.0
    assert health.chunks_per_s_peak is not None
    assert 0 < health.chunks_per_s_peak <= 480
    for share in (health.busy_pct, health.cpu_pct_max, health.held_pct):
        assert share is not None
        assert 0 < share <= 101


def test_texts_are_kept_where_they_are_asked_for(tmp_path: Path) -> None:
    driven(tmp_path, lambda e: e.write(answer(2)), n_prompts=2, keep_text=True)
    assert read_texts(tmp_path) == {0: " t0 t1", 1: " t0 t1"}


def test_journals_of_another_cell_are_not_added_to(tmp_path: Path) -> None:
    (tmp_path / "requests-0.journal").write_bytes(b"")
    with (
        ScriptedServer(whole(answer())) as server,
        pytest.raises(SessionError, match="earlier cell"),
    ):
        drive(spec_for(server.url), tmp_path, clock=SystemClock())


@pytest.mark.parametrize(
    "changes",
    [
        {"n_prompts": 0},
        {"base_url": "ftp://host"},
        {"base_url": "host:80"},
        {"base_url": "http://host:no"},
        {"endpoint": "/v1/embeddings"},
        {"cpus": "0-x"},
        {"cpus": "3-1"},
        {"api_key_env": "STEPSCOPE_TEST_NO_SUCH_KEY"},
        {"headers": {"X": "a\r\nb"}},
    ],
)
def test_a_wrong_spec_is_refused(tmp_path: Path, changes: dict[str, object]) -> None:
    with ScriptedServer(lambda _: None) as server:
        spec = spec_for(server.url, **changes)
    with pytest.raises(RecipeError):
        drive(spec, tmp_path, clock=SystemClock())


@pytest.mark.parametrize(
    ("n", "words"), [(1, "from one machine, its"), (2, "from 2 machines, their")]
)
def test_the_machines_of_a_load_are_counted_in_words(n: int, words: str) -> None:
    node = ClientNode(
        name="a",
        workers=(0,),
        clock_offset_ms=0.0,
        clock_error_ms=0.5,
        delay_ms=None,
        busy_pct=None,
        cpu_pct_max=None,
        held_pct=None,
        verdict="ok",
    )
    (finding,) = clock_note([node] * n)
    assert f"{words} clock" in finding.message
    assert "aligned to 0.500 ms each" in finding.message
