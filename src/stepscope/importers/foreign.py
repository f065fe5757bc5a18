"""What an importer returns: a run, and where its raw bytes lie."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from stepscope.run.run import Run


@dataclass(frozen=True, slots=True, kw_only=True)
class Foreign:
    """One foreign result, read.

    Attributes:
        run: The run; paths in it are absolute.
        root: The folder that ``files`` are relative to.
        files: Every file that was read.
        logs: Launch name -> its server log, plain or gzip.
        bodies: (cell name, ``before`` or ``after``) -> its /metrics body.
    """

    run: Run
    root: Path
    files: tuple[Path, ...]
    logs: Mapping[str, Path] = field(default_factory=dict)
    bodies: Mapping[tuple[str, str], Path] = field(default_factory=dict)
