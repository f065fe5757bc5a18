import gzip
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from stepscope.parse.telemetry_csv import parse_telemetry

DATA = Path(__file__).parents[2].parent / "shared" / "data"


def real(folder: str) -> str:
    packed = (DATA / folder / "telemetry.csv.gz").read_bytes()
    return gzip.decompress(packed).decode()


def test_a_real_table_gives_a_gpu_and_a_host_sample_a_row() -> None:
    table = parse_telemetry(real("h200x1-qwen3moe-baseline"))
    assert (len(table.gpu), len(table.host)) == (1214, 1214)
    assert table.clock == "unix"
    assert (table.n_bad_rows, table.ignored_columns) == (0, ())
    last, host = table.gpu[-1], table.host[-1]
    assert last.at_ns == 1796005372_556_000_000
    assert (last.power_w, last.sm_clock_mhz) == (120.111, 405.0)
    assert last.memory_used_bytes == 615 * 2**20
    assert host.memory_used_bytes == 680340 * 1024
    assert host.cpu_busy_ns == 105197 * 10_000_000
    assert host.cpu_total_ns == 1661284 * 10_000_000


def test_counters_are_unknown_where_the_row_leaves_them_empty() -> None:
    table = parse_telemetry(real("h200x1-qwen3moe-iteration-details"))
    assert table.gpu[0].dram_bw_pct is None
    last = table.gpu[-1]
    assert (last.sm_active_pct, last.sm_occupancy_pct) == (60.053, 12.707)
    assert (last.tensor_pct, last.dram_bw_pct) == (9.889, 50.207)
    assert last.pcie_rx_bytes_per_s == pytest.approx(44.114 * 2**20)


def test_nvidia_smi_with_units_and_without_says_the_same() -> None:
    names = "timestamp, index, utilization.gpu{p}, power.draw{w}, clocks.sm{m}"
    names += ", memory.used{b}, temperature.gpu, clocks_throttle_reasons.active\n"
    stamp = "2026/11/30 02:23:13.125"
    with_units = parse_telemetry(
        names.format(p=" [%]", w=" [W]", m=" [MHz]", b=" [MiB]")
        + f"{stamp}, 1, 55 %, 578.12 W, 2032 MHz, 250123 MiB, 61, 0x0000000000000004\n"
    )
    without = parse_telemetry(
        names.format(p="", w="", m="", b="")
        + f"{stamp}, 1, 55, 578.12, 2032, 250123, 61, 0x0000000000000004\n"
    )
    assert with_units == without
    (sample,) = with_units.gpu
    assert with_units.clock == "local"
    assert sample.at_ns == 1796005393_125_000_000
    assert (sample.gpu, sample.util_pct, sample.power_w) == (1, 55.0, 578.12)
    assert sample.memory_used_bytes == 250123 * 2**20
    assert sample.throttle_reasons == 4


@pytest.mark.parametrize("cell", ["[N/A]", "[Not Supported]", "", "[Unknown Error]"])
def test_what_the_driver_does_not_say_is_none_and_never_zero(cell: str) -> None:
    table = parse_telemetry(f"t,gpu,power_w,util\n1.5,0,{cell},7\n")
    assert table.gpu[0].power_w is None
    assert table.gpu[0].util_pct == 7.0


def test_a_row_cut_short_is_left_out_and_counted() -> None:
    whole = "t,gpu,util\n1.0,0,50\n2.0,0,51\n"
    assert len(parse_telemetry(whole).gpu) == 2
    for cut in range(len("t,gpu,util\n1.0,0,50\n") + 1, len(whole)):
        table = parse_telemetry(whole[:cut])
        assert [sample.util_pct for sample in table.gpu] == [50.0], whole[:cut]
        assert table.n_bad_rows == 1


def test_a_table_without_stamps_is_refused_with_its_columns() -> None:
    with pytest.raises(ValueError, match=r"no stamp.*index, power"):
        parse_telemetry("index, power [W]\n0, 1\n")


@given(st.text())
def test_any_text_is_a_table_or_a_value_error(text: str) -> None:
    first = (text.splitlines() or [""])[0]
    if {name.strip() for name in first.lower().split(",")} & {"t", "timestamp"}:
        return
    with pytest.raises(ValueError, match="stamp"):
        parse_telemetry(f"x{text}")


@given(st.text(alphabet="0123456789.,-eE%W \n[NA/]xnaif"))
def test_any_rows_under_a_good_header_are_read_or_counted(rows: str) -> None:
    parse_telemetry("t,gpu,power_w,mem_used_mib,cpu_busy,throttle_reasons\n" + rows)
