"""Who lost the time: the figures of two H200s, and what would change the verdict."""

import msgspec
import pytest

from stepscope.findings import Finding
from stepscope.load.server_tpot import RESTARTED, Decoded, ServerTpot
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


LIMITED: dict[str, object] = {
    "verdict": "limited",
    "reasons": ("90.0 % of the slots were in use",),
}


def said_of(
    own: ServerTpot,
    health: ClientHealth,
    base_urls: tuple[str, ...] = HERE,
    *,
    n_later: int = 127,
) -> tuple[Finding, ...]:
    mine = Decoded(
        n_ok=2048,
        n_single=0,
        n_timed=2048,
        n_later=2048 * n_later,
        tpot_ms=own.client_tpot_ms,
        tpot_by_token_ms=own.client_tpot_ms,
        n_later_each=float(n_later),
    )
    return tpot_gap(own, mine, health, base_urls)


def health(**changes: object) -> ClientHealth:
    return msgspec.structs.replace(HEALTH, **changes)


def own(**changes: object) -> ServerTpot:
    return msgspec.structs.replace(OWN, **changes)


@pytest.mark.parametrize("gap", [-3.0, 0.4, 3.0])
def test_means_within_three_percent_agree_and_nothing_is_said(gap: float) -> None:
    assert said_of(own(tpot_error_pct=gap), HEALTH) == ()


def test_a_client_that_read_at_once_is_acquitted_and_told_what_to_change() -> None:
    (said,) = said_of(OWN, HEALTH)
    assert said.code == "frontend-bound"
    assert not said.voids
    assert "28.5 % above the server's own (18.17 against 14.14 ms)" in said.message
    assert "which the client read 0.06 ms later on average and 5 ms at" in said.message
    assert (
        "not by the client but by the server's sending, or by a proxy" in said.message
    )
    assert "network" not in said.message
    assert "--api-server-count" in said.hint
    (far,) = said_of(OWN, HEALTH, ("http://node-7:8000",))
    assert "or by the network or a proxy between" in far.message
    (one_far,) = said_of(OWN, HEALTH, (*HERE, "http://10.0.0.7:8000"))
    assert "network" in one_far.message


@pytest.mark.parametrize(
    ("metric", "flag"),
    [
        ("sglang:inter_token_latency_seconds", "--tokenizer-worker-num"),
        ("llamacpp:tokens_predicted_seconds_total", "Give the server cores of its own"),
    ],
)
def test_each_engine_is_given_its_own_flag(metric: str, flag: str) -> None:
    (said,) = said_of(own(metric=metric), HEALTH)
    assert flag in said.hint
    assert "--api-server-count" not in said.hint


def test_a_limited_client_is_client_bound_with_its_reasons() -> None:
    late = Delay(mean=2.5, p99=90.0, max=400.0)
    reasons = ("a client loop was busy for 97 %",)
    limited = health(verdict="limited", reasons=reasons, delay_ms=late)
    (said,) = said_of(OWN, limited)
    assert (said.code, said.voids) == ("client-bound", True)
    assert "a client loop was busy for 97 %" in said.message
    assert "--processes" in said.hint
    (small,) = said_of(own(tpot_error_pct=4.0), limited)
    assert (small.code, small.voids) == ("client-bound", False)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"stamps": "user"}, "arrivals are not stamped by the kernel"),
        ({"unstamped_pct": 4.0}, "arrivals are not stamped by the kernel"),
        ({"delay_ms": None}, "does not know its delay"),
        (
            {"delay_ms": Delay(mean=2.5, p99=9.0, max=200.0)},
            "the client read 2.5 ms later on average and 200 ms at most",
        ),
    ],
)
def test_where_the_clients_stamps_do_not_say_neither_does_the_gap(
    changes: dict[str, object], why: str
) -> None:
    (said,) = said_of(OWN, health(**changes))
    assert "the gap alone does not say" in said.message
    assert why in said.message
    assert "not by the client" not in said.message
    assert "--processes" in said.hint


def test_a_delay_is_in_an_answers_tpot_once_and_acquits_long_answers() -> None:
    # Really seen: an API server of vLLM 0.32 that was stopped for 8 s, 128 tokens.
    stopped = own(tpot_ms=41.86, client_tpot_ms=78.99, tpot_error_pct=88.7)
    seen = health(delay_ms=Delay(mean=1.31, p99=8.7, max=15.8))
    (said,) = said_of(stopped, seen, n_later=127)
    assert said.code == "frontend-bound"
    # Limited by something else than its stamps: they acquit it all the same.
    (said,) = said_of(stopped, health(**{**LIMITED, "delay_ms": seen.delay_ms}))
    assert said.code == "frontend-bound"
    (said,) = said_of(stopped, seen, n_later=7)
    assert (said.code, said.voids) == ("client-bound", True)
    assert "the gap alone does not say" in said.message


def test_a_client_below_the_server_convicts_nobody() -> None:
    # Really seen: an API server that is stopped for 200 ms of every 204.
    below = own(tpot_ms=37.78, client_tpot_ms=35.57, tpot_error_pct=-5.86)
    merged = health(tokens_per_chunk_mean=6.4, verdict="limited", reasons=("x",))
    (said,) = said_of(below, merged)
    assert said.code == "tpot-below-server"
    assert "5.9 % below" in said.message
    assert "6.40 tokens came to a chunk" in said.message


def test_what_can_not_be_held_is_told_and_a_server_without_metrics_is_not() -> None:
    others = own(tpot_error_pct=None, not_held="it counted 30 requests meanwhile")
    (said,) = said_of(others, HEALTH)
    assert (said.code, said.severity) == ("server-tpot-not-held", "info")
    assert "it counted 30 requests" in said.message
    (fell,) = said_of(ServerTpot(not_held=RESTARTED), HEALTH)
    assert fell.code == "server-restarted"
    assert said_of(ServerTpot(not_held="it says nothing"), HEALTH) == ()
