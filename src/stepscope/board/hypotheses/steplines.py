"""How to get the engine's own period of each step, from where a run is now."""

from stepscope.analysis.across.steplines import FLAG, asked_in_vain
from stepscope.board.view import CellView


def wanted(view: CellView) -> str:
    """Return what to do for vLLM's line a step, to follow a colon or a semicolon."""
    if view.launch is not None and asked_in_vain(view.launch):
        return (
            f"{FLAG} is on and no step was logged, as with several API servers: repeat"
            " the cell with --api-server-count 1 (stepscope run)"
        )
    return f"add {FLAG} to the server and repeat the cell (stepscope run)"
