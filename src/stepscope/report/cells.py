"""A cell's figures as rows of text: every column that analysis computes."""

from dataclasses import dataclass

from stepscope.analysis.records import CellResult, CellTelemetry, Stats
from stepscope.board.claims import number

UNKNOWN = "\u2013"


@dataclass(frozen=True, slots=True)
class Column:
    """One figure of a cell.

    Attributes:
        header: What it is called.
        unit: Its unit as shown.
        field: Where it is in the record; ``telemetry.power_w``, ``tpot_ms.p99``.
        scale: What it is multiplied by on the way out (fractions to percent).
    """

    header: str
    unit: str
    field: str
    scale: float = 1.0

    def read(self, cell: CellResult) -> object:
        """Return the figure; None where it, or what holds it, is unknown."""
        value: object = cell
        for name in self.field.split("."):
            if value is None:
                return None
            value = getattr(value, name)
        if self.field.startswith("telemetry.") and value == {}:
            return None  # no process was sampled
        if self.scale == 1.0:
            return value
        if isinstance(value, tuple):
            return tuple(self.scale * part for part in value)
        return self.scale * value if isinstance(value, (int, float)) else value


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


#: The table under the sweep.
SUMMARY = (
    Column("concurrency", "", "concurrency"),
    Column("offered", "1/s", "request_rate"),
    Column("output", "tok/s", "output_tokens_per_s"),
    Column("TPOT mean", "ms", "tpot_ms.mean"),
    Column("TPOT p99", "ms", "tpot_ms.p99"),
    Column("server TPOT", "ms", "server_tpot_ms"),
    Column("engine step", "ms", "engine_step_ms"),
    Column("TTFT median", "ms", "ttft_ms.median"),
    Column("TTFT p99", "ms", "ttft_ms.p99"),
    Column("E2EL median", "ms", "e2el_ms.median"),
    Column("waves", "", "waves"),
    Column("occupancy", "%", "occupancy", 100),
    Column("decode efficiency", "%", "decode_efficiency", 100),
    Column("GPU utilization", "%", "telemetry.util_pct"),
    Column("power a GPU", "W", "telemetry.power_w"),
    Column("price", "USD/M tok", "usd_per_million_output_tokens"),
)

#: All that analysis knows of a cell, in groups. A field that is listed nowhere is
#: shown under its own name, so that nothing new falls off the page.
EVERYTHING: dict[str, tuple[Column, ...]] = {
    "Work": (
        Column("prompts asked for", "", "n_prompts"),
        Column("requests", "", "n_requests"),
        Column("failed", "", "n_failed"),
        Column("failures by kind", "", "failure_kinds"),
        Column("input tokens asked for", "a request", "asked_input_tokens"),
        Column("output tokens asked for", "a request", "asked_output_tokens"),
        Column("input tokens", "", "input_tokens"),
        Column("output tokens", "", "output_tokens"),
        Column("span", "s", "duration_s"),
        Column("waves", "", "waves"),
        Column("mean in flight", "", "mean_in_flight"),
        Column("sequences in the median step", "", "sequences_per_step"),
        Column("occupancy", "%", "occupancy", 100),
        Column("occupancy, steady", "%", "steady_occupancy", 100),
        Column("occupancy expected", "%", "occupancy_expected", 100),
        Column("Little's law residual", "", "little_residual"),
    ),
    "Rates": (
        Column("output", "tok/s", "output_tokens_per_s"),
        Column("output, steady", "tok/s", "steady_output_tokens_per_s"),
        Column("requests", "1/s", "requests_per_s"),
        Column("requests asked for", "1/s", "request_rate"),
        Column("requests offered", "1/s", "offered_requests_per_s"),
        Column("requests completed, steady", "1/s", "completed_requests_per_s"),
        Column("arrivals", "", "arrival"),
        Column("burstiness", "", "burstiness"),
        Column("first and last rate", "1/s", "ramp_rps"),
        Column("in flight at most", "", "max_concurrency"),
        Column("server keeps up", "", "keeps_up"),
        Column("price", "USD/M output tok", "usd_per_million_output_tokens"),
    ),
    "Is it steady": (
        Column("steady from", "s into the cell", "steady_from_s"),
        Column("steady step, prefill included", "ms", "steady_step_ms"),
        Column("drift of the gaps, first to second half", "%", "drift_pct"),
        Column("error by batch means, at least", "%", "batch_means_error_pct"),
        Column("warm-up settled", "", "warm_up_settled"),
    ),
    "Client, frontend, engine": (
        Column("decode efficiency", "%", "decode_efficiency", 100),
        Column("decode efficiency residual", "", "decode_efficiency_residual"),
        Column("chunks a token", "", "chunks_per_token"),
        Column("server TPOT", "ms", "server_tpot_ms"),
        Column("server TTFT", "ms", "server_ttft_ms"),
        Column("server queue", "ms", "server_queue_ms"),
        Column("client TPOT over server's", "%", "client_tpot_error_pct"),
        Column("engine step (period)", "ms", "engine_step_ms"),
        Column("engine step counted from", "", "engine_step_source"),
        Column("tokens a step and sequence", "", "tokens_per_step_and_sequence"),
        Column("steps with prefill", "%", "prefill_share_of_steps", 100),
        Column("preemptions", "", "preemptions"),
        Column("prefix cache hits", "%", "prefix_cache_hit_pct"),
    ),
    "Telemetry inside the window": tuple(
        Column(header, unit, f"telemetry.{name}")
        for header, unit, name in (
            ("samples in all", "", "n_samples_total"),
            ("samples in the window", "", "n_samples_in_window"),
            ("window", "s", "window_s"),
            ("utilization", "%", "util_pct"),
            ("utilization, by clock offset", "%", "util_pct_range"),
            ("utilization, spread over GPUs", "points", "util_spread_points"),
            ("power a GPU", "W", "power_w"),
            ("power, by clock offset", "W", "power_w_range"),
            ("power, lowest and highest GPU", "W", "power_gpus_w"),
            ("power cap", "W", "power_limit_w"),
            ("SM clock", "MHz", "sm_clock_mhz"),
            ("SM clock, maximum", "MHz", "sm_clock_max_mhz"),
            ("slowest GPU's SM clock below it", "%", "sm_clock_drop_pct_max"),
            ("clock-event reasons", "", "throttle_reasons"),
            ("SM active", "%", "sm_active_pct"),
            ("DRAM bandwidth, mean", "%", "dram_bw_pct"),
            ("DRAM bandwidth, median, GPU that reads most", "%", "dram_bw_pct_median"),
            ("tensor pipes", "%", "tensor_pct"),
            ("GPU memory used", "GiB", "memory_used_gib"),
            ("host memory, peak", "GiB", "host_memory_peak_gib"),
            ("host CPU", "% of all cores", "host_cpu_pct"),
            ("CPU by role", "% of a core", "process_cpu_pct"),
            ("busiest thread by role", "% of a core", "busiest_thread_cpu_pct"),
            ("the same, ready without a core", "%", "busiest_thread_waited_pct"),
        )
    ),
}

_PARTS = ("mean", "median", "p90", "p99", "max")
#: Latencies are a table of their own: a row each, a column for each part.
LATENCIES = (
    ("TTFT", "ttft_ms"),
    ("TPOT", "tpot_ms"),
    ("ITL", "itl_ms"),
    ("E2EL", "e2el_ms"),
    ("queue in the client", "client_queue_ms"),
)
#: Said in the heading of a cell, or a table of its own.
_ELSEWHERE = frozenset(
    {"name", "configuration", "launch", "session", "concurrency", "repeat", "warm_up",
     "capture", "valid", "void_reasons", "status", "telemetry"}
    | {field for _, field in LATENCIES}
)  # fmt: skip


def unlisted() -> tuple[Column, ...]:
    """Return columns for the fields that no table names, under their own names."""
    every = set(CellResult.__struct_fields__) - _ELSEWHERE
    every |= {f"telemetry.{name}" for name in CellTelemetry.__struct_fields__}
    listed = {column.field for columns in EVERYTHING.values() for column in columns}
    return tuple(Column(field, "", field) for field in sorted(every - listed))


def latencies(cell: CellResult) -> list[tuple[str, list[str], str]]:
    """Return (name, [mean, median, p90, p99, max], number of values) rows, ms."""
    rows = []
    for label, name in LATENCIES:
        stats: Stats | None = getattr(cell, name)
        if stats is None:  # a closed loop has no queue
            continue
        rows.append(
            (label, [shown(getattr(stats, part)) for part in _PARTS], shown(stats.n))
        )
    return rows


def groups(cell: CellResult) -> list[tuple[str, list[tuple[str, str, str]]]]:
    """Return every figure of a cell as (group, [(header, value, unit)])."""
    out = []
    for group, columns in (*EVERYTHING.items(), ("More", unlisted())):
        if columns and columns[0].field.startswith("telemetry.") and not cell.telemetry:
            out.append((group, [("telemetry", UNKNOWN, "")]))
        elif columns:
            out.append(
                (group, [(c.header, shown(c.read(cell)), c.unit) for c in columns])
            )
    return out


def state(cell: CellResult) -> str:
    """Return in a word why a cell is no measurement, or nothing where it is one."""
    if not cell.valid:
        return "void"
    if cell.status != "done":
        return cell.status
    if cell.capture is not None:
        return cell.capture
    return "warm-up" if cell.warm_up else ""
