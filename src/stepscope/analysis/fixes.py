"""What a change that was made so that a server boots does to what was measured."""

from collections.abc import Sequence

from stepscope.analysis.compare.records import Comparison
from stepscope.findings import Finding
from stepscope.run.run import AppliedFix, Run

_Flags = frozenset[tuple[str, str]]


def fixed_cells(run: Run) -> list[Finding]:
    """Return for each measured cell the change that its server needed to boot."""
    fixes = {x.name: x.applied_fixes for x in run.launches if x.applied_fixes}
    return [
        Finding(
            code="boot-fixed",
            severity="info",
            message=f"measured on {cell.launch}, which did not boot without "
            + " and ".join(_words(f) for f in fixes[cell.launch])
            + ": the least that boots, not an optimization",
            cell=cell.name,
            launch=cell.launch,
        )
        for cell in run.cells
        if cell.launch in fixes and not cell.warm_up
    ]


def differing_fixes(run: Run, comparisons: Sequence[Comparison]) -> list[Finding]:
    """Say which pairs get no verdict because their servers were changed differently.

    ``compare.contrasts`` withholds the verdicts themselves.
    """
    used = _changes(run)
    found: dict[tuple[str, str], Finding] = {}
    for row in comparisons:
        a, b = used.get(row.a, set()), used.get(row.b, set())
        if a == b and len(a) <= 1:
            continue
        found[(row.a, row.b)] = Finding(
            code="boot-fixes-differ",
            severity="warning",
            message=f"{row.a} and {row.b} get no verdict: {_reason(row, a, b)}",
            hint="Write the flag into [baseline] and measure both again.",
        )
    return list(found.values())


def _changes(run: Run) -> dict[str, set[_Flags]]:
    """Return the different changes with which each configuration was measured."""
    launches = {x.name: x for x in run.launches}
    found: dict[str, set[_Flags]] = {}
    for cell in run.cells:
        launch = launches.get(cell.launch)
        if launch is None or cell.warm_up or not launch.ready:
            continue
        flags = frozenset((f.flag, str(f.value)) for f in launch.applied_fixes)
        found.setdefault(cell.configuration, set()).add(flags)
    return found


def _reason(row: Comparison, a: set[_Flags], b: set[_Flags]) -> str:
    def words(changes: set[_Flags]) -> str:
        told = [
            " and ".join(f"--{name} {value}" for name, value in sorted(flags))
            or "no change"
            for flags in sorted(changes, key=sorted)
        ]
        return " in some launches, ".join(told) or "no change"

    return f"to boot, {row.a} took {words(a)}; {row.b} took {words(b)}"


def _words(fix: AppliedFix) -> str:
    before = "the engine's default" if fix.before is None else f"{fix.before}"
    return f"--{fix.flag} {fix.value} instead of {before}"
