"""warm-up: the server was not yet in the state that it stays in."""

from stepscope.board.claims import number
from stepscope.board.holes import where
from stepscope.board.opinion import Hypothesis, Opinion, Rule, seen
from stepscope.board.view import CellView

_SAME_PCT = 2.0
_MIN_REPEATS = 3
_MIN_BLOCKS = 6
_DRIFT = "a drift; it does not name its cause"
#: On an H200 after six warm-up waves of 64, the first wave of 8 waited for 1.8 s, and
#: after seven of 8 that of 64 for 2.0 s, with no line in the log.
_WORDS = {
    "stall": "a batch size that was not warmed up can do this once; so can other things"
}


def _compiled(view: CellView) -> Opinion | None:
    found = view.findings("jit-during-measurement")
    own = [f for f in found if f.cell is not None]
    if not own:
        return None
    return Opinion(
        status="supported",
        headline="kernels were compiled while it was measured",
        evidence=tuple(
            seen(view, "compiled during the cell", f.message, "", "by the server log")
            for f in own
        ),
    )


def _first_run(view: CellView) -> Opinion | None:
    found = view.findings(
        "first-run-contaminated", "warmup-not-converged", "not-steady", "stall"
    )
    if not found:
        return None
    return Opinion(
        status="standing",
        evidence=tuple(
            seen(view, f.code, f.message, "", _WORDS.get(f.code, _DRIFT)) for f in found
        ),
    )


def _repeats_agree(view: CellView) -> Opinion | None:
    group = view.group("tpot_ms")
    if group is None or len(group.values) < _MIN_REPEATS:
        return None
    launches = {r.launch for r in view.analysis.cells if r.name in group.cells}
    if len(launches) != 1:
        return None
    first, *rest = group.values
    mean = sum(rest) / len(rest)
    drift = 100 * (first / mean - 1)
    item = seen(
        view,
        "first repeat against the later ones",
        drift,
        "% of TPOT",
        f"{len(group.values)} repeats on one launch; a warm-up longer than all of"
        " them would not be seen",
    )
    if abs(drift) <= _SAME_PCT and not view.findings("warmup-not-converged"):
        return Opinion(status="ruled-out", share_pct=abs(drift), evidence=(item,))
    return Opinion(status="standing", evidence=(item,))


def _n_blocks(view: CellView) -> int:
    """Return the warm-up blocks of the cell's launch."""
    return len(_names_of_blocks(view))


def _names_of_blocks(view: CellView) -> list[str]:
    return [
        cell.name
        for cell in view.run.cells
        if cell.warm_up
        and cell.capture is None
        and view.launch is not None
        and cell.launch == view.launch.name
    ]


def _rates(view: CellView) -> str:
    """Return between which throughputs the judged blocks lie, in words."""
    names = _names_of_blocks(view)[-_MIN_BLOCKS:]
    found = [
        cell.output_tokens_per_s
        for cell in view.analysis.cells
        if cell.name in names and cell.output_tokens_per_s
    ]
    if not found:
        return ""
    return f" ({number(min(found))} to {number(max(found))} tokens/s)"


def _beyond_blocks(view: CellView) -> str:
    """Say what is missing where there are warm-up blocks enough."""
    wanted = []
    if view.findings("warmup-not-converged"):
        wanted.append(
            "A warm-up that settles: allow more blocks (warm_up.max_blocks; a slow"
            " first block counts until six came after it)."
        )
    group = view.group("tpot_ms")
    if group is None or len(group.values) < _MIN_REPEATS:
        assert view.result is not None
        wanted.append(
            f"{_MIN_REPEATS} repeats on one launch {where(view.result)}, so that the"
            " first shows beside the later ones."
        )
    if not wanted:
        wanted.append("Repeat the cell on the same launch: its drift should be gone.")
    return " ".join(wanted)


def _blocks(view: CellView) -> Opinion | None:
    n_blocks = _n_blocks(view)
    if n_blocks < _MIN_BLOCKS:
        return None
    if view.findings("warmup-not-converged", "first-run-contaminated", "stall"):
        return None
    return Opinion(
        status="ruled-out",
        share_pct=None,
        evidence=(
            seen(
                view,
                "warm-up blocks before the first cell",
                float(n_blocks),
                "",
                "of the measured shape, and the last three were no faster than the"
                f" three before{_rates(view)}; other batch sizes may still be cold",
            ),
        ),
    )


def _would_decide(view: CellView) -> str:
    if view.result is not None and _n_blocks(view) >= _MIN_BLOCKS:
        return _beyond_blocks(view)
    return (
        f"At least {_MIN_BLOCKS} warm-up blocks of the measured shape and"
        f" {_MIN_REPEATS} repeats on one launch (warm_up.blocks and repeats in the"
        " recipe, stepscope run)."
    )


WARM_UP = Hypothesis(
    id="warm-up",
    claim="The server was not yet in the state that it stays in.",
    rules=(
        Rule(
            name="compiled",
            measurement="server log lines about compiling or tuning, inside the span",
            threshold="supported: there are some",
            blind="what they cost",
            test=_compiled,
        ),
        Rule(
            name="drift",
            measurement="findings on drift within the cell and over warm-up blocks",
            threshold="bears on it; decides nothing",
            blind="the cause of the drift",
            test=_first_run,
        ),
        Rule(
            name="repeats-agree",
            measurement="first repeat against the later ones",
            threshold=f"ruled out: within {_SAME_PCT:.0f} % over {_MIN_REPEATS}"
            " repeats (run-to-run spread is about 1 %)",
            blind="a warm-up longer than all repeats",
            test=_repeats_agree,
        ),
        Rule(
            name="blocks",
            measurement="warm-up blocks of the launch",
            threshold=f"ruled out: {_MIN_BLOCKS} or more without a finding, and no"
            " stall in the cell",
            blind="batch sizes that the warm-up did not reach",
            test=_blocks,
        ),
    ),
    would_decide=_would_decide,
)
