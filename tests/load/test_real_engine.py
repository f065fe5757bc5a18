"""The client against llama.cpp itself."""

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.load.scripted import ScriptedServer
from tests.load.specs import spec_for

from stepscope.clock import SystemClock
from stepscope.load.ask import served_models, vocabulary_size
from stepscope.load.bench_result import decoded
from stepscope.load.columns import columns
from stepscope.load.drive import drive
from stepscope.load.journal import read_requests
from stepscope.load.probe import probe
from stepscope.load.scrape import scrape
from stepscope.load.server_tpot import server_tpot, settled
from stepscope.load.spec import LoadSpec
from stepscope.load.wire import Server

pytest.importorskip("xllamacpp")


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with ScriptedServer(lambda _: None) as free:
        port = free.url.rpartition(":")[2]
    process = subprocess.Popen(
        [sys.executable, "-m", "stepscope.engines.embedded", "--port", port],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    url = f"http://127.0.0.1:{port}"
    until = time.monotonic() + 60
    while not served_models(Server(url)) and time.monotonic() < until:
        assert process.poll() is None, "the server ended while it started"
        time.sleep(0.05)
    yield url
    process.send_signal(signal.SIGTERM)
    process.wait(20)


def real(url: str, **changes: object) -> LoadSpec:
    asked: dict[str, object] = {
        "model": served_models(Server(url))[0]["id"],
        "input_tokens": 24,
        "output_tokens": 16,
        "vocab_size": vocabulary_size(Server(url)),
        "seed": 5,
        "extra_body": {"cache_prompt": False},
    }
    return spec_for(url, **{**asked, **changes})


def test_the_probe_sees_a_streaming_server_that_counts(url: str) -> None:
    found = probe(real(url), SystemClock())
    assert found.failure is None
    assert (found.streams, found.usage) == (True, True)
    assert (found.prompt_tokens, found.output_tokens) == (24, 16)


@pytest.mark.parametrize("endpoint", ["/v1/completions", "/v1/chat/completions"])
def test_every_request_is_counted_and_timed(
    url: str, endpoint: str, tmp_path: Path
) -> None:
    spec = real(url, endpoint=endpoint)
    result = drive(spec, tmp_path, clock=SystemClock())
    requests = read_requests(tmp_path)
    assert [r.failure_detail for r in requests] == [None] * 6
    assert (result.n_ok, result.n_failed) == (6, 0)
    for request in requests:
        assert request.output_tokens == 16
        assert request.finish_reason == "length"
        assert request.n_chunks <= 16
        assert request.prompt_tokens is not None
        if endpoint == "/v1/completions":
            assert request.prompt_tokens == 24
        assert request.ttft_ns is not None
        assert request.e2el_ns is not None
        assert 0 < request.ttft_ns < request.e2el_ns


@pytest.mark.parametrize("token_ids", [True, False])
def test_llamacpps_own_endpoint_counts_as_the_open_one_does(
    url: str, tmp_path: Path, token_ids: bool
) -> None:
    changes = {"endpoint": "/completion", "token_ids": token_ids}
    spec = real(url, **changes)
    drive(spec, tmp_path, clock=SystemClock())
    requests = read_requests(tmp_path)
    assert [r.failure for r in requests] == [None] * 6
    assert all(r.output_tokens == 16 for r in requests)
    assert all(r.finish_reason == "limit" for r in requests)
    assert all(0 < r.n_chunks <= 16 for r in requests)
    if token_ids:
        assert all(r.prompt_tokens == 24 for r in requests)


def test_its_own_counters_hold_the_very_tokens_that_came_here(
    url: str, tmp_path: Path
) -> None:
    clock, spec = SystemClock(), real(url)
    before = scrape(spec, clock)
    drive(spec, tmp_path, clock=clock)
    mine = decoded(columns(read_requests(tmp_path)))
    after = settled(spec, before, scrape(spec, clock), mine, clock)
    found = server_tpot(before, after, mine)
    assert found.not_held is None
    assert found.n_tokens == mine.n_later == 6 * 15
    assert found.weighted_by == "token"
    assert found.tpot_ms is not None
    assert found.tpot_error_pct is not None
