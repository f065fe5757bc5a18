"""Open loops against the scripted server: what was due, what was sent, what is kept."""

import itertools
import json
import threading
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from tests.load.scripted import Exchange, ScriptedServer, answer
from tests.load.specs import driven, spec_for

from stepscope.clock import SystemClock
from stepscope.errors import RecipeError, SessionError
from stepscope.load.arrivals import Arrivals, schedule
from stepscope.load.drive import drive
from stepscope.load.journal import read_requests
from stepscope.load.spec import Source

OPEN: dict[str, object] = {
    "n_prompts": 40,
    "concurrency": None,
    "seed": 3,
    "arrivals": Arrivals(kind="gamma", rate=200.0),
}


def well(exchange: Exchange) -> None:
    exchange.write(answer())


@pytest.mark.parametrize("processes", [1, 2, 3])
def test_the_processes_together_keep_one_schedule(
    tmp_path: Path, processes: int
) -> None:
    result, requests, _ = driven(tmp_path, well, **{**OPEN, "processes": processes})
    due = schedule(Arrivals(kind="gamma", rate=200.0), 40, 3)
    by_index = sorted(requests, key=lambda r: r.index)
    intended = [r.due_at_ns - result.started_at_ns for r in by_index]
    assert intended == due.tolist()
    assert {r.worker for r in requests} == set(range(processes))
    assert all(r.sent_at_ns >= r.due_at_ns for r in requests)


def test_latency_counts_from_when_a_request_was_due(tmp_path: Path) -> None:
    _, requests, _ = driven(tmp_path, well, **OPEN)
    for r in requests:
        assert r.intended_at_ns is not None
        assert r.first_content_at_ns is not None
        assert r.ttft_ns == r.first_content_at_ns - r.intended_at_ns
        assert r.chunks_ns[0] == r.first_content_at_ns


def test_a_slow_server_does_not_hold_back_what_is_due(tmp_path: Path) -> None:
    gate = threading.Event()

    def script(exchange: Exchange) -> None:
        if exchange.number == 39:
            gate.set()
        gate.wait(20)
        exchange.write(answer())

    result, requests, server = driven(tmp_path, script, **OPEN)
    assert len(requests) == result.n_ok == 40
    assert server.n_connections >= 40


def test_a_cap_holds_back_and_the_wait_is_counted(tmp_path: Path) -> None:
    lock, now, most = threading.Lock(), [0], [0]

    def script(exchange: Exchange) -> None:
        with lock:
            now[0] += 1
            most[0] = max(most[0], now[0])
        threading.Event().wait(0.02)
        with lock:
            now[0] -= 1
        exchange.write(answer())

    arrivals = Arrivals(kind="constant", rate=2000.0)
    result, requests, server = driven(
        tmp_path,
        script,
        **{**OPEN, "concurrency": 2, "arrivals": arrivals, "n_prompts": 20},
    )
    assert most[0] <= 2
    assert server.n_connections == 2
    last = max(requests, key=lambda r: r.index)
    assert last.sent_at_ns - last.due_at_ns > 50_000_000
    assert last.ttft_ns is not None
    assert last.ttft_ns > last.sent_at_ns - last.due_at_ns
    assert not any("late" in reason for reason in result.health.reasons)


def test_idle_time_costs_no_processor(tmp_path: Path) -> None:
    arrivals = Arrivals(kind="constant", rate=2.0)
    result, requests, _ = driven(
        tmp_path, well, **{**OPEN, "arrivals": arrivals, "n_prompts": 3}
    )
    assert len(requests) == 3
    assert result.health.busy_pct is not None
    assert result.health.busy_pct < 50


def test_a_stop_ends_an_open_loop_and_invents_nothing(tmp_path: Path) -> None:
    stop = threading.Event()

    def script(exchange: Exchange) -> None:
        exchange.write(answer())
        if exchange.number == 4:
            stop.set()

    arrivals = Arrivals(kind="constant", rate=20.0)
    with ScriptedServer(script) as server:
        spec = spec_for(
            server.url, **{**OPEN, "arrivals": arrivals, "n_prompts": 2_000}
        )
        result = drive(spec, tmp_path, clock=SystemClock(), stop=stop)
    assert result.stopped
    assert 5 <= len(read_requests(tmp_path)) < 200


def test_a_server_that_is_gone_leaves_every_request_recorded(tmp_path: Path) -> None:
    server = ScriptedServer(well)

    def script(exchange: Exchange) -> None:
        exchange.reset()
        exchange.sock.close()
        threading.Thread(target=server.stop).start()

    server._script = script
    with server:
        spec = spec_for(server.url, **OPEN)
        result = drive(spec, tmp_path, clock=SystemClock())
    requests = read_requests(tmp_path)
    assert sorted(r.index for r in requests) == list(range(40))
    assert result.n_ok == 0


def lines(path: Path, *entries: object) -> Source:
    path.write_text("\n".join(json.dumps(e) for e in entries))
    return Source(name="timed_trace", path=str(path), time_unit_s=0.001)


def test_a_trace_is_sent_when_it_says_with_its_lengths(tmp_path: Path) -> None:
    source = lines(
        tmp_path / "t.jsonl",
        *(
            {
                "timestamp": 1000 + 20 * i,
                "input_length": 600 + i,
                "output_length": 4 + i,
                "hash_ids": [7, 8 + i],
            }
            for i in range(5)
        ),
    )
    folder = tmp_path / "cell"
    folder.mkdir()
    result, requests, server = driven(
        folder,
        well,
        **{
            **OPEN,
            "n_prompts": 5,
            "input_tokens": None,
            "output_tokens": None,
            "source": source,
            "arrivals": Arrivals(kind="recorded"),
        },
    )
    intended = sorted(r.due_at_ns - result.started_at_ns for r in requests)
    assert intended == [20_000_000 * i for i in range(5)]
    bodies = [json.loads(r.partition(b"\r\n\r\n")[2]) for r in server.requests]
    assert sorted(len(b["prompt"]) for b in bodies) == [600 + i for i in range(5)]
    assert sorted(b["max_tokens"] for b in bodies) == [4 + i for i in range(5)]
    assert len({tuple(b["prompt"][:512]) for b in bodies}) == 1
    assert len({tuple(b["prompt"][512:600]) for b in bodies}) == 5
    assert not list(folder.glob("*.items"))


def test_each_turn_holds_the_true_answers_before_it(tmp_path: Path) -> None:
    talk = [
        {"role": "user", "content": f"question {i}", "output_tokens": 4}
        for i in range(3)
    ]
    path = tmp_path / "talks.jsonl"
    path.write_text("\n".join(json.dumps({"messages": talk}) for _ in range(4)))
    folder = tmp_path / "cell"
    folder.mkdir()

    def script(exchange: Exchange) -> None:
        exchange.write(answer(2 + exchange.number % 3))

    _, requests, server = driven(
        folder,
        script,
        **{
            **OPEN,
            "n_prompts": 12,
            "concurrency": 2,
            "arrivals": None,
            "endpoint": "/v1/chat/completions",
            "input_tokens": None,
            "output_tokens": None,
            "source": Source(name="conversations", path=str(path)),
        },
    )
    assert Counter(r.conversation for r in requests) == {0: 3, 1: 3, 2: 3, 3: 3}
    by_talk = {
        n: sorted((r for r in requests if r.conversation == n), key=lambda r: r.index)
        for n in range(4)
    }
    for turns in by_talk.values():
        assert [r.turn for r in turns] == [0, 1, 2]
        for before, after in itertools.pairwise(turns):
            assert after.sent_at_ns >= (before.last_content_at_ns or 0)
    sent = [
        json.loads(r.partition(b"\r\n\r\n")[2])["messages"] for r in server.requests
    ]
    third = [m for m in sent if len(m) == 5]
    assert len(third) == 4
    for messages in third:
        roles = [m["role"] for m in messages]
        assert roles == ["user", "assistant", "user", "assistant", "user"]
        assert messages[1]["content"].startswith(" t0 t1")
        assert messages[2]["content"] == "question 1"


def test_a_turn_that_fails_leaves_the_rest_unsent_and_recorded(tmp_path: Path) -> None:
    talk = [{"role": "user", "content": "x", "output_tokens": 4}] * 3
    path = tmp_path / "talks.jsonl"
    path.write_text(json.dumps({"messages": talk}))
    folder = tmp_path / "cell"
    folder.mkdir()

    def script(exchange: Exchange) -> None:
        if exchange.number == 1:
            exchange.write(b"HTTP/1.1 500 X\r\ncontent-length: 1\r\n\r\nx")
        else:
            exchange.write(answer())

    result, requests, _ = driven(
        folder,
        script,
        **{
            **OPEN,
            "n_prompts": 3,
            "endpoint": "/v1/chat/completions",
            "input_tokens": None,
            "output_tokens": None,
            "source": Source(name="conversations", path=str(path)),
        },
    )
    found = {r.turn: r.failure for r in requests}
    assert found == {0: None, 1: "http-status", 2: "abandoned"}
    assert (result.n_ok, result.n_failed) == (1, 2)


def test_random_lengths_lie_in_their_range_and_share_a_prefix(tmp_path: Path) -> None:
    source = Source(input_range=0.5, output_range=0.25, prefix_tokens=6)
    _, _, server = driven(
        tmp_path,
        well,
        **{
            **OPEN,
            "n_prompts": 60,
            "input_tokens": 20,
            "output_tokens": 8,
            "source": source,
        },
    )
    bodies = [json.loads(r.partition(b"\r\n\r\n")[2]) for r in server.requests]
    lengths = np.array([len(b["prompt"]) for b in bodies])
    assert lengths.min() >= 16
    assert lengths.max() <= 36
    assert len(set(lengths.tolist())) > 8
    assert {b["max_tokens"] for b in bodies} <= set(range(6, 11))
    assert len({tuple(b["prompt"][:6]) for b in bodies}) == 1
    assert len({tuple(b["prompt"][6:12]) for b in bodies}) == 60


def test_an_open_loop_needs_a_trace_for_recorded_times(tmp_path: Path) -> None:
    with ScriptedServer(well) as server:
        spec = spec_for(server.url, **{**OPEN, "arrivals": Arrivals(kind="recorded")})
    with pytest.raises(RecipeError, match="a trace that has times"):
        drive(spec, tmp_path, clock=SystemClock())


def test_a_server_that_never_was_there_is_said_before_the_schedule(
    tmp_path: Path,
) -> None:
    with ScriptedServer(well) as server:
        spec = spec_for(server.url, **OPEN)
    with pytest.raises(SessionError, match="refused"):
        drive(spec, tmp_path, clock=SystemClock())
