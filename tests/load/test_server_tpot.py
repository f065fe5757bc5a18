"""The client's TPOT beside the server's own, on real metrics and real times."""

import gzip
import json
from pathlib import Path

import msgspec
import pytest
from tests.load.scripted import ScriptedServer
from tests.load.specs import spec_for

from stepscope.clock import ManualClock
from stepscope.importers.load import load_foreign
from stepscope.load.bench_result import decoded
from stepscope.load.columns import columns
from stepscope.load.scrape import scrape
from stepscope.load.server_tpot import (
    RESTARTED,
    Decoded,
    ServerTpot,
    server_tpot,
    settled,
)
from stepscope.parse.prometheus import parse_metrics
from stepscope.run.requests import Request
from stepscope.run.samples import MetricsSnapshot

SHARED = Path(__file__).parents[2].parent / "shared" / "data"
BASELINE = SHARED / "h200x1-qwen3moe-baseline"
TPOT = "vllm:request_time_per_output_token_seconds"
ITL = "vllm:inter_token_latency_seconds"


def metrics(text: str) -> MetricsSnapshot:
    return MetricsSnapshot(at_ns=0, values=parse_metrics(text))


def vllm(n: int, total_s: float, *, tokens: int = 0, name: str = TPOT) -> str:
    return (
        f'{name}_count{{engine="0"}} {n}.0\n{name}_sum{{engine="0"}} {total_s}\n'
        f'vllm:generation_tokens_total{{engine="0"}} {tokens}.0\n'
    )


def seen(
    n: int = 10, tpot_ms: float = 20.0, *, single: int = 0, unknown: int = 0
) -> Decoded:
    timed = n - single - unknown
    return Decoded(
        n_ok=n,
        n_single=single,
        n_timed=timed,
        n_later=31 * timed,
        tpot_ms=tpot_ms if timed else None,
        tpot_by_token_ms=tpot_ms if timed else None,
        n_later_each=31.0 if timed else None,
    )


def held(before: str, after: str, mine: Decoded) -> ServerTpot:
    return server_tpot(metrics(before), metrics(after), mine)


@pytest.mark.parametrize(("cell", "gap"), [("c64_0", 0.1), ("c512_0", 13.9)])
def test_what_vllms_client_lost_on_a_real_gpu_is_found_from_its_raw_times(
    cell: str, gap: float
) -> None:
    if not BASELINE.exists():
        pytest.skip("the recorded runs are not beside the repository")
    (one,) = load_foreign(BASELINE / f"{cell}.json.gz").cells
    before, after = (
        metrics(gzip.decompress((BASELINE / name).read_bytes()).decode())
        for name in (f"{cell}.metrics0.txt.gz", f"{cell}.metrics1.txt.gz")
    )
    found = server_tpot(before, after, decoded(columns(one.requests)))
    said = json.loads(gzip.decompress((BASELINE / f"{cell}.json.gz").read_bytes()))
    assert found.client_tpot_ms == pytest.approx(said["mean_tpot_ms"], rel=1e-3)
    assert found.n_requests == said["completed"]
    assert found.tpot_error_pct == pytest.approx(gap, abs=0.3)


def request(index: int, tokens: int | None, decode_ns: int = 0) -> Request:
    return Request(
        index=index,
        sent_at_ns=0,
        ended_at_ns=50 + decode_ns,
        first_content_at_ns=50,
        last_content_at_ns=50 + decode_ns,
        prompt_tokens=8,
        output_tokens=tokens,
        requested_output_tokens=tokens,
        n_chunks=1,
        chunk_offsets_ns=b"",
    )


def test_the_clients_means_are_over_requests_and_over_tokens() -> None:
    # 1 ms a token over 100, 3 ms a token over 1, an answer of one token, one uncounted.
    cell = columns(
        [
            request(0, 101, 100_000_000),
            request(1, 2, 3_000_000),
            request(2, 1),
            request(3, None, 7_000_000),
        ]
    )
    found = decoded(cell)
    assert (found.n_ok, found.n_single, found.n_timed) == (4, 1, 2)
    assert found.n_later == 101
    assert found.tpot_ms == pytest.approx(2.0)
    assert found.tpot_by_token_ms == pytest.approx(103 / 101)
    # 1 ms on each last token moves the mean by (1/100 + 1/1) / 2.
    assert found.n_later_each == pytest.approx(2 / 1.01)
    assert decoded(columns([request(0, 1)])).n_later_each is None


def test_the_gap_is_of_means_over_the_same_requests() -> None:
    found = held(vllm(5, 9.0), vllm(15, 9.16), seen(10, 20.0))
    assert found.tpot_ms == pytest.approx(16.0)
    assert found.tpot_error_pct == pytest.approx(25.0)
    assert (found.n_requests, found.weighted_by, found.metric) == (10, "request", TPOT)
    assert found.not_held is None


def test_answers_of_one_token_are_in_neither_mean() -> None:
    found = held(vllm(0, 0.0), vllm(10, 0.12), seen(10, 20.0, single=4))
    assert found.tpot_ms == pytest.approx(20.0)
    assert found.tpot_error_pct == pytest.approx(0.0)
    alone = held(vllm(0, 0.0), vllm(10, 0.0), seen(10, single=10))
    assert (alone.tpot_ms, alone.tpot_error_pct) == (None, None)
    assert alone.not_held == "no answer here has a second token"


@pytest.mark.parametrize("counted", [7, 13])
def test_other_requests_are_counted_and_nothing_is_held(counted: int) -> None:
    found = held(vllm(0, 0.0), vllm(counted, 0.16), seen(10, 20.0))
    assert found.tpot_ms is not None
    assert found.tpot_error_pct is None
    assert (
        found.not_held == f"it counted {counted} requests meanwhile, and 10 came here"
    )


def test_one_request_beside_thousands_moves_no_mean() -> None:
    found = held(vllm(0, 0.0), vllm(2049, 2049 * 0.016), seen(2048, 20.0))
    assert found.tpot_error_pct == pytest.approx(25.0)
    assert found.n_requests == 2049


def test_gaps_of_steps_under_speculation_are_not_held_against_tokens() -> None:
    """An older vLLM has only gaps between events, each of several tokens."""
    found = held(vllm(0, 0.0, name=ITL), vllm(100, 3.0, name=ITL), seen(10, 10.0))
    assert found.tpot_error_pct is None
    assert "100 tokens after the first meanwhile, and 310 came here" in (
        found.not_held or ""
    )
    plain = held(vllm(0, 0.0, name=ITL), vllm(310, 3.1, name=ITL), seen(10, 10.0))
    assert plain.tpot_error_pct == pytest.approx(0.0)
    assert (plain.weighted_by, plain.n_requests, plain.n_tokens) == ("token", None, 310)


def test_answers_without_a_count_of_tokens_leave_the_means_apart() -> None:
    found = held(vllm(0, 0.0), vllm(10, 0.2), seen(10, 20.0, unknown=3))
    assert found.not_held == "3 of 10 answers here have no token count or no text"


def test_a_restart_or_silence_gives_no_figure_and_says_which() -> None:
    fell = held(vllm(50, 9.0, tokens=800), vllm(10, 0.2, tokens=300), seen())
    assert (fell.tpot_ms, fell.not_held) == (None, RESTARTED)
    assert "--enable-metrics" in (server_tpot(None, None, seen()).not_held or "")
    dead = server_tpot(metrics(vllm(0, 0.0)), None, seen())
    assert dead.not_held == "its /metrics answered only before the load"
    other = held("http_requests_total 5\n", "http_requests_total 9\n", seen())
    assert other.not_held == "its /metrics counted no time between tokens"


def test_requests_that_the_server_has_not_counted_yet_are_waited_for() -> None:
    others = {"/metrics": vllm(10, 0.2, tokens=320).encode()}
    clock = ManualClock()
    with ScriptedServer(lambda _: None, others) as server:
        spec = spec_for(server.url)
        before = metrics(vllm(0, 0.0))
        after = settled(spec, before, metrics(vllm(9, 0.18)), seen(), clock)
        assert after is not None
        assert server_tpot(before, after, seen()).n_requests == 10
        begun_ns = clock.now_ns()
        # What is still missing after a second is not coming.
        late = settled(spec, before, metrics(vllm(9, 0.18)), seen(12), clock)
    assert clock.now_ns() - begun_ns == 1_000_000_000
    assert server_tpot(before, late, seen(12)).not_held is not None


def test_replicas_are_summed_and_one_that_is_silent_hides_all() -> None:
    one = {"/metrics": vllm(4, 0.1).encode()}
    two = {"/metrics": vllm(6, 0.2).encode()}
    with (
        ScriptedServer(lambda _: None, one) as first,
        ScriptedServer(lambda _: None, two) as second,
        ScriptedServer(lambda _: None) as silent,
    ):
        both = spec_for(first.url, replicas=(second.url,))
        found = server_tpot(
            metrics(vllm(0, 0.0)), scrape(both, ManualClock()), seen(10, 30.0)
        )
        assert found.n_requests == 10
        assert found.tpot_error_pct == pytest.approx(0.0)
        some = msgspec.structs.replace(both, replicas=(silent.url,))
        assert scrape(some, ManualClock()) is None
