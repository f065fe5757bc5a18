"""A cell's figures as rows of text: every column that analysis computes."""

from collections.abc import Callable
from dataclasses import dataclass

from stepscope.analysis.records import CellResult, Stats
from stepscope.board.claims import number

UNKNOWN = "\u2013"

Reader = Callable[[CellResult], object]


@dataclass(frozen=True, slots=True)
class Column:
    """One figure of a cell: its header, its unit, and how to read it."""

    header: str
    unit: str
    read: Reader


def shown(value: object) -> str:
    """Return a figure as text; unknown is a dash, never a zero."""
    if value is None:
        return UNKNOWN
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (int, float)):
        return f"{value:,}" if isinstance(value, int) else number(value)
    return _shown_many(value)


def _shown_many(value: object) -> str:
    if value in ((), {}, []):
        return "none"
    if isinstance(value, dict):
        return ", ".join(f"{k} {shown(v)}" for k, v in sorted(value.items()))
    if isinstance(value, (tuple, list)):
        # Two floats are an interval everywhere in the analysis' records.
        pair = len(value) == 2 and all(isinstance(v, float) for v in value)
        return (" to " if pair else ", ").join(shown(v) for v in value)
    return str(value)


def _stat(name: str, part: str) -> Reader:
    def read(cell: CellResult) -> object:
        stats = getattr(cell, name)
        assert isinstance(stats, Stats)
        return getattr(stats, part)

    return read


def _field(name: str) -> Reader:
    return lambda cell: getattr(cell, name)


def _telemetry(name: str) -> Reader:
    def read(cell: CellResult) -> object:
        value = None if cell.telemetry is None else getattr(cell.telemetry, name)
        # No process was sampled; an empty tuple of reasons was.
        return None if value == {} else value

    return read


def _percent(name: str) -> Reader:
    """Return a fraction as percent."""

    def read(cell: CellResult) -> object:
        value = getattr(cell, name)
        return None if value is None else 100 * value

    return read


#: The table under the sweep.
SUMMARY = (
    Column("concurrency", "", _field("concurrency")),
    Column("output", "tok/s", _field("output_tokens_per_s")),
    Column("TPOT mean", "ms", _stat("tpot_ms", "mean")),
    Column("TPOT p99", "ms", _stat("tpot_ms", "p99")),
    Column("server TPOT", "ms", _field("server_tpot_ms")),
    Column("engine step", "ms", _field("engine_step_ms")),
    Column("TTFT median", "ms", _stat("ttft_ms", "median")),
    Column("TTFT p99", "ms", _stat("ttft_ms", "p99")),
    Column("E2EL median", "ms", _stat("e2el_ms", "median")),
    Column("waves", "", _field("waves")),
    Column("occupancy", "%", _percent("occupancy")),
    Column("decode efficiency", "%", _percent("decode_efficiency")),
    Column("GPU utilization", "%", _telemetry("util_pct")),
    Column("power a GPU", "W", _telemetry("power_w")),
    Column("price", "USD/M tok", _field("usd_per_million_output_tokens")),
)

_PARTS = ("mean", "median", "p90", "p99", "max")

#: All that analysis knows of a cell, in groups. A test holds it against the record.
EVERYTHING: dict[str, tuple[Column, ...]] = {
    "Work": (
        Column("requests", "", _field("n_requests")),
        Column("failed", "", _field("n_failed")),
        Column("failures by kind", "", _field("failure_kinds")),
        Column("input tokens", "", _field("input_tokens")),
        Column("output tokens", "", _field("output_tokens")),
        Column("span", "s", _field("duration_s")),
        Column("waves", "", _field("waves")),
        Column("occupancy", "%", _percent("occupancy")),
        Column(
            "occupancy expected",
            "%",
            lambda cell: (
                None
                if cell.occupancy_expected is None
                else tuple(100.0 * x for x in cell.occupancy_expected)
            ),
        ),
        Column("Little's law residual", "", _field("little_residual")),
    ),
    "Rates": (
        Column("output", "tok/s", _field("output_tokens_per_s")),
        Column("output, steady", "tok/s", _field("steady_output_tokens_per_s")),
        Column("requests", "1/s", _field("requests_per_s")),
        Column("price", "USD/M output tok", _field("usd_per_million_output_tokens")),
    ),
    "Client, frontend, engine": (
        Column("decode efficiency", "%", _percent("decode_efficiency")),
        Column("decode efficiency residual", "", _field("decode_efficiency_residual")),
        Column("chunks a token", "", _field("chunks_per_token")),
        Column("server TPOT", "ms", _field("server_tpot_ms")),
        Column("server TTFT", "ms", _field("server_ttft_ms")),
        Column("client TPOT over server's", "%", _field("client_tpot_error_pct")),
        Column("engine step (period)", "ms", _field("engine_step_ms")),
        Column(
            "tokens a step and sequence", "", _field("tokens_per_step_and_sequence")
        ),
        Column("steps with prefill", "%", _percent("prefill_share_of_steps")),
    ),
    "Telemetry inside the window": tuple(
        Column(header, unit, _telemetry(name))
        for header, unit, name in (
            ("samples in all", "", "n_samples_total"),
            ("samples in the window", "", "n_samples_in_window"),
            ("window", "s", "window_s"),
            ("utilization", "%", "util_pct"),
            ("utilization, by clock offset", "%", "util_pct_range"),
            ("utilization, spread over GPUs", "points", "util_spread_points"),
            ("power a GPU", "W", "power_w"),
            ("power, by clock offset", "W", "power_w_range"),
            ("power cap", "W", "power_limit_w"),
            ("SM clock", "MHz", "sm_clock_mhz"),
            ("SM clock, maximum", "MHz", "sm_clock_max_mhz"),
            ("clock-event reasons", "", "throttle_reasons"),
            ("SM active", "%", "sm_active_pct"),
            ("DRAM bandwidth, mean", "%", "dram_bw_pct"),
            ("DRAM bandwidth, median", "%", "dram_bw_pct_median"),
            ("tensor pipes", "%", "tensor_pct"),
            ("GPU memory used", "GiB", "memory_used_gib"),
            ("host memory, peak", "GiB", "host_memory_peak_gib"),
            ("host CPU", "% of all cores", "host_cpu_pct"),
            ("CPU by role", "% of a core", "process_cpu_pct"),
            ("busiest thread by role", "% of a core", "busiest_thread_cpu_pct"),
        )
    ),
}

#: Latencies are a table of their own: a row each, a column for each part.
LATENCIES = (
    ("TTFT", "ttft_ms"),
    ("TPOT", "tpot_ms"),
    ("ITL", "itl_ms"),
    ("E2EL", "e2el_ms"),
)


def latencies(cell: CellResult) -> list[tuple[str, list[str], str]]:
    """Return (name, [mean, median, p90, p99, max], number of values) rows, ms."""
    rows = []
    for label, name in LATENCIES:
        stats: Stats = getattr(cell, name)
        rows.append(
            (label, [shown(getattr(stats, part)) for part in _PARTS], shown(stats.n))
        )
    return rows


def groups(cell: CellResult) -> list[tuple[str, list[tuple[str, str, str]]]]:
    """Return every figure of a cell as (group, [(header, value, unit)])."""
    out = []
    for group, columns in EVERYTHING.items():
        rows = [
            (column.header, shown(column.read(cell)), column.unit) for column in columns
        ]
        if cell.telemetry is None and columns[0].header == "samples in all":
            rows = [("telemetry", UNKNOWN, "")]
        out.append((group, rows))
    return out


def state(cell: CellResult) -> str:
    """Return ``void``, ``failed``, ``interrupted``, ``warm-up`` or nothing."""
    if not cell.valid:
        return "void"
    if cell.status != "done":
        return cell.status
    return "warm-up" if cell.warm_up else ""
