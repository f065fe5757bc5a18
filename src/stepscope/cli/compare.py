"""``stepscope compare``: is the difference real?"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from stepscope.cli.readers import read_or_not
from stepscope.errors import RecipeError

if TYPE_CHECKING:
    from stepscope.analysis.compare.measured import Measured

#: As `analyze --json` spells them; the first that is named decides the exit code.
_METRICS = ("output_tokens_per_s", "tpot_ms", "ttft_ms")


@click.command(short_help="Is the difference real?")
@click.argument("sides", nargs=-1, required=True, metavar="A [B]")
@click.option(
    "--a",
    "base",
    metavar="NAME",
    help="The baseline's configuration. Default: the first.",
)
@click.option(
    "--b",
    "others",
    metavar="NAME",
    multiple=True,
    help="The other; several. Default: all others.",
)
@click.option(
    "--metric",
    "metrics",
    type=click.Choice(_METRICS),
    multiple=True,
    help="What is compared; the first decides. Default: all, the throughput decides.",
)
@click.option(
    "--fail-if-worse",
    "margin",
    metavar="2%",
    help="Exit 1 only where a greater loss is shown. Default: where any is.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
def compare(
    sides: tuple[str, ...],
    *,
    base: str | None,
    others: tuple[str, ...],
    metrics: tuple[str, ...],
    margin: str | None,
    as_json: bool,
) -> None:
    """Compare B with A.

    Each is a run directory, anything that import accepts, or RUN:CONFIGURATION. A
    alone: all its configurations against its first.

    Exit codes: 0 same or better, 1 worse, 5 undetermined.
    """
    tolerated = _margin(margin)
    chosen = metrics or _METRICS
    asked = _asked(sides, base, others)
    from stepscope.analysis.compare.compare import compare as compare_runs
    from stepscope.analysis.compare.decide import decide
    from stepscope.analysis.compare.table import deciding
    from stepscope.report.comparing import compare_document, print_comparison

    found = compare_runs(
        asked.measured, asked.a, asked.bs, chosen, raw_where_unknown=True
    )
    metric = chosen[0] if metrics else deciding(found.table)
    decision = decide(found, metric, tolerated)
    document = compare_document(found, decision, metric, tolerated)
    with read_or_not():
        if as_json:
            sys.stdout.buffer.write(msgspec.json.encode(document) + b"\n")
        else:
            from rich.console import Console

            print_comparison(Console(highlight=False), document)
    if decision.exit_code == 5:
        print(
            f"compare: {document.why}; expected an interval that decides."
            f" {document.what_to_run}.",
            file=sys.stderr,
        )
    sys.exit(decision.exit_code)


@dataclass(frozen=True, slots=True)
class _Asked:
    """What lies before, and the names of what is compared in it."""

    measured: "tuple[Measured, ...]"
    a: str
    bs: tuple[str, ...]


def _margin(text: str | None) -> float | None:
    """Return the tolerated loss as a part of one."""
    if text is None:
        return None
    try:
        value = float(text.removesuffix("%")) / 100
    except ValueError:
        value = -1.0
    if not 0 <= value < 1:
        raise RecipeError(
            "--fail-if-worse", repr(text), "percent from 0 to below 100, such as 2%"
        )
    return value


def _asked(sides: Sequence[str], base: str | None, others: tuple[str, ...]) -> _Asked:
    if len(sides) > 2:
        raise RecipeError(
            "compare", f"{len(sides)} paths", "A, or A and B", "Compare two at a time"
        )
    pairs = [_split(side) for side in sides]
    paths = list(dict.fromkeys(path.resolve() for path, _ in pairs))
    if len(pairs) == 2 and len(paths) == 2:
        return _two(pairs, base, others)
    (path, first), *more = pairs
    of = _measured(path)
    names = _configurations(of)
    if more and more[0][1] is None:
        raise RecipeError(
            str(path),
            "given as A and as B",
            "two runs, or two of its configurations",
            f"Choose: {path}:NAME, of {', '.join(names)}",
        )
    a = _one_of(of, base or first or names[0], names)
    asked = others or tuple(name for _, name in more if name)
    bs = tuple(_one_of(of, b, names) for b in asked) or tuple(
        n for n in names if n != a
    )
    if not bs or a in bs:
        raise RecipeError(
            str(path),
            f"there is nothing to compare {a} with",
            f"it holds {', '.join(names)}",
            "Name another run, or another configuration with --b",
        )
    return _Asked((of,), a, bs)


def _two(
    pairs: Sequence[tuple[Path, str | None]], base: str | None, others: tuple[str, ...]
) -> _Asked:
    """Return two runs with labels of their own."""
    from dataclasses import replace

    from stepscope.analysis.compare.table import arm_name

    (path_a, first), (path_b, second) = pairs
    left, right = _measured(path_a), _measured(path_b)
    if left.label == right.label:
        left, right = replace(left, label="A"), replace(right, label="B")
    names, theirs = _configurations(left), _configurations(right)
    a = _one_of(left, base or first or names[0], names)
    asked = others or ((second,) if second else ())
    if not asked and len(theirs) > 1:
        raise RecipeError(
            str(path_b),
            f"holds {len(theirs)} configurations ({', '.join(theirs)})",
            "one to compare",
            f"Choose: --b NAME, or {path_b}:NAME",
        )
    bs = [_one_of(right, b, theirs) for b in asked or theirs]
    return _Asked(
        (left, right),
        arm_name(left, a, several=True),
        tuple(arm_name(right, b, several=True) for b in bs),
    )


def _split(side: str) -> tuple[Path, str | None]:
    """Return path and configuration of RUN:CONFIGURATION."""
    path, head = Path(side), side
    # Either may hold colons: the longest path that exists is the run.
    while not path.exists() and ":" in head:
        head = head.rpartition(":")[0]
        name = side[len(head) + 1 :]
        if name and head and Path(head).exists():
            return Path(head), name
    return path, None


def _measured(path: Path) -> "Measured":
    from stepscope.analysis.analyze import analyze
    from stepscope.analysis.compare.measured import (
        Measured,
        anomalous,
        doubtful,
        replaceable,
    )
    from stepscope.errors import RefusedError
    from stepscope.importers.open import open_any

    run = open_any(path)
    analysis = analyze(run)
    if all(cell.warm_up for cell in analysis.cells):
        raise RefusedError(str(path), "no measured cell in it", "something to compare")
    found = analysis.findings
    return Measured(
        run,
        analysis.cells,
        anomalous(found),
        run.id,
        doubtful(found),
        replaceable(found),
    )


def _configurations(of: "Measured") -> tuple[str, ...]:
    return tuple(dict.fromkeys(c.configuration for c in of.cells if not c.warm_up))


def _one_of(of: "Measured", name: str, names: Sequence[str]) -> str:
    if name not in names:
        raise RecipeError(
            of.label, f"no configuration {name!r}", f"it holds {', '.join(names)}"
        )
    return name
