"""Did the warm-up settle before anything was measured?"""

from collections.abc import Sequence

import msgspec

from stepscope.analysis.records import CellResult
from stepscope.findings import Finding
from stepscope.run.run import Cell, Launch, Run
from stepscope.run.settling import LEAST_BLOCKS, Block, WarmUpVerdict, block_of, judged


def warm_up_findings(
    run: Run,
    cells: Sequence[CellResult],
    compiled: frozenset[str] = frozenset(),
    uneven: frozenset[str] = frozenset(),
) -> list[Finding]:
    """Judge each launch's warm-up blocks: the last three against the three before.

    Judged anew from the cells by the law that the session went by
    (``stepscope.run.settling``), so an imported run is judged alike.

    Assumes: blocks of one shape. Fewer than six blocks give no verdict, and that is
        said too.

    Args:
        run: The run.
        cells: Figures of its cells.
        compiled: Names of cells in which the server's log reports a compilation.
        uneven: Names of cells whose ranks were not alike, and took another step for it.
    """
    found = []
    for launch in run.launches:
        if any(c.launch == launch.name and not c.warm_up for c in cells):
            verdict = verdict_of(run, launch, cells, compiled)
            blocks = [c.name for c in cells if c.launch == launch.name and c.warm_up]
            finding = _finding(launch, verdict, _two_kinds(blocks, uneven))
            if finding is not None:
                found.append(finding)
    return found


def with_warm_up(
    run: Run, cells: Sequence[CellResult], compiled: frozenset[str] = frozenset()
) -> list[CellResult]:
    """Return the cells, each measured one with what came of its launch's warm-up."""
    settled = {
        launch.name: verdict_of(run, launch, cells, compiled).settled
        for launch in run.launches
    }
    return [
        cell
        if cell.warm_up
        else msgspec.structs.replace(cell, warm_up_settled=settled.get(cell.launch))
        for cell in cells
    ]


def verdict_of(
    run: Run,
    launch: Launch,
    cells: Sequence[CellResult],
    compiled: frozenset[str] = frozenset(),
) -> WarmUpVerdict:
    """Return whether a launch had settled when its measured cells began."""
    records = {c.name: c for c in run.cells}
    blocks = [
        _block(c, records.get(c.name), c.name in compiled)
        for c in cells
        if c.launch == launch.name and c.warm_up and c.valid
    ]
    most = launch.warm_up.most_blocks if launch.warm_up is not None else None
    return judged(blocks, most)


def _block(result: CellResult, cell: Cell | None, compiled: bool) -> Block:
    ttft = block_of(result.name, cell.requests if cell is not None else ()).ttft_ns
    return Block(
        name=result.name,
        tokens_per_s=result.output_tokens_per_s or None,
        ttft_ns=ttft,
        n_compiled=int(compiled),
    )


def _two_kinds(blocks: Sequence[str], uneven: frozenset[str]) -> str:
    """Return what to say where some of the blocks took another step than the others."""
    odd = [name for name in blocks if name in uneven]
    if not odd or len(odd) == len(blocks):
        return ""
    return (
        " Blocks of two kinds of step scatter however warm the server is"
        f" (uneven-ranks: {', '.join(odd)}): more of them need not settle it."
    )


def _finding(launch: Launch, verdict: WarmUpVerdict, more: str) -> Finding | None:
    if verdict.settled:
        return None
    if verdict.settled is None:
        return Finding(
            code="warmup-unknown",
            severity="info",
            message=f"{len(verdict.tokens_per_s)} warm-up blocks on {launch.name}; six"
            " are needed to tell whether it had settled",
            hint=f"[warm_up] blocks = {LEAST_BLOCKS}",
            launch=launch.name,
        )
    cap = ""
    if verdict.most_blocks is not None and verdict.n_blocks >= verdict.most_blocks:
        cap = f" (the cap, {verdict.most_blocks})"
    return Finding(
        code="warmup-not-converged",
        severity="warning",
        message=f"{launch.name} had not settled after {verdict.n_blocks} warm-up"
        f" blocks{cap}: {verdict.why}",
        hint="More blocks (warm_up.max_blocks) or longer ones: every later cell of"
        f" this launch carries this doubt.{more}",
        launch=launch.name,
    )
