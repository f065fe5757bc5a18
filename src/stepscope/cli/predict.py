"""``stepscope predict``: concurrencies, devices and layouts that were not measured."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from stepscope.errors import RecipeError

if TYPE_CHECKING:
    from stepscope.analysis.predict.records import PredictDocument, PredictedPoint


@click.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.option(
    "--concurrency", required=True, help="Requests in flight; several with commas."
)
@click.option("--configuration", default=None, help="Only this one. Default: all.")
@click.option(
    "--gpu", default=None, help="Another accelerator, such as H100. Default: the run's."
)
@click.option(
    "--tp",
    type=int,
    default=None,
    help="Other tensor parallel ranks. Default: the run's.",
)
@click.option(
    "--dp",
    type=int,
    default=None,
    help="Other data parallel ranks. Default: the run's.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
def predict(
    run: Path,
    *,
    concurrency: str,
    configuration: str | None,
    gpu: str | None,
    tp: int | None,
    dp: int | None,
    as_json: bool,
) -> None:
    """Predict RUN's step, TPOT and throughput where it was not measured.

    Every figure has a 95 % interval; it holds what the model was wrong by at measured
    sizes that were kept from it.
    """
    from stepscope.analysis.analyze import analyze
    from stepscope.analysis.predict.move import Asked
    from stepscope.analysis.predict.predict import concurrencies, predict as predict_run
    from stepscope.importers.open import open_any

    wanted = concurrencies(concurrency)
    if wanted is None:
        raise RecipeError(
            "--concurrency", repr(concurrency), "whole numbers from 1, with commas"
        )
    opened = open_any(run)
    asked = Asked(
        concurrencies=tuple(wanted),
        configuration=configuration,
        gpu=gpu,
        tp=tp,
        dp=dp,
    )
    document = predict_run(opened, analyze(opened), asked)
    if as_json:
        sys.stdout.buffer.write(msgspec.json.encode(document) + b"\n")
        return
    _print(document)


def _print(document: "PredictDocument") -> None:
    for one in document.predictions:
        layout = one.layout
        ranks = f"tp {layout.tp}, dp {layout.dp}"
        print(
            f"{one.configuration}: {one.kind} model of the {one.step_source}, from"
            f" {one.n_points} points at {one.n_sizes} concurrencies,"
            f" {one.measured_from:.3g} to {one.measured_to:.3g} sequences a rank;"
            f" for {one.gpu or 'the same machine'}, {ranks}"
        )
        print(
            f"{'concurrency':>11}  {'step ms':<22} {'TPOT ms':<22} {'tokens/s':<26}"
            f" {'prefill':>7}"
        )
        for point in one.points:
            print(_line(point))
        for point in one.points:
            for note in point.notes:
                print(f"  {point.concurrency}: {note}")
        print("Taken for granted:")
        for text in one.assumptions:
            print(f"- {text}")
    for finding in document.findings:
        print(f"{finding.severity} {finding.code}: {finding.message}")
        print(f"  {finding.hint}")


def _line(point: "PredictedPoint") -> str:
    share = (
        "-" if point.prefill_share_pct is None else f"{point.prefill_share_pct:.0f} %"
    )
    said = "measured: read that" if point.measured else ""
    if point.extrapolated:
        said = f"extrapolated by {point.doublings_outside:.1f} doublings"
    if point.limited_by is not None:
        said += f"{', ' if said else ''}limited by {point.limited_by}"
    rate = _ranged(point.output_tokens_per_s, point.output_tokens_per_s_ci95, ",.0f")
    return (
        f"{point.concurrency:>11}  {_ranged(point.step_ms, point.step_ci95_ms):<22}"
        f" {_ranged(point.tpot_ms, point.tpot_ci95_ms):<22} {rate:<26} {share:>7}"
        f"  {said}"
    ).rstrip()


def _ranged(
    value: float | None, interval: tuple[float, float] | None, form: str = "#.3g"
) -> str:
    if value is None or interval is None:
        return "-"
    low, high = interval
    return f"{value:{form}} ({low:{form}}-{high:{form}})"
