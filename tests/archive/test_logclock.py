import pytest
from hypothesis import given, strategies as st

from stepscope.archive.logclock import log_offset_ns, placed
from stepscope.run.serverlog import LogEvent, ServerLog

S = 10**9
YEAR_2026 = 1_767_225_600
START = YEAR_2026 + 333 * 86_400 + 8_000


@given(zone_quarters=st.integers(-48, 56), boot_s=st.integers(0, 300))
def test_the_zone_of_a_log_is_found_from_the_launch(
    zone_quarters: int, boot_s: int
) -> None:
    zone_s = zone_quarters * 900
    first = START + boot_s + zone_s - YEAR_2026
    stamps = [float(first), float(first + 500)]
    offset = log_offset_ns(stamps, START * S, (START + boot_s + 520) * S)
    assert offset == (YEAR_2026 - zone_s) * S


def test_a_new_year_between_log_and_launch_is_seen() -> None:
    midnight = 1_798_761_600  # 2027-01-01 00:00 UTC
    stamp = 364 * 86_400 + 86_400 - 5.0  # 23:59:55, the last day of the year
    offset = log_offset_ns([stamp], (midnight - 10) * S, (midnight + 100) * S)
    assert offset == YEAR_2026 * S


def test_stamps_with_a_year_need_no_year() -> None:
    stamps = [float(START + 3600 + 5)]
    assert log_offset_ns(stamps, START * S, (START + 60) * S) == -3600 * S


@pytest.mark.parametrize("lived_s", [3600, 86_400])
def test_where_several_zones_fit_none_is_taken(lived_s: int) -> None:
    stamps = [float(START - YEAR_2026 + 10)]
    assert log_offset_ns(stamps, START * S, (START + lived_s) * S) is None


def test_the_moment_of_readiness_decides_between_zones() -> None:
    stamp = float(START - YEAR_2026 + 1000)
    ready = (stamp, (START + 1000 + 2) * S + S // 2)
    bounds = (START * S, (START + 86_400) * S)
    assert log_offset_ns([stamp], *bounds, ready) == YEAR_2026 * S


def test_a_log_of_another_day_fits_nowhere() -> None:
    stamps = [float(START - YEAR_2026 - 5 * 86_400)]
    assert log_offset_ns(stamps, START * S, (START + 60) * S) is None


def test_placed_events_carry_how_sure_their_instant_is() -> None:
    log = ServerLog(
        engine=None,
        version=None,
        n_lines=3,
        events=(
            LogEvent(kind="jit", line=1, text="a", at_s=5.0),
            LogEvent(kind="jit", line=2, text="b", at_s=5.25),
            LogEvent(kind="jit", line=3, text="c"),
        ),
    )
    events = placed(log, 7 * S).events
    assert [(e.at_ns, e.error_ns) for e in events] == [
        (12 * S, S),
        (12 * S + S // 4, 10**6),
        (None, None),
    ]
