from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from stepscope.analysis.analyze import analyze
from stepscope.analysis.cell.taking_part import Asked, Part, asked_of, taking_part
from stepscope.analysis.cell.telemetry import Machine, cell_telemetry, coverage_gap
from stepscope.analysis.cell.window import Window
from stepscope.analysis.records import CellTelemetry
from stepscope.run.requests import Request
from stepscope.run.run import Cell, Launch, Run
from stepscope.run.samples import GpuSample, HostSample, ProcessSample, Samples
from stepscope.run.serverlog import Ledger, ServerLog

GIB = 1 << 30
MS = 1_000_000
S = 1_000_000_000


def gpus(n: int = 100, every: int = 100 * MS, **fields: Any) -> tuple[GpuSample, ...]:
    """Utilization 0 in the first second, 100 later."""
    return tuple(
        GpuSample(
            at_ns=i * every,
            gpu=0,
            util_pct=0.0 if i * every < S else 100.0,
            **fields,
        )
        for i in range(n)
    )


def taken(samples: Samples, window: Window, command: Window | None) -> CellTelemetry:
    found = cell_telemetry(Machine.of(samples), window, command)
    assert found is not None
    return found


def test_only_samples_inside_the_window_count() -> None:
    samples = Samples(gpu=gpus())
    found = taken(samples, Window(2 * S, 4 * S), Window(0, 6 * S))
    assert found.util_pct == 100.0
    assert (found.n_samples_in_window, found.n_samples_total) == (21, 61)
    assert found.util_pct_range is None


def test_clock_slack_gives_the_range_that_it_leaves() -> None:
    window = Window(S, 3 * S, slack_ns=S)
    found = taken(Samples(gpu=gpus()), window, None)
    assert found.util_pct == 100.0
    assert found.util_pct_range is not None
    low, high = found.util_pct_range
    assert low == pytest.approx(100 * 11 / 21)
    assert high == 100.0


def test_absent_readings_stay_absent_and_never_become_zero() -> None:
    found = taken(Samples(gpu=gpus()), Window(0, 5 * S), None)
    assert found.power_w is None
    assert found.dram_bw_pct_median is None
    assert found.throttle_reasons is None
    assert found.host_memory_peak_gib is None
    assert found.process_cpu_pct == {}


def test_a_run_without_samples_has_no_telemetry() -> None:
    assert cell_telemetry(Machine.of(Samples()), Window(0, S), None) is None


def test_throttle_bits_are_named() -> None:
    samples = Samples(gpu=gpus(throttle_reasons=0x4 | 0x20))
    found = taken(samples, Window(0, 5 * S), None)
    assert found.throttle_reasons == ("sw-power-cap", "sw-thermal")
    none = taken(Samples(gpu=gpus(throttle_reasons=0)), Window(0, 5 * S), None)
    assert none.throttle_reasons == ()


def test_spread_is_between_means_of_gpus() -> None:
    rows = [
        GpuSample(at_ns=i * 100 * MS, gpu=g, util_pct=80.0 + 5 * g)
        for i in range(20)
        for g in range(4)
    ]
    found = taken(Samples(gpu=tuple(rows)), Window(0, S), None)
    assert found.util_spread_points == pytest.approx(15.0)
    assert found.util_pct == pytest.approx(87.5)
    assert found.n_samples_in_window == 11


def test_gpus_that_hold_no_memory_take_no_part() -> None:
    used = gpus(memory_used_bytes=100, dram_bw_pct=60.0)
    idle = tuple(
        msgspec.structs.replace(s, gpu=1, util_pct=0.0, memory_used_bytes=1)
        for s in gpus(memory_used_bytes=100, dram_bw_pct=0.0)
    )
    found = taken(Samples(gpu=(*used, *idle)), Window(2 * S, 4 * S), None)
    assert (found.util_pct, found.util_spread_points) == (100.0, None)
    assert found.dram_bw_pct_median == 60.0


#: A server on GPU 1 of an H200 node that had asked for 111.84 GiB, and another
#: program's memory on GPU 0, while it served.
NEIGHBOUR = (139.74, 112.49)


def test_a_neighbour_that_holds_more_memory_takes_no_part() -> None:
    """Utilization read 50 % and power 361 W as means of both; 96 % and 586 W here."""
    both = tuple(
        msgspec.structs.replace(
            s, gpu=g, util_pct=util, power_w=watts, memory_used_bytes=int(held * GIB)
        )
        for g, util, watts, held in (
            (0, 4.0, 137.0, NEIGHBOUR[0]),
            (1, 96.0, 586.0, NEIGHBOUR[1]),
        )
        for s in gpus()
    )
    machine, window = Machine.of(Samples(gpu=both)), Window(2 * S, 4 * S)
    found = cell_telemetry(machine, window, None, Asked(1, 111.84 * GIB))
    assert found is not None
    assert (found.util_pct, found.power_w) == (96.0, 586.0)
    assert (found.util_spread_points, found.power_gpus_w) == (None, None)


def test_gpus_are_told_apart_by_what_the_server_asked_for() -> None:
    held = [g * GIB for g in NEIGHBOUR]
    assert taking_part(held, Asked(1, 111.84 * GIB)) == Part((1,), (0,))
    # Two ranks hold alike, and somewhat more than they asked for.
    ranks = [123.03 * GIB, 123.82 * GIB]
    assert taking_part(ranks, Asked(2, 118.83 * GIB)) == Part((0, 1))


@pytest.mark.parametrize("asked", [Asked(1), Asked(1, 60.0 * (1 << 30))])
def test_where_nothing_tells_them_apart_that_is_said(asked: Asked) -> None:
    found = taking_part([g * GIB for g in NEIGHBOUR], asked)
    assert found == Part((), (0, 1), told=False)


def test_means_of_gpus_that_may_be_anothers_are_left_out() -> None:
    both = tuple(
        msgspec.structs.replace(s, gpu=g, memory_used_bytes=held)
        for g, held in ((0, 140), (1, 112))
        for s in gpus()
    )
    cell, window = Machine.of(Samples(gpu=both)), Window(2 * S, 4 * S)
    found = cell_telemetry(cell, window, None, Asked(1))
    assert found is not None
    assert (found.util_pct, found.n_samples_in_window) == (None, 21)


def test_two_servers_that_asked_for_the_same_are_not_told_apart() -> None:
    assert not taking_part([90.0 * GIB, 90.5 * GIB], Asked(1, 89.0 * GIB)).told


def test_without_a_number_of_gpus_all_that_hold_memory_count() -> None:
    assert taking_part([80.0 * GIB, 80.0 * GIB, GIB]) == Part((0, 1))


def test_a_log_says_how_many_gpus_its_server_uses() -> None:
    degrees: dict[str, str | int | float | bool | None] = {
        "tensor_parallel_size": 2,
        "data_parallel_size": 2,
        "pipeline_parallel_size": 1,
    }
    log = ServerLog(
        engine="vllm",
        version="0.26.0",
        n_lines=1,
        resolved=degrees,
        ledger=Ledger(requested_gib=100.0),
    )
    one = Launch(name="l0", configuration="base", ready=True, log=log)
    assert asked_of(one, 1) == Asked(4, 100.0 * GIB)
    silent = msgspec.structs.replace(one, log=None)
    assert asked_of(silent, 1) == Asked(1)
    flagged = msgspec.structs.replace(silent, command=("serve", "--tp-size", "2"))
    assert asked_of(flagged, 1) == Asked(2)


def test_where_nobody_says_what_memory_they_hold_all_gpus_count() -> None:
    other = tuple(msgspec.structs.replace(s, gpu=1, util_pct=0.0) for s in gpus())
    found = taken(Samples(gpu=(*gpus(), *other)), Window(2 * S, 4 * S), None)
    assert (found.util_pct, found.util_spread_points) == (50.0, 100.0)


def test_the_slowest_gpus_clock_is_not_hidden_by_the_mean() -> None:
    fast = gpus(sm_clock_mhz=2000.0, sm_clock_max_mhz=2000.0)
    slow = tuple(msgspec.structs.replace(s, gpu=7, sm_clock_mhz=1700.0) for s in fast)
    others = [msgspec.structs.replace(s, gpu=i) for i in range(1, 7) for s in fast]
    found = taken(Samples(gpu=(*fast, *others, *slow)), Window(0, 5 * S), None)
    assert found.sm_clock_mhz == pytest.approx(1962.5)
    assert found.sm_clock_drop_pct_max == pytest.approx(15.0)


def test_cpu_is_the_difference_of_cumulative_times() -> None:
    rows = tuple(
        ProcessSample(
            at_ns=i * 100 * MS,
            pid=pid,
            role=role,
            name=role,
            cpu_ns=9 * S + i * share * MS,
            busiest_thread_cpu_ns=i * share * MS // 2,
            busiest_thread_waited_ns=i * share * MS // 5,
        )
        for i in range(30)
        for pid, role, share in (
            (1, "api-server", 95), (2, "worker", 20), (3, "worker", 30),
        )
    )  # fmt: skip
    host = tuple(
        HostSample(
            at_ns=i * 100 * MS,
            memory_used_bytes=(5 + (i == 12)) << 30,
            cpu_busy_ns=i * 800 * MS,
            cpu_total_ns=i * 3200 * MS,
        )
        for i in range(30)
    )
    found = taken(Samples(process=rows, host=host), Window(S, 2 * S), None)
    assert found.process_cpu_pct == pytest.approx({"api-server": 95.0, "worker": 50.0})
    assert found.busiest_thread_cpu_pct == pytest.approx(
        {"api-server": 47.0, "worker": 15.0}, abs=0.6
    )
    assert found.busiest_thread_waited_pct == pytest.approx(
        {"api-server": 19.0, "worker": 6.0}, abs=0.6
    )
    assert found.host_cpu_pct == pytest.approx(25.0)
    assert found.host_memory_peak_gib == pytest.approx(6.0)


def test_times_of_two_threads_are_never_subtracted() -> None:
    """Until 1 s one thread is the busiest, then one that has run from the start."""
    rows = tuple(
        ProcessSample(
            at_ns=i * 100 * MS,
            pid=1,
            role="server",
            name="server",
            cpu_ns=i * 100 * MS,
            busiest_thread_cpu_ns=2 * S if i < 10 else 9 * S + i * 60 * MS,
            busiest_thread_id=7 if i < 10 else 8,
            busiest_thread_waited_ns=0 if i < 10 else i * 30 * MS,
        )
        for i in range(31)
    )
    found = taken(Samples(process=rows), Window(0, 3 * S), None)
    assert found.busiest_thread_cpu_pct == pytest.approx({"server": 60.0})
    assert found.busiest_thread_waited_pct == pytest.approx({"server": 30.0})
    unnamed = tuple(msgspec.structs.replace(r, busiest_thread_id=None) for r in rows)
    found = taken(Samples(process=unnamed), Window(0, 3 * S), None)
    assert found.busiest_thread_cpu_pct == {}


def test_a_window_that_samples_do_not_cover_is_told() -> None:
    machine = Machine.of(Samples(gpu=gpus()))
    assert coverage_gap(machine, Window(S, 9 * S)) is None
    assert "miss 5.1 s" in (coverage_gap(machine, Window(S, 15 * S)) or "")
    holed = tuple(g for g in gpus() if not 3 * S < g.at_ns < 5 * S)
    gap = coverage_gap(Machine.of(Samples(gpu=holed)), Window(S, 9 * S))
    assert "hole of 2.0 s" in (gap or "")


def test_too_few_samples_are_flagged(
    served: Callable[..., tuple[Request, ...]],
    cell_of: Callable[..., Cell],
    run_of: Callable[..., Run],
    codes: Callable[..., list[str]],
) -> None:
    requests = served(64, 8)
    for every, sparse in ((300 * MS, True), (20 * MS, False)):
        rows = tuple(
            GpuSample(at_ns=9 * S + i * every, gpu=0, util_pct=50.0)
            for i in range(6 * S // every)
        )
        run = run_of(cell_of(requests), samples=Samples(gpu=rows))
        found = codes(analyze(run))
        assert ("telemetry-too-sparse" in found) is sparse
        assert "telemetry-window-mismatch" not in found
