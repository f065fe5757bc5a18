"""``stepscope trend``: many runs of one configuration over time."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from stepscope.cli.output import write_whole

if TYPE_CHECKING:
    from stepscope.analysis.trend.records import TrendDocument, TrendSeries


@click.command()
@click.argument("runs", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write the page there.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
def trend(runs: tuple[Path, ...], *, output: Path | None, as_json: bool) -> None:
    """Show RUNS of one configuration in the order in which they were taken.

    Marks where engine, flags, GPU, driver or host changed, and from twenty runs of a
    workload point on where its level moved.
    """
    from stepscope.analysis.analyze import analyze
    from stepscope.analysis.trend.trend import taken_of, trend as trend_of
    from stepscope.importers.open import open_any

    taken = []
    for path in runs:
        run = open_any(path)
        taken.append((taken_of(run, str(path)), analyze(run)))
    document = trend_of(taken)
    if output is not None:
        from stepscope.report.trend import trend_html

        write_whole(output, trend_html(document))
    if as_json:
        sys.stdout.buffer.write(msgspec.json.encode(document) + b"\n")
        return
    _print(document)
    if output is not None:
        print(f"\nPage: {output}")


def _print(document: "TrendDocument") -> None:
    from stepscope.analysis.trend.trend import number_of_runs
    from stepscope.board.claims import number
    from stepscope.report.trend import LABELS, when, where

    first, last = document.runs[0], document.runs[-1]
    print(
        f"{number_of_runs(len(document.runs))}, {when(first.at_unix_ns)} to"
        f" {when(last.at_unix_ns)} UTC"
    )
    for one in document.series:
        spread = "" if one.cv_pct is None else f", spread {one.cv_pct:.1f} %"
        print(
            f"{where(one)}: {LABELS.get(one.metric, one.metric)}"
            f" {number(one.points[0].value)} to {number(one.points[-1].value)}, mean"
            f" {number(one.mean)}{spread}, {number_of_runs(len(one.points))};"
            f" {_moved(one)}"
        )
    for change in document.identity_changes:
        for field in change.fields:
            print(
                f"from {change.run} on: {field.field} {field.before} -> {field.after}"
            )
    for finding in document.findings:
        print(f"{finding.severity} {finding.code}: {finding.message}. {finding.hint}")


def _moved(one: "TrendSeries") -> str:
    from stepscope.analysis.trend.trend import number_of_runs

    if one.changes is None:
        return f"{number_of_runs(one.runs_missing)} missing for change points"
    if not one.changes:
        return "no change of level is shown"
    told = []
    for change in one.changes:
        low, high = change.ci95_pct
        beside = ", ".join(change.fields) or "nothing recorded"
        told.append(
            f"{change.delta_pct:+.1f} % ({low:+.1f} to {high:+.1f}) from {change.run}"
            f" on (p {change.p:.4f}; changed there: {beside})"
        )
    return "; ".join(told)
