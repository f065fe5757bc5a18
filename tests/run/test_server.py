from pathlib import Path

import pytest

from stepscope.parse.prometheus import parse_metrics
from stepscope.run.samples import MetricsSnapshot, MetricValue
from stepscope.run.server import NOTHING, n_beside, server_side

DATA = Path(__file__).parents[1] / "data" / "bench"


def scrape(**values: float) -> MetricsSnapshot:
    """A scrape; ``vllm__x`` stands for ``vllm:x``."""
    return MetricsSnapshot(
        at_ns=0,
        values=tuple(
            MetricValue(name=name.replace("__", ":"), labels={}, value=value)
            for name, value in values.items()
        ),
    )


def test_without_both_scrapes_nothing_is_known() -> None:
    assert server_side(None, scrape(), 1) == NOTHING
    assert server_side(scrape(), None, 1) == NOTHING


def test_per_request_tpot_is_preferred_and_is_a_difference() -> None:
    name = "vllm__request_time_per_output_token_seconds"
    gap = "vllm__inter_token_latency_seconds"
    before = scrape(
        **{f"{name}_sum": 5.0, f"{name}_count": 100, f"{gap}_sum": 1, f"{gap}_count": 1}
    )
    after = scrape(
        **{f"{name}_sum": 6.0, f"{name}_count": 150, f"{gap}_sum": 9, f"{gap}_count": 2}
    )
    found = server_side(before, after, 50)
    assert found.tpot_ms == pytest.approx(20.0)
    assert found.n_requests == 50
    assert not found.tpot_per_token


@pytest.mark.parametrize(
    "name",
    [
        "vllm__inter_token_latency_seconds",
        "vllm__time_per_output_token_seconds",
        "sglang__inter_token_latency_seconds",
    ],
)
def test_older_and_other_names_are_weighted_by_token(name: str) -> None:
    before = scrape(**{f"{name}_sum": 0.0, f"{name}_count": 0})
    after = scrape(**{f"{name}_sum": 3.0, f"{name}_count": 200})
    found = server_side(before, after, 4)
    assert found.tpot_ms == pytest.approx(15.0)
    assert found.tpot_per_token
    assert found.tpot_metric == name.replace("__", ":")


def test_llama_server_seconds_are_over_tokens_after_the_first() -> None:
    before = scrape(
        llamacpp__tokens_predicted_total=0, llamacpp__tokens_predicted_seconds_total=0
    )
    after = scrape(
        llamacpp__tokens_predicted_total=640,
        llamacpp__tokens_predicted_seconds_total=6.3,
    )
    assert server_side(before, after, 10).tpot_ms == pytest.approx(10.0)


def test_counters_that_fell_say_restart_and_nothing_else() -> None:
    before = scrape(vllm__generation_tokens_total=500)
    after = scrape(vllm__generation_tokens_total=20)
    found = server_side(before, after, 5)
    assert found.restarted
    assert found.generated_tokens is None


def test_cache_hits_of_a_disabled_cache_are_none_found() -> None:
    same = {"vllm__prefix_cache_queries_total": 0, "vllm__prefix_cache_hits_total": 0}
    assert server_side(scrape(**same), scrape(**same), 1).cache_hit_pct == 0.0
    after = scrape(
        vllm__prefix_cache_queries_total=400, vllm__prefix_cache_hits_total=100
    )
    assert server_side(scrape(**same), after, 1).cache_hit_pct == pytest.approx(25.0)
    assert server_side(scrape(), scrape(), 1).cache_hit_pct is None


def test_an_answer_of_one_token_has_no_tpot_and_lowers_no_mean() -> None:
    name = "vllm__request_time_per_output_token_seconds"
    before = scrape(**{f"{name}_sum": 5.0, f"{name}_count": 100})
    after = scrape(**{f"{name}_sum": 5.8, f"{name}_count": 150})
    found = server_side(before, after, 50, 10)
    assert found.tpot_ms == pytest.approx(20.0)
    assert found.n_requests == 50
    assert server_side(before, after, 50, 50).tpot_ms is None


def test_tokens_after_the_first_are_counted_where_the_metric_is_of_tokens() -> None:
    name = "sglang__inter_token_latency_seconds"
    before = scrape(**{f"{name}_sum": 1.0, f"{name}_count": 100})
    after = scrape(**{f"{name}_sum": 3.0, f"{name}_count": 200})
    found = server_side(before, after, 4)
    assert (found.n_requests, found.n_tokens) == (None, 100)
    slots = scrape(
        llamacpp__tokens_predicted_total=640,
        llamacpp__tokens_predicted_seconds_total=6.3,
    )
    none = scrape(
        llamacpp__tokens_predicted_total=0, llamacpp__tokens_predicted_seconds_total=0
    )
    assert server_side(none, slots, 10).n_tokens == 630


def test_engines_behind_eight_api_servers_are_summed() -> None:
    text = (DATA / "vllm-0.26-two-engines-eight-api-servers.txt").read_text()
    after = MetricsSnapshot(at_ns=1, values=parse_metrics(text))
    zero = MetricsSnapshot(
        at_ns=0,
        values=tuple(
            MetricValue(name=v.name, labels=v.labels, value=0.0) for v in after.values
        ),
    )
    found = server_side(zero, after, 14_340)
    assert found.n_requests == 7187 + 7153
    mean_s = (307.81209574622847 + 308.0931274558506) / (7187 + 7153)
    assert found.tpot_ms == pytest.approx(1e3 * mean_s)
    assert found.n_engines == 2


def test_one_in_fifty_beside_is_none_and_few_have_no_room_for_one() -> None:
    assert n_beside(2049, 2048) == 0
    assert n_beside(2010, 2048) == 0
    assert n_beside(2100, 2048) == 52
    assert n_beside(11, 10) == 1
    assert n_beside(11, 10, spare=1) == 0
