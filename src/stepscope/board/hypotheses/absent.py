"""What can not be, because the machine lacks it: no GPU, a single rank."""

from stepscope.board.opinion import Opinion, Rule, seen
from stepscope.board.view import CellView


def absent(view: CellView, quantity: str, value: float, why: str) -> Opinion:
    """Rule out what has nothing to act on."""
    item = seen(view, quantity, value, "", f"not applicable: {why}")
    return Opinion(status="ruled-out", share_pct=0.0, evidence=(item,))


def _no_gpu(view: CellView) -> Opinion | None:
    if view.has_gpu is not False:
        return None
    return absent(view, "GPUs that take part", 0.0, "the model runs on the CPU")


def _one_rank(view: CellView) -> Opinion | None:
    if view.n_ranks != 1:
        return None
    why = "one rank waits for nobody and talks to nobody"
    return absent(view, "ranks in the layout", 1.0, why)


NO_GPU = Rule(
    name="no-gpu",
    measurement="what the machine has",
    threshold="ruled out: no GPU takes part",
    blind="nothing",
    test=_no_gpu,
    of_cell=False,
)
ONE_RANK = Rule(
    name="one-rank",
    measurement="the layout",
    threshold="ruled out: one rank",
    blind="nothing",
    test=_one_rank,
    of_cell=False,
)
