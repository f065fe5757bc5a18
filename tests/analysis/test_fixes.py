"""Comparisons of servers that were changed so that they boot."""

from stepscope.analysis.compare.records import Comparison
from stepscope.analysis.fixes import differing_fixes, fixed_cells
from stepscope.recipe.records import Workload
from stepscope.run.run import AppliedFix, Cell, Launch, Run, Timeline


def fix(value: float) -> AppliedFix:
    return AppliedFix(
        flag="gpu-memory-utilization",
        before=0.9,
        value=value,
        cause="gpu-oom-capture",
        failed_launch="x-l0",
    )


def run_of(**fixes: tuple[tuple[AppliedFix, ...], ...]) -> Run:
    """Each configuration with the fixes of each of its launches, one cell a launch."""
    launches, cells = [], []
    for name, of_launches in fixes.items():
        for i, applied in enumerate(of_launches):
            launch = f"{name}-l{i}"
            launches.append(
                Launch(
                    name=launch, configuration=name, ready=True, applied_fixes=applied
                )
            )
            cells.append(
                Cell(
                    name=f"{name}-c1-r{i}",
                    configuration=name,
                    launch=launch,
                    workload=Workload(concurrency=1, n_prompts=2),
                    repeat=i,
                )
            )
    return Run(
        id="r",
        engine="vllm",
        timeline=Timeline(kind="monotonic"),
        launches=tuple(launches),
        cells=tuple(cells),
    )


FASTER = Comparison(
    a="a",
    b="b",
    concurrency=1,
    metric="output_tokens_per_s",
    delta_pct=9.0,
    ci95_pct=(8.0, 10.0),
    verdict="faster",
    runs_needed=None,
)


def test_servers_that_needed_nothing_or_the_same_are_compared() -> None:
    for run in (
        run_of(a=((), ()), b=((), ())),
        run_of(a=((fix(0.8),),), b=((fix(0.8),),)),
    ):
        assert differing_fixes(run, [FASTER]) == []


def test_servers_that_needed_different_changes_are_named() -> None:
    for run in (
        run_of(a=((),), b=((fix(0.8),),)),
        run_of(a=((fix(0.7),),), b=((fix(0.8),),)),
        run_of(a=((), (fix(0.8),)), b=((), (fix(0.8),))),
    ):
        (finding,) = differing_fixes(run, [FASTER])
        assert (finding.code, finding.severity) == ("boot-fixes-differ", "warning")
        assert "--gpu-memory-utilization 0.8" in finding.message


def test_every_cell_says_what_its_server_needed() -> None:
    found = fixed_cells(run_of(a=((),), b=((fix(0.8),),)))
    assert [f.cell for f in found] == ["b-c1-r0"]
    assert "0.8 instead of 0.9" in found[0].message
    assert "not an optimization" in found[0].message
