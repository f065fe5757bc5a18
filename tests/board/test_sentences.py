"""The head of the page says how much of a step a cause can take."""

from typing import Any

Bench = Any  # tests/board/conftest.py; a conftest can not be imported


def test_a_power_limit_is_told_with_the_most_it_can_take(bench: Bench) -> None:
    limited = bench.telemetry(
        throttle_reasons=("sw-power-cap",), sm_clock_mhz=1683.0, sm_clock_max_mhz=1980.0
    )
    told = " ".join(bench.board(None, bench.result(telemetry=limited)).sentences)
    assert "clocks held down by sw-power-cap" in told
    assert "(at most 15.0 % of the step)" in told


def test_a_clock_that_was_also_set_or_idle_does_not_convict_the_limit(
    bench: Bench,
) -> None:
    for other in ("gpu-idle", "applications-clocks"):
        both = bench.telemetry(
            throttle_reasons=("sw-power-cap", other),
            sm_clock_mhz=1500.0,
            sm_clock_max_mhz=1980.0,
        )
        entry = bench.entry("power", None, bench.result(telemetry=both))
        assert entry.status == "standing"


def test_a_peak_at_the_only_concurrency_tells_its_token_time_once(
    bench: Bench,
) -> None:
    repeats = [
        bench.result(name=f"base-c16-r{n}", output_tokens_per_s=1000.0 + 10 * n)
        for n in range(2)
    ]
    told = " ".join(bench.board(None, *repeats).sentences)
    assert told.count("a token takes") == 1
    assert " ms there" in told
    assert "ms at concurrency 16 and" not in told
