"""How late the loop may have woken."""

import asyncio
from pathlib import Path

from stepscope.clock import ManualClock
from stepscope.load.waking import Waking

MS = 1_000_000


def write(schedstat: Path, waited_ms: int) -> None:
    schedstat.write_text(f"900 {waited_ms * MS} 4\n")


def lateness(schedstat: Path, after_ms: int, waited_ms: int | None) -> int:
    """Return what is said ``after_ms`` after the start, with so long a wait."""
    clock = ManualClock()
    if waited_ms is not None:
        write(schedstat, 5)

    async def run() -> int:
        waking = Waking(asyncio.get_running_loop(), clock, schedstat)
        waking.start()
        if waited_ms is not None:
            write(schedstat, 5 + waited_ms)
        clock.advance(after_ms * MS)
        late = waking.late_ns(clock.now_ns())
        assert waking.late_ns(clock.now_ns()) == (late if after_ms > 12 else 0)
        waking.close()
        return late

    return asyncio.run(run())


def test_waiting_for_a_core_is_time_that_bytes_may_have_waited(tmp_path: Path) -> None:
    assert lateness(tmp_path / "s", 5, 3) == 3 * MS


def test_a_wait_counts_once(tmp_path: Path) -> None:
    assert lateness(tmp_path / "s", 9, 7) == 7 * MS


def test_an_overdue_heartbeat_tells_of_what_no_scheduler_counts(
    tmp_path: Path,
) -> None:
    assert lateness(tmp_path / "s", 70, 0) == 60 * MS
    assert lateness(tmp_path / "none", 70, None) == 60 * MS


def test_a_loop_on_time_was_not_late(tmp_path: Path) -> None:
    assert lateness(tmp_path / "s", 11, 0) == 0
    assert lateness(tmp_path / "none", 11, None) == 0


def test_a_system_that_does_not_say_is_unknown(tmp_path: Path) -> None:
    async def run() -> int | None:
        waking = Waking(asyncio.get_running_loop(), ManualClock(), tmp_path / "none")
        return waking.waited_ns

    assert asyncio.run(run()) is None
