import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stepscope.parse.vllm_bench import parse_bench

DATA = Path(__file__).parents[2].parent / "shared" / "data"
CELLS = sorted(
    path
    for path in DATA.glob("h200x1-qwen3moe-*/*.json.gz")
    if not path.name.startswith("trace_")
)


def small(**changes: Any) -> bytes:
    raw: dict[str, Any] = {
        "backend": "openai",
        "model_id": "m",
        "num_prompts": 3,
        "request_rate": "inf",
        "max_concurrency": 2,
        "duration": 2.0,
        "completed": 2,
        "failed": 1,
        "total_input_tokens": 20,
        "total_output_tokens": 5,
        "input_lens": [10, 10, 10],
        "output_lens": [3, 2, 0],
        "ttfts": [0.5, 0.25, 0.0],
        "itls": [[0.1, 0.1], [0.2], []],
        "start_times": [100.0, 100.5, 100.25],
        "errors": ["", "", "Internal Server Error"],
        "mean_ttft_ms": 375.0,
    }
    raw.update(changes)
    return json.dumps({k: v for k, v in raw.items() if v is not ...}).encode()


@pytest.mark.parametrize("path", CELLS, ids=lambda p: f"{p.parent.name[-7:]}-{p.name}")
def test_means_of_the_requests_are_vllms_own(path: Path) -> None:
    data = gzip.decompress(path.read_bytes())
    own = json.loads(data)
    result = parse_bench(data)
    assert len(result.requests) == own["completed"] == own["num_prompts"]
    assert (
        sum(r.output_tokens or 0 for r in result.requests)
        == (own["total_output_tokens"])
    )
    assert (
        sum(r.prompt_tokens or 0 for r in result.requests)
        == (own["total_input_tokens"])
    )
    ttft = np.mean([r.ttft_ns for r in result.requests]) / 1e6
    tpot = np.mean([r.tpot_ns for r in result.requests]) / 1e6
    e2el = np.mean([r.e2el_ns for r in result.requests]) / 1e6
    assert ttft == pytest.approx(own["mean_ttft_ms"], rel=1e-6)
    assert tpot == pytest.approx(own["mean_tpot_ms"], rel=1e-6)
    assert e2el == pytest.approx(own["mean_e2el_ms"], rel=1e-6)
    gaps = np.concatenate([np.diff(r.chunks_ns) for r in result.requests]) / 1e6
    assert gaps.mean() == pytest.approx(own["mean_itl_ms"], rel=1e-6)
    assert np.percentile(gaps, 99) == pytest.approx(own["p99_itl_ms"], rel=1e-6)


def test_requests_come_in_order_of_sending_with_failures_among_them() -> None:
    result = parse_bench(small())
    assert [r.index for r in result.requests] == [0, 2, 1]
    failed = result.requests[1]
    assert (failed.failure, failed.failure_detail) == (
        "http-status",
        "Internal Server Error",
    )
    assert (failed.output_tokens, failed.ttft_ns) == (None, None)
    first = result.requests[0]
    assert first.sent_at_ns == 100_000_000_000
    assert first.chunks_ns.tolist() == [
        100_500_000_000,
        100_600_000_000,
        100_700_000_000,
    ]
    assert (result.concurrency, result.request_rate) == (2, None)
    assert result.summary.n_failed == 1


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        ("Too Many Requests", "rate-limited"),
        ("Traceback\n  aiohttp.ClientConnectorError: Cannot connect", "connect"),
        ("Traceback\nConnectionResetError: Connection reset by peer", "reset"),
        ("Traceback\nasyncio.TimeoutError", "stall"),
        ("Never received a valid chunk to calculate TTFT.", "empty"),
        ("Bad Request", "http-status"),
        ("", "http-status"),
    ],
)
def test_a_failure_keeps_its_kind(error: str, kind: str) -> None:
    result = parse_bench(small(errors=["", "", error]))
    assert [r.failure for r in result.requests] == [None, kind, None]


def test_a_failure_in_mid_stream_keeps_the_chunks_that_came() -> None:
    result = parse_bench(
        small(
            ttfts=[0.5, 0.25, 0.3],
            itls=[[0.1, 0.1], [0.2], [0.1]],
            errors=["", "", "Traceback\nServerDisconnectedError"],
        )
    )
    failed = next(r for r in result.requests if not r.ok)
    assert (failed.failure, failed.n_chunks) == ("closed", 2)
    assert failed.output_tokens is None


def test_without_details_only_the_summary_is_known() -> None:
    lists = ("input_lens", "output_lens", "ttfts", "itls", "start_times", "errors")
    result = parse_bench(small(**dict.fromkeys(lists, ...)))
    assert result.requests == ()
    assert result.summary.n_completed == 2
    assert result.summary.stats == {"ttft_ms": {"mean": 375.0}}


def test_sglangs_names_become_ours_and_unknown_failures_stay_unknown() -> None:
    lists = ("input_lens", "output_lens", "ttfts", "itls", "start_times", "errors")
    result = parse_bench(
        small(
            **dict.fromkeys((*lists, "failed", "num_prompts"), ...),
            mean_e2e_latency_ms=7.0,
        )
    )
    assert result.summary.stats["e2el_ms"] == {"mean": 7.0}
    assert not result.failures_known


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"{", "no JSON"),
        (b"[]", "list"),
        (small(duration=...), "duration: is missing"),
        (small(completed="2"), "completed: is '2'"),
        (small(ttfts=[0.5]), "ttfts 1"),
        (small(itls=7), "itls: is '7'"),
        (small(completed=3), "completed: is 3, but 2"),
        (small(ttfts=["x", 0.25, 0.0]), "request 0"),
        (small(itls=[["x"], [0.2], []]), "request 0"),
        (small(duration=-1.0), "duration: is '-1.0'; 0 or more"),
        (small(mean_ttft_ms=-3.0), "mean_ttft_ms: is '-3.0'; 0 or more"),
        (small(total_output_tokens=-5), "total_output_tokens: is '-5'; 0 or more"),
        (small(max_concurrency=0), "max_concurrency: is '0'; 1 or more"),
    ],
)
def test_damage_is_told_with_its_key(data: bytes, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        parse_bench(data)


def test_every_cut_of_a_file_is_a_value_error() -> None:
    data = small()
    for cut in range(len(data)):
        with pytest.raises(ValueError, match="JSON"):
            parse_bench(data[:cut])
