"""The head of the page says how much of a step a cause can take."""

from typing import Any

Bench = Any  # tests/board/conftest.py; a conftest can not be imported


def test_a_power_limit_is_told_with_the_most_it_can_take(bench: Bench) -> None:
    limited = bench.telemetry(
        throttle_reasons=("sw-power-cap",), sm_clock_mhz=1893.0, sm_clock_max_mhz=1980.0
    )
    told = " ".join(bench.board(None, bench.result(telemetry=limited)).sentences)
    assert "clocks held down by sw-power-cap" in told
    assert "(at most 4.39 % of the step)" in told


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
