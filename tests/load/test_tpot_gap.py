"""Who lost the time: the figures of two H200s, and what would change the verdict."""

import msgspec
import pytest

from stepscope.load.server_tpot import RESTARTED, ServerTpot
from stepscope.load.tpot_gap import tpot_gap
from stepscope.run.client import ClientHealth, Delay

HERE = ("http://127.0.0.1:8000",)
#: vLLM 0.26, two engines and two API servers, 512 in flight.
OWN = ServerTpot(
    tpot_ms=14.138,
    tpot_error_pct=28.5,
    client_tpot_ms=18.170,
    weighted_by="request",
    n_requests=2048,
    metric="vllm:request_time_per_output_token_seconds",
)
HEALTH = ClientHealth(
    processes=2,
    loop="uvloop",
    stamps="kernel",
    delay_ms=Delay(mean=0.06, p99=0.4, max=5.0),
    unstamped_pct=0.0,
    merged_reads_pct=2.0,
    busy_pct=30.0,
    cpu_pct_max=30.0,
    late_sends_ms_p99=0.2,
    held_pct=99.9,
    chunks_per_s_peak=40_000.0,
    tokens_per_chunk_mean=1.05,
    verdict="ok",
)


def health(**changes: object) -> ClientHealth:
    return msgspec.structs.replace(HEALTH, **changes)


def own(**changes: object) -> ServerTpot:
    return msgspec.structs.replace(OWN, **changes)


@pytest.mark.parametrize("gap", [-3.0, 0.4, 3.0])
def test_means_within_three_percent_agree_and_nothing_is_said(gap: float) -> None:
    assert tpot_gap(own(tpot_error_pct=gap), HEALTH, HERE) == ()


def test_a_client_that_read_at_once_is_acquitted_and_told_what_to_change() -> None:
    (said,) = tpot_gap(OWN, HEALTH, HERE)
    assert said.code == "frontend-bound"
    assert not said.voids
    assert "28.5 % above the server's own (18.17 against 14.14 ms)" in said.message
    assert "read it 0.06 ms later, so it is not the client" in said.message
    assert "network" not in said.message
    assert "--api-server-count" in said.hint
    (far,) = tpot_gap(OWN, HEALTH, ("http://node-7:8000",))
    assert "or the network or a proxy between" in far.message
    (one_far,) = tpot_gap(OWN, HEALTH, (*HERE, "http://10.0.0.7:8000"))
    assert "network" in one_far.message


@pytest.mark.parametrize(
    ("metric", "flag"),
    [
        ("sglang:inter_token_latency_seconds", "--tokenizer-worker-num"),
        ("llamacpp:tokens_predicted_seconds_total", "Give the server cores of its own"),
    ],
)
def test_each_engine_is_given_its_own_flag(metric: str, flag: str) -> None:
    (said,) = tpot_gap(own(metric=metric), HEALTH, HERE)
    assert flag in said.hint
    assert "--api-server-count" not in said.hint


def test_a_limited_client_is_client_bound_with_its_reasons() -> None:
    limited = health(verdict="limited", reasons=("a client loop was busy for 97 %",))
    (said,) = tpot_gap(OWN, limited, HERE)
    assert (said.code, said.voids) == ("client-bound", True)
    assert "a client loop was busy for 97 %" in said.message
    assert "--processes" in said.hint
    (small,) = tpot_gap(own(tpot_error_pct=4.0), limited, HERE)
    assert (small.code, small.voids) == ("client-bound", False)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"stamps": "user"}, "arrivals are not stamped by the kernel"),
        ({"unstamped_pct": 4.0}, "arrivals are not stamped by the kernel"),
        ({"delay_ms": None}, "does not know its delay"),
        (
            {"delay_ms": Delay(mean=2.5, p99=9.0, max=20.0)},
            "the client read 2.5 ms after the kernel",
        ),
    ],
)
def test_where_the_clients_stamps_do_not_say_neither_does_the_gap(
    changes: dict[str, object], why: str
) -> None:
    (said,) = tpot_gap(OWN, health(**changes), HERE)
    assert "the gap alone does not say" in said.message
    assert why in said.message
    assert "it is not the client" not in said.message
    assert "--processes" in said.hint


def test_a_client_below_the_server_convicts_nobody() -> None:
    # Really seen: an API server that is stopped for 200 ms of every 204.
    below = own(tpot_ms=37.78, client_tpot_ms=35.57, tpot_error_pct=-5.86)
    merged = health(tokens_per_chunk_mean=6.4, verdict="limited", reasons=("x",))
    (said,) = tpot_gap(below, merged, HERE)
    assert said.code == "tpot-below-server"
    assert "5.9 % below" in said.message
    assert "6.40 tokens came to a chunk" in said.message


def test_what_can_not_be_held_is_told_and_a_server_without_metrics_is_not() -> None:
    others = own(tpot_error_pct=None, not_held="it counted 30 requests meanwhile")
    (said,) = tpot_gap(others, HEALTH, HERE)
    assert (said.code, said.severity) == ("server-tpot-not-held", "info")
    assert "it counted 30 requests" in said.message
    (fell,) = tpot_gap(ServerTpot(not_held=RESTARTED), HEALTH, HERE)
    assert fell.code == "server-restarted"
    assert tpot_gap(ServerTpot(not_held="it says nothing"), HEALTH, HERE) == ()
