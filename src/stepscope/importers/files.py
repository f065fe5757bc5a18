"""Reads foreign files: plain or gzip, with errors that name the file."""

import gzip
import zlib
from collections.abc import Iterator
from pathlib import Path

from stepscope.errors import ArchiveError, RecipeError

_PIECE_BYTES = 1 << 22
_GZIP_MAGIC = b"\x1f\x8b"


def existing(path: Path, named_by: str = "") -> Path:
    """Return ``path``.

    Args:
        path: A file or folder.
        named_by: The key that names it, such as ``import.toml: log.file``.

    Raises:
        RecipeError: It does not exist.
    """
    if not path.exists():
        raise RecipeError(
            named_by or str(path),
            f"names {path}, which does not exist" if named_by else "does not exist",
            "",
            "Check the path",
        )
    return path


def pieces(path: Path) -> Iterator[bytes]:
    """Yield a file's bytes, unpacked where it is gzip, without holding all of it.

    Raises:
        ArchiveError: The gzip stream is cut short or damaged.
    """
    try:
        with path.open("rb") as raw:
            packed = raw.read(2) == _GZIP_MAGIC
            raw.seek(0)
            stream = gzip.GzipFile(fileobj=raw) if packed else raw
            while piece := stream.read(_PIECE_BYTES):
                yield piece
    except EOFError as error:
        raise damaged(path, "the gzip stream is cut short") from error
    except (gzip.BadGzipFile, zlib.error) as error:
        raise damaged(path, f"the gzip stream is damaged ({error})") from error
    except IsADirectoryError as error:
        raise RecipeError(str(path), "is a folder", "a file") from error


def read_bytes(path: Path) -> bytes:
    """Return a file's bytes, unpacked where it is gzip."""
    return b"".join(pieces(path))


def read_text(path: Path) -> str:
    """Return a file's text; what is no UTF-8 becomes the replacement character."""
    return read_bytes(path).decode("utf-8", "replace")


def damaged(path: Path, what: str) -> ArchiveError:
    """Return the error for an input file that can not be read."""
    return ArchiveError(str(path), what, "", "Copy the file again, or leave it out")


def plain_suffix(path: Path) -> str:
    """Return the suffix without ``.gz``: ``.json`` for ``a.json.gz``."""
    return path.with_suffix("").suffix if path.suffix == ".gz" else path.suffix
