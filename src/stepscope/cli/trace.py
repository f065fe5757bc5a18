"""``stepscope trace``: a decode step's budget from kernel timelines."""

import sys
from pathlib import Path
from typing import Any

import click
import msgspec


@click.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
def trace(files: tuple[Path, ...], *, as_json: bool) -> None:
    """Read FILES (torch profiler JSON, nsys SQLite), one a rank, same capture."""
    from stepscope.timeline.analyze import analyze_traces
    from stepscope.timeline.load import load_trace

    traces = [found for path in files for found in load_trace(path)]
    traces.sort(key=lambda t: -1 if t.rank is None else t.rank)
    result = analyze_traces(traces)
    if as_json:
        sys.stdout.buffer.write(msgspec.json.encode(result) + b"\n")
        return
    _print(msgspec.to_builtins(result))


def _print(result: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False)
    quality = result["quality"]
    word = "usable" if quality["usable"] else "NOT usable for idle time"
    console.print(f"Trace: {word}. Defects: {', '.join(quality['defects']) or 'none'}")
    for rank in result["ranks"]:
        console.print(
            f"\nRank {rank['rank']}: {rank['n_steps']} {rank['step_kind'] or ''} steps"
            f" (from {rank['step_source']}), {rank['n_device_ops']} device operations"
            f" in {rank['span_ms']:.1f} ms, busy {_show(rank['busy_pct'], '.1f')} %"
        )
        budget, idle = rank["budget_ms"], rank["idle_ms"] or {}
        if budget is not None:
            table = Table("part of a step", "ms", box=None, pad_edge=False)
            table.columns[1].justify = "right"
            for name, value in budget.items():
                table.add_row(name, _show(value, ".3f"))
            for name, value in idle.items():
                table.add_row(f"  idle: {name}", _show(value, ".3f"))
            step = rank["step_ms"]
            table.add_row("step period (mean)", _show(step["mean"], ".3f"))
            console.print(table)
        gaps = Table("gap before", "after", "/step", "us", "ms/step", box=None)
        for gap in rank["top_gaps"][:6]:
            gaps.add_row(
                gap["before"][:36],
                gap["after"][:36],
                f"{gap['count_per_step']:.1f}",
                f"{gap['us_mean']:.2f}",
                f"{gap['ms_per_step']:.3f}",
            )
        if rank["top_gaps"]:
            console.print(gaps)
    if result["straggler_rank"] is not None:
        rank, why = result["straggler_rank"], result["straggler_reason"]
        console.print(f"\nStraggler: rank {rank}, {why}")
    for finding in result["findings"]:
        console.print(f"{finding['severity']}: {finding['message']}", markup=False)


def _show(value: float | None, form: str) -> str:
    return "unknown" if value is None else format(value, form)
