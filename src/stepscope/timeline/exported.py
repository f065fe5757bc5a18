"""Tables of an nsys export as columns, whatever its schema lacks."""

import re
import sqlite3
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from stepscope.timeline.columns import I64, Bool
from stepscope.timeline.sqlitepages import Pages
from stepscope.timeline.sqliterows import DamagedError, Rows

#: Some rows: columns by name.
Batch = dict[str, I64]
#: Rows that SQLite is asked for at a time.
_MANY = 5_000
#: Columns beyond are so many that decoding the types before them costs more.
_FARTHEST = 200
#: Types of columns in which SQLite keeps whole numbers as integers and returns reals.
_REAL = re.compile("REAL|FLOA|DOUB", re.IGNORECASE)


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
        said = text and text[1]
        root = self._root(table, {*stored, *(() if text is None else ("text",))})
        if root is None:
            for some in self._asked(table, stored, said, ""):
                yield _batch(some, stored, wanted, absent)
            return
        places = [has.index(name) for name in stored]
        for rows in self.pages.rows(root, places, text, n_needed=2):
            yield _batch(rows, stored, wanted, absent)
            if rows.spilled:
                where = f"rowid IN ({', '.join(map(str, rows.spilled))}) AND "
                self._expect(table, f"{where}TRUE", len(rows.spilled))
                for some in self._asked(table, stored, said, where):
                    yield _batch(some, stored, wanted, absent)

    def _root(self, table: str, wanted: set[str]) -> int | None:
        """Return where a table begins; None where its pages do not say what is in it.

        Then SQLite itself must be asked: a view, a virtual table, one without row
        ids, columns that it computes or keeps elsewhere (those of a key, of defaults
        for rows from before the column, of reals kept as integers), texts of UTF-16.
        """
        query = "SELECT rootpage FROM sqlite_master WHERE type = 'table' AND name = ?"
        (root,) = self.db.execute(query, (table,)).fetchone() or (None,)
        if not root or not self.pages.holds_rows(root):
            return None
        rows = self.db.execute(f"PRAGMA table_xinfo({table})").fetchall()
        for place, name, kind, _, default, key, hidden in rows:
            if hidden or name.lower() == "rowid":
                return None
            if name not in wanted:
                continue
            if key or default is not None or place > _FARTHEST or _REAL.search(kind):
                return None
        return int(root) if self.pages.is_utf8 or "text" not in wanted else None

    def _expect(self, table: str, where: str, n: int) -> None:
        """Refuse rows that SQLite does not find again by their ids."""
        query = f"SELECT count(*) FROM {table} WHERE {where}"  # noqa: S608  # names of this package, and numbers
        (found,) = self.db.execute(query).fetchone()
        if found != n:
            raise DamagedError(f"{found} of {n} rows are found by their ids")

    def _asked(
        self,
        table: str,
        stored: list[str],
        texts: Mapping[bytes, int] | None,
        where: str,
    ) -> Iterator[Rows]:
        """Yield rows as SQLite itself hands them over."""
        names = ", ".join(f'"{name}"' for name in stored)
        query = (
            f"SELECT {names}, {'NULL' if texts is None else 'text'} FROM {table}"  # noqa: S608  # names of this package and of the schema
            f" WHERE {where}start IS NOT NULL AND end IS NOT NULL"
        )
        cursor = self.db.execute(query)
        while rows := cursor.fetchmany(_MANY):
            *columns, said = zip(*rows, strict=True)
            if not all(v is None or isinstance(v, int) for c in columns for v in c):
                raise DamagedError("a value that must be an integer is none")
            if not all(t is None or isinstance(t, str) for t in said):
                raise DamagedError("a value that must be text is none")
            numbers = [-1 if t is None or texts is None else texts[t.encode()]
                       for t in said]  # fmt: skip
            yield Rows(
                values=[np.array([v or 0 for v in c], dtype=np.int64) for c in columns],
                null=[
                    np.array([v is None for v in c], dtype=np.bool_) for c in columns
                ],
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
