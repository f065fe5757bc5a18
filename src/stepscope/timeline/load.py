"""One way to open a trace, whatever it is."""

from pathlib import Path

from stepscope.errors import ArchiveError, RecipeError
from stepscope.timeline.columns import Trace
from stepscope.timeline.kineto import load_kineto
from stepscope.timeline.nsys import load_nsys

_SQLITE = b"SQLite format 3\x00"


def load_trace(path: Path) -> list[Trace]:
    """Read a torch profiler JSON(.gz) or an nsys SQLite export.

    Returns:
        One trace a device, ascending.

    Raises:
        RecipeError: The path does not exist or is no file.
        ArchiveError: It is damaged, or of an unknown form.
    """
    if path.is_dir():
        raise RecipeError(str(path), "is a folder", "expected a trace", "Name its file")
    if not path.is_file():
        raise RecipeError(str(path), "no such file", "expected a trace")
    with path.open("rb") as stream:
        magic = stream.read(16)
    if magic == _SQLITE:
        return load_nsys(path)
    if magic[:2] == b"\x1f\x8b" or magic.lstrip()[:1] in (b"{", b"["):
        return load_kineto(path)
    hint = ""
    if path.suffix == ".nsys-rep":
        hint = f"Export it: nsys export --type sqlite {path.name}"
    raise ArchiveError(
        str(path),
        "not a trace that can be read",
        "expected torch profiler JSON (plain or gzip) or an nsys SQLite export",
        hint,
    )
