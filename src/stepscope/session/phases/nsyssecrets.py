"""Secrets in what nsys writes: it keeps the environment of every process it follows.

An export can be cleaned. A report can not: it is compressed, and of an unknown form.
"""

import re
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path

from stepscope.archive.secrets import REMOVED, environment_without_secrets

#: A shorter value is no secret of anybody's, and stands in many other words.
_LEAST = 8
_PIECE_BYTES = 1 << 22
#: Variables between zero bytes, as the kernel has them, or as nsys joins them.
_OF_KERNEL = re.compile(r"(?:^|(?<=\0))([A-Za-z_]\w*)=([^\0]*)")
_JOINED = re.compile(r"(?:^|(?<=;))([A-Za-z_]\w*)=([^;]*)")


def secrets_of(environment: Mapping[str, str], key: str | None) -> dict[str, str]:
    """Return the variables whose values a run must not keep.

    Args:
        environment: What a server inherits.
        key: The variable that holds the client's key; None: there is none.
    """
    shown = environment_without_secrets(dict(environment))
    return {
        name: value
        for name, value in environment.items()
        if value and (shown[name] != value or name == key)
    }


def without_secrets(sqlite: Path, known: Mapping[str, str]) -> tuple[str, ...]:
    """Remove secrets from an export, in place.

    Args:
        sqlite: The export.
        known: Variables and their secret values; others are known by their names.

    Returns:
        The names of the variables whose values were in it, sorted.

    Raises:
        sqlite3.DatabaseError: It is damaged, or no database.
    """
    names: set[str] = set()

    def cleaned(raw: bytes) -> bytes:
        text = raw.decode("utf-8", "surrogateescape")
        return _cleaned(text, known, names).encode("utf-8", "surrogateescape")

    with closing(sqlite3.connect(sqlite, isolation_level=None)) as db:
        db.text_factory = bytes
        # What is overwritten would otherwise stay in the file's free space.
        db.execute("PRAGMA secure_delete = ON")
        db.execute("PRAGMA journal_mode = OFF")
        for table, column in list(_texts(db)):
            rows = db.execute(
                f'SELECT rowid, "{column}" FROM "{table}"'  # noqa: S608  # names of its own schema
                f" WHERE typeof(\"{column}\") = 'text'"
            )
            changed = [(new, i) for i, old in rows if (new := cleaned(old)) != old]
            db.executemany(
                f'UPDATE "{table}" SET "{column}" = CAST(? AS TEXT) WHERE rowid = ?',  # noqa: S608  # names of its own schema
                changed,
            )
        # nsys itself leaves copies in the file's free space while it exports.
        if holds_any(sqlite, known):
            names.update(known)
            db.execute("VACUUM")
    return tuple(sorted(names))


def holds_any(path: Path, known: Mapping[str, str]) -> bool:
    """Tell whether the bytes of a file hold one of the secret values."""
    values = [v.encode() for v in known.values() if len(v) >= _LEAST]
    longest = max(map(len, values), default=0)
    seen = b""
    with path.open("rb") as stream:
        while values and (piece := stream.read(_PIECE_BYTES)):
            seen = seen[-longest:] + piece
            if any(value in seen for value in values):
                return True
    return False


def _texts(db: sqlite3.Connection) -> Iterator[tuple[str, str]]:
    """Yield table and column of all text."""
    tables = db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
    for (table,) in tables.fetchall():
        name = table.decode()
        for row in db.execute(f'PRAGMA table_info("{name}")').fetchall():
            if b"INT" not in row[2].upper() and row[2].upper() != b"REAL":
                yield name, row[1].decode()


def _cleaned(text: str, known: Mapping[str, str], names: set[str]) -> str:
    def variable(hit: re.Match[str]) -> str:
        name, value = hit[1], hit[2]
        shown = environment_without_secrets({name: value})[name]
        if value.strip('"') and (shown != value or name in known):
            names.add(name)
            return f"{name}={REMOVED}"
        return hit[0]

    if "=" in text:
        form = _OF_KERNEL if "\0" in text else _JOINED
        text = form.sub(variable, text)
    for name, value in known.items():
        if len(value) >= _LEAST and value in text:
            names.add(name)
            text = text.replace(value, REMOVED)
    return text
