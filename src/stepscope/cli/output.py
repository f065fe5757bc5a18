"""Files that a command writes: whole, or not at all."""

from pathlib import Path

from stepscope.archive.atomic import write_bytes


def write_whole(path: Path, data: str | bytes) -> None:
    """Write a page or a recipe; what stood there stays until the new one is whole.

    A device or a pipe, such as /dev/stdout, is written to as it is.

    Raises:
        OSError: With the path in it.
    """
    raw = data.encode("utf-8") if isinstance(data, str) else data
    if path.exists() and not path.is_file():
        path.write_bytes(raw)
    else:
        write_bytes(path.resolve(), raw)
