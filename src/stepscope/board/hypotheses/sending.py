"""Where time was lost between the server's own stamp of a token and ours."""

from dataclasses import dataclass

from stepscope.board.view import CellView
from stepscope.run.client import GAP_VOID_PCT, read_at_once, stamped_by_kernel

#: Engines whose own TPOT is stamped in the engine's process, before a frontend has the
#: token. Source: ``EngineCoreOutputs.timestamp`` of vLLM, read in 0.26 and 0.32.
_BY_ENGINE = frozenset({"vllm"})


@dataclass(frozen=True, slots=True)
class Reader:
    """What the client says of its own reading.

    Attributes:
        kernel: True where arrivals are the kernel's stamps, so that no delay of this
            process is in them.
        delay_ms: Mean time from the kernel's stamp to the read.
        limited: True where the client says that it could not keep up.
    """

    kernel: bool
    delay_ms: float | None
    limited: bool


def reader(view: CellView) -> Reader | None:
    """Return what the client said of itself; None where it said nothing."""
    health = view.cell.client if view.cell is not None else None
    if health is None:
        return None
    return Reader(
        kernel=stamped_by_kernel(health),
        delay_ms=health.delay_ms.mean if health.delay_ms is not None else None,
        limited=health.verdict == "limited",
    )


def stamped_by_engine(view: CellView) -> bool:
    """Whether all of the frontend lies between the server's own TPOT and ours."""
    return view.run.engine in _BY_ENGINE


def stamper(view: CellView) -> str:
    """Return who stamps a token for the server's own TPOT."""
    return "engine" if stamped_by_engine(view) else "frontend"


def lost_before_us(view: CellView) -> bool:
    """Whether TPOT grew between the server's own stamp and the kernel's.

    Arrivals are stamped by the kernel, next to none waited for a read, and still the
    client's TPOT is above the server's by more than voids a cell. On the server's own
    machine nothing but the frontend, or its sending, lies between the two.
    """
    result, health = view.result, view.cell.client if view.cell is not None else None
    if result is None or health is None or result.client_tpot_error_pct is None:
        return False
    tpot = result.server_tpot_ms
    if not tpot or not read_at_once(health, tpot):
        return False
    return result.client_tpot_error_pct > GAP_VOID_PCT


def when_void(view: CellView) -> str | None:
    """Return what to measure instead of a void cell; None where nothing is special."""
    if not lost_before_us(view):
        return None
    mine, result = reader(view), view.result
    assert mine is not None
    assert result is not None
    text = (
        f"{result.client_tpot_error_pct:.0f} % of TPOT was lost between the"
        f" {stamper(view)}'s stamp of a token and the kernel's stamp of its arrival;"
        f" the client read {mine.delay_ms:.2g} ms after the kernel, so it is not the"
        " client: on one machine that is the frontend's sending"
    )
    telemetry = result.telemetry
    cpu = (telemetry.process_cpu_pct if telemetry is not None else {}).get("api-server")
    if cpu is not None:
        text += f" (its process used {cpu:.0f} % of a core)"
    return (
        f"{text}. Give the API server cores of its own (cpus in the recipe), or more"
        " processes (--api-server-count of vLLM), and repeat the cell (stepscope run):"
        " where the gap closes, it was the frontend."
    )
