"""How a session ended."""

from pathlib import Path

import msgspec


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What was measured, and what went wrong, one line each."""

    path: Path
    n_measured: int = 0
    failures: tuple[str, ...] = ()
    interrupted: bool = False
