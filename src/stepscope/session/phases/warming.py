"""Warm-up until it has settled: which block comes next, and what came of them.

A launch begins with the planned blocks. After the last of them the law of
``stepscope.run.settling`` is asked after every block; while it says no, another block
is added, up to the recipe's cap. The verdict is kept with the launch.
"""

from pathlib import Path

import msgspec

from stepscope.archive.cells import requests_of
from stepscope.archive.layout import SERVER_LOG
from stepscope.parse.serverlog import parse_log
from stepscope.recipe.records import CellPlan, LaunchPlan
from stepscope.run.run import Cell, Launch
from stepscope.run.settling import Block, WarmUpVerdict, block_of, judged
from stepscope.session.context import Context

_COMPILING = ("jit", "autotune")


class Warming:
    """The warm-up of one launch. It judges nothing where nothing is measured after it.

    Attributes:
        launch: The launch, with the verdict once there is one.
    """

    def __init__(self, context: Context, launch: Launch, plan: LaunchPlan) -> None:
        self.launch = launch
        self._context = context
        planned = [cell for cell in plan.cells if cell.warm_up]
        measures = any(not cell.warm_up for cell in plan.cells)
        self._n_planned = len(planned) if measures else 0
        self._most = max(context.recipe.warm_up.most_blocks, self._n_planned)
        self._blocks: list[Block] = []
        self._log = _log_path(context, launch)
        self._read = _size(self._log)

    def after(self, plan: CellPlan, cell: Cell) -> CellPlan | None:
        """Take a cell that was run; return the block to run next, if one is to be.

        Args:
            plan: The cell, as it was planned.
            cell: The same, as it was recorded.
        """
        if not plan.warm_up or not self._n_planned:
            return None
        folder = self._context.book.writer.cell_dir(plan.name)
        requests = tuple(requests_of(folder)) if cell.status == "done" else ()
        self._blocks.append(block_of(plan.name, requests, self._compiled()))
        n = len(self._blocks)
        if n < self._n_planned:
            return None
        verdict = judged(self._blocks, self._most)
        if verdict.settled is not True and n < self._most and cell.status == "done":
            return _another(plan)
        self._keep(verdict)
        return None

    def _compiled(self) -> int:
        """Return how many lines about compiling the log has gained since last asked."""
        path, begin = self._log, self._read
        if path is None or self._context.engine.log_format is None:
            return 0
        try:
            with path.open("rb") as stream:
                stream.seek(begin)
                text = stream.read()
        except FileNotFoundError:
            return 0
        whole = text[: text.rfind(b"\n") + 1]
        self._read = begin + len(whole)
        events = parse_log(whole, self._context.engine.log_format).events
        return sum(event.kind in _COMPILING for event in events)

    def _keep(self, verdict: WarmUpVerdict) -> None:
        self.launch = msgspec.structs.replace(self.launch, warm_up=verdict)
        self._context.book.put_launch(self.launch)
        told = f"warm-up of {self.launch.name}: "
        if verdict.settled:
            bound = max(verdict.rise_bound_pct or 0.0, 0.0)
            self._context.observer.note(
                "info",
                f"{told}settled after {verdict.n_blocks} blocks (the last six leave"
                f" room for a rise of {bound:.1f} %)",
            )
        elif verdict.settled is False:
            self._context.observer.note(
                "warning",
                f"{told}not settled after {verdict.n_blocks} blocks: {verdict.why}."
                " What is measured now carries this doubt",
            )


def _another(last: CellPlan) -> CellPlan:
    """Return one more block like ``last``, with prompts of its own."""
    stem = f"{last.configuration}-warm{last.repeat}"
    suffix = last.name.removeprefix(stem)
    seed = last.workload.seed
    work = msgspec.structs.replace(
        last.workload, seed=None if seed is None else seed + 1
    )
    number = last.repeat + 1
    return msgspec.structs.replace(
        last,
        name=f"{last.configuration}-warm{number}{suffix}",
        repeat=number,
        workload=work,
    )


def _log_path(context: Context, launch: Launch) -> Path | None:
    if context.engine.boots:
        return context.launch_folder(launch) / SERVER_LOG
    server = context.recipe.server
    return Path(server.log_file) if server is not None and server.log_file else None


def _size(path: Path | None) -> int:
    try:
        return path.stat().st_size if path is not None else 0
    except FileNotFoundError:
        return 0
