"""What ``stepscope trace`` prints."""

from typing import Any

from rich.console import Console
from rich.table import Table

_MOST_FAMILIES = 12


def print_result(result: dict[str, Any], label: str | None) -> None:
    """Print a trace's answer: the gate, and for each rank budget, layer and gaps.

    Args:
        result: ``TraceResult`` as plain data.
        label: Name of the capture where there are several.
    """
    console = Console(highlight=False)
    quality = result["quality"]
    word = "usable" if quality["usable"] else "NOT usable for idle time"
    name = f"{label}: " if label else "Trace: "
    defects = ", ".join(quality["defects"]) or "none"
    console.print(f"{name}{word}. Defects: {defects}", markup=False)
    for rank in result["ranks"]:
        console.print(
            f"\nRank {rank['rank']}: {rank['n_steps']} {_of(rank['step_kind'])}steps"
            f" (from {rank['step_source']}), {rank['n_device_ops']} device operations"
            f" in {rank['span_ms']:.1f} ms, busy {_show(rank['busy_pct'], '.1f')} %"
        )
        if rank["budget_ms"] is not None:
            console.print(_budget(rank))
        if rank["graph_span_ms"] is not None:
            console.print(f"graph, first to last node: {_spread(rank)} ms")
        if rank["layer"] is not None:
            console.print(_layer(rank["layer"]))
        if rank["top_gaps"]:
            console.print(_gaps(rank["top_gaps"]))
    if result["collectives"]:
        console.print(_collectives(result["collectives"]))
    late, why = result["straggler_rank"], result["straggler_reason"]
    if why is not None:
        word = "none" if late is None else f"rank {late}"
        console.print(f"\nStraggler: {word}; {why}", markup=False)
    for finding in result["findings"]:
        console.print(f"{finding['severity']}: {finding['message']}", markup=False)


def _collectives(families: list[dict[str, Any]]) -> Table:
    table = Table(
        "collective", "a step", "transfer, ms a step", "waiting, by rank",
        box=None, pad_edge=False,
    )  # fmt: skip
    for column in table.columns[1:]:
        column.justify = "right"
    for each in families[:_MOST_FAMILIES]:
        name = each["name"][:44] + (" (on the host)" if each["on_host"] else "")
        waits = " ".join(f"{ms:.3f}" for ms in each["wait_ms_by_rank"])
        table.add_row(
            name, f"{each['per_step']:.1f}", f"{each['transfer_ms']:.3f}", waits
        )
    return table


def _of(kind: str | None) -> str:
    """Return a word before "steps"; none where the trace does not say of what kind."""
    return f"{kind} " if kind and kind != "step" else ""


def _spread(rank: dict[str, Any]) -> str:
    spread = rank["graph_span_ms"]
    return f"{spread['median']:.3f} ({spread['p10']:.3f} to {spread['p90']:.3f})"


def _budget(rank: dict[str, Any]) -> Table:
    table = Table("part of a step", "ms", box=None, pad_edge=False)
    table.columns[1].justify = "right"
    for name, value in rank["budget_ms"].items():
        table.add_row(name, _show(value, ".3f"))
    for name, value in (rank["idle_ms"] or {}).items():
        table.add_row(f"  idle: {name}", _show(value, ".3f"))
    table.add_row("step period (mean)", _show(rank["step_ms"]["mean"], ".3f"))
    if rank["idle_uncertainty_ms"] is not None:
        table.add_row("idle is open by", f"{rank['idle_uncertainty_ms']:.3f}")
    return table


def _layer(layer: dict[str, Any]) -> Table:
    each = layer["ms_per_layer"]
    table = Table(
        f"one of {layer['n_layers']} layers ({layer['kernels_per_layer']} kernels)",
        "gap before, us",
        "us",
        box=None,
        pad_edge=False,
    )
    for column in table.columns[1:]:
        column.justify = "right"
    for kernel in layer["kernels"]:
        table.add_row(
            kernel["name"][:60],
            "beside"
            if kernel["beside"]
            else _show(kernel["gap_before_us_mean"], ".2f"),
            _show(kernel["us_mean"], ".2f"),
        )
    table.add_row(
        "layer, start to start",
        _show(layer["gap_us_per_layer"], ".2f"),
        _show(None if each is None else 1000 * each, ".2f"),
    )
    return table


def _gaps(gaps: list[dict[str, Any]]) -> Table:
    table = Table(
        "gap after", "before", "/step", "us", "ms/step", "host meanwhile", box=None
    )
    for gap in gaps[:6]:
        table.add_row(
            gap["before"][:30],
            gap["after"][:30],
            f"{gap['count_per_step']:.1f}",
            f"{gap['us_mean']:.2f}",
            f"{gap['ms_per_step']:.3f}",
            (gap["host"] or "-")[:34],
        )
    return table


def _show(value: float | None, form: str) -> str:
    return "unknown" if value is None else format(value, form)
