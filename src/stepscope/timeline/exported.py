"""Tables of an nsys export as columns, whatever its schema lacks."""

import sqlite3
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from stepscope.timeline.columns import I64, Bool
from stepscope.timeline.sqlitepages import DamagedError, Pages, Rows

#: Some rows: columns by name.


Batch = dict[str, I64]


@dataclass(frozen=True, slots=True)
class Export:
    """An nsys export that is open twice: as a database, and as its pages."""

    db: sqlite3.Connection
    pages: Pages
    tables: frozenset[str]

    def columns(self, table: str) -> list[str]:
        """Return the names of a table's columns, in their order."""
        return [row[1] for row in self.db.execute(f"PRAGMA table_info({table})")]

    def dicts(self, table: str) -> list[dict[str, object]]:
        """Return all rows of a small table by column; none where there is no table."""
        if table not in self.tables:
            return []
        rows = self.db.execute(f"SELECT * FROM {table}")  # noqa: S608  # a name of this package
        names = [column[0] for column in rows.description]
        return [dict(zip(names, row, strict=True)) for row in rows]

    def batches(
        self,
        table: str,
        wanted: Mapping[str, int],
        texts: Mapping[bytes, int] | None = None,
    ) -> Iterator[Batch]:
        """Yield a table's rows as they lie; rows without an end are left out.

        Args:
            table: Its name; nothing is yielded where there is none.
            wanted: Columns of integers, and what stands for null and for columns that
                the schema lacks; ``start`` and ``end`` come with them.
            texts: The number of each text of a column of that name, if that is wanted
                too; -1 where a row has none.

        Raises:
            DamagedError: It has no start and end, or is not as SQLite writes it.
        """
        if table not in self.tables:
            return
        has = self.columns(table)
        if not {"start", "end"} <= set(has):
            raise DamagedError(f"{table} has no start and end")
        stored = [name for name in ("start", "end", *wanted) if name in has]
        absent = {n: value for n, value in wanted.items() if n not in has}
        text = None
        if texts is not None and "text" in has:
            text = has.index("text"), texts
        elif texts is not None:
            absent["text"] = -1
        query = "SELECT rootpage FROM sqlite_master WHERE name = ?"
        (root,) = self.db.execute(query, (table,)).fetchone()
        places = [has.index(name) for name in stored]
        for rows in self.pages.rows(root, places, text, n_needed=2):
            yield _batch(rows, stored, wanted, absent)
            if rows.spilled:
                whole = self._whole(table, stored, text and text[1], rows.spilled)
                yield _batch(whole, stored, wanted, absent)

    def _whole(
        self,
        table: str,
        stored: list[str],
        texts: Mapping[bytes, int] | None,
        ids: list[int],
    ) -> Rows:
        """Ask SQLite for rows that lie on more than one page."""
        names = ", ".join(f'"{name}"' for name in stored) + ", "
        names += "NULL" if texts is None else "text"
        query = (
            f"SELECT {names} FROM {table} WHERE rowid = ?"  # noqa: S608  # names of this package and of the schema
            " AND start IS NOT NULL AND end IS NOT NULL"
        )
        rows = [row for i in ids for row in self.db.execute(query, (i,))]
        *known, said = list(zip(*rows, strict=True)) or [()] * (len(stored) + 1)
        numbers = [-1 if t is None or texts is None else texts[str(t).encode()]
                   for t in said]  # fmt: skip
        return Rows(
            values=[np.array([v or 0 for v in c], dtype=np.int64) for c in known],
            null=[np.array([v is None for v in c], dtype=np.bool_) for c in known],
            text=None if texts is None else np.array(numbers, dtype=np.int64),
            spilled=[],
        )


def _batch(
    rows: Rows, stored: list[str], wanted: Mapping[str, int], absent: Mapping[str, int]
) -> Batch:
    found = dict(zip(stored, rows.values, strict=True))
    for name, values, null in zip(stored, rows.values, rows.null, strict=True):
        if null is not None and null.any():
            values[null] = wanted[name]
    if rows.text is not None:
        found["text"] = rows.text
    for name, value in absent.items():
        found[name] = np.full(len(rows.values[0]), value, dtype=np.int64)
    return found


def taken(batch: Batch, rows: Bool) -> Batch:
    """Return the rows that are true."""
    if rows.all():
        return batch
    return {name: column[rows] for name, column in batch.items()}
