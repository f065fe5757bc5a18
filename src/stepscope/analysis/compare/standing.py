"""What the figures that are compared stand on: copies, lost rows, doubts, models."""

from collections import defaultdict
from collections.abc import Sequence

from stepscope.analysis.compare.measured import Measured
from stepscope.analysis.compare.readings import COPY
from stepscope.analysis.compare.table import Table
from stepscope.findings import Finding
from stepscope.recipe.records import Workload


def unlike_models(
    measured: Sequence[Measured], a: str, bs: Sequence[str]
) -> list[Finding]:
    """Say where runs are of different models: no flag makes that difference."""
    models = {of.run.model for of in measured if of.run.model is not None}
    if len(models) < 2:
        return []
    each = ", ".join(f"{of.label}: {of.run.model or 'unknown'}" for of in measured)
    return [
        Finding(
            code="different-models",
            severity="warning",
            message=f"{', '.join(bs)} and {a} ran different models ({each}): what they"
            " differ by is not a matter of configuration alone",
            hint="Compare runs of one model, unless the model is what you compare.",
        )
    ]


def carried(
    measured: Sequence[Measured], of: Table, a: str, bs: Sequence[str]
) -> list[Finding]:
    """Say what is doubtful about the figures that are compared: one finding a code."""
    mine = [r for r in of.readings if r.arm in (a, *bs)]
    told: dict[str, list[str]] = defaultdict(list)
    for one in measured:
        own = [r for r in mine if r.launch.startswith(f"{one.label}/")]
        for doubt in one.doubts:
            launch = f"{one.label}/{doubt.launch}"
            arm = next(
                (r.arm for r in own if r.cell == doubt.cell or r.launch == launch), None
            )
            if arm is not None:
                about = f" {doubt.cell}" if doubt.cell else ""
                told[doubt.code].append(f"{arm}{about}: {doubt.message}")
    return [
        Finding(
            code=code,
            severity="warning",
            message=f"{texts[0]}{_and_more(texts)}",
            hint="The differences carry this doubt.",
        )
        for code, texts in told.items()
    ]


def _and_more(texts: Sequence[str]) -> str:
    return f" (and {len(texts) - 1} more of these)" if len(texts) > 1 else ""


def copied(of: Table, a: str, bs: Sequence[str]) -> list[Finding]:
    """Say which readings are one measurement that was given more than once."""
    found = [
        f"{x.cell} of {x.configuration} is {x.reason}"
        for x in of.left_out
        if x.configuration in (a, *bs) and x.reason.startswith(COPY)
    ]
    marks: dict[object, str] = {
        (r.row, r.mark): r.cell for r in of.readings if r.arm == a and r.mark
    }
    found += [
        f"{r.cell} of {r.arm} is {COPY} of {marks[r.row, r.mark]} of {a}"
        for r in of.readings
        if r.arm in bs and (r.row, r.mark) in marks
    ]
    if not found:
        return []
    more = f"; and {len(found) - 3} more" if len(found) > 3 else ""
    return [
        Finding(
            code="copied-results",
            severity="warning",
            message=f"{'; '.join(found[:3])}{more}: one measurement is no repeat of"
            " itself",
            hint="Measure again; a copy holds nothing of how much figures vary.",
        )
    ]


def rows_text(rows: Sequence[Workload]) -> str:
    """Return the rows by concurrency or rate, such as ``8, 64``."""
    names = (r.concurrency or r.request_rate or "all at once" for r in rows)
    return ", ".join(dict.fromkeys(f"{name}" for name in names))


def rows_alone(of: Table, a: str, bs: Sequence[str]) -> list[Finding]:
    """Say at which workload points one side has a figure and the other has none."""
    rows: dict[str, dict[Workload, None]] = defaultdict(dict)
    for reading in of.readings:
        rows[reading.arm][reading.row] = None
    found = []
    for b in bs:
        if not rows[a].keys() & rows[b].keys():
            continue
        lost = of.rows_lost(a, b)
        if lost:
            found.append(
                Finding(
                    code="rows-lost",
                    severity="warning",
                    message=f"no cell of {b} stands at {rows_text(lost)}, where {a} has"
                    " a figure: that may be its effect, so it is not called the same"
                    " or better",
                    hint=f"Find what voided the cells of {b} there.",
                )
            )
        for one, other in ((a, b), (b, a)):
            alone = [r for r in rows[one] if r not in rows[other] and r not in lost]
            if alone:
                found.append(
                    Finding(
                        code="rows-alone",
                        severity="info",
                        message=f"at {rows_text(alone)} only {one} has a figure,"
                        f" {other} has none: nothing is compared there",
                    )
                )
    return found
