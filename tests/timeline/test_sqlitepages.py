"""Pages of a database decode to what SQLite says of them, or are refused."""

import sqlite3
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings, strategies as st
from tests.timeline.planting import TRACES

from stepscope.errors import ArchiveError
from stepscope.timeline.exported import Export
from stepscope.timeline.load import load_trace
from stepscope.timeline.sqlitepages import Pages
from stepscope.timeline.sqliterows import DamagedError

NSYS = TRACES / "nsys_2xh100_train" / "before.sqlite"
EDGES = [0, 1, 2, -1, 127, 128, -128, -129, 2**15, 2**23, -(2**23) - 1, 2**31, 2**47]
NUMBER = st.none() | st.sampled_from(EDGES) | st.integers(-(2**63), 2**63 - 1)
TEXT = st.none() | st.text(max_size=90) | st.just("long " * 900)
ROW = st.tuples(NUMBER, NUMBER, st.binary(max_size=70), TEXT, NUMBER)


def read(path: Path, table: str, wanted: dict[str, int]) -> list[tuple[object, ...]]:
    """Return a table's rows as our reader sees them, text as it was."""
    numbers: dict[bytes, int] = {}

    class Texts(dict[bytes, int]):
        def __missing__(self, key: bytes) -> int:
            return numbers.setdefault(key, len(numbers))

    with closing(sqlite3.connect(path)) as db, path.open("rb", buffering=0) as file:
        export = Export(db, Pages(file), frozenset({table}))
        found: list[tuple[object, ...]] = []
        for batch in export.batches(table, wanted, Texts()):
            said = [*numbers]
            names = ("start", "end", *wanted)
            columns = [batch[name].tolist() for name in names]
            texts = [None if i < 0 else said[i].decode() for i in batch["text"]]
            found += zip(*columns, texts, strict=True)
    return found


@settings(max_examples=60, deadline=None)
@given(
    st.lists(ROW, max_size=60),
    st.sampled_from([512, 1024, 4096]),
    st.integers(1, 40),
)
def test_rows_are_what_sqlite_says(
    rows: list[tuple[object, ...]], page_size: int, repeat: int
) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "t.sqlite"
        with closing(sqlite3.connect(path)) as db:
            db.execute(f"PRAGMA page_size = {page_size}")
            db.execute("CREATE TABLE t (start, end, other, text, id)")
            db.executemany("INSERT INTO t VALUES (?, ?, ?, ?, ?)", rows * repeat)
            # Rows from before a column was added do not hold it.
            db.execute("ALTER TABLE t ADD COLUMN late")
            db.execute("INSERT INTO t VALUES (7, 8, NULL, 'x', 9, 10)")
            db.execute("DELETE FROM t WHERE rowid % 5 = 2")
            db.commit()
            told = db.execute(
                "SELECT start, end, coalesce(id, -3), coalesce(late, -4), text FROM t"
                " WHERE start IS NOT NULL AND end IS NOT NULL"
            ).fetchall()
        found = read(path, "t", {"id": -3, "late": -4})
    assert sorted(map(repr, found)) == sorted(map(repr, told))


@pytest.mark.parametrize(
    "table",
    ["NVTX_EVENTS", "CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_RUNTIME"],
)
def test_a_real_export_is_what_sqlite_says(table: str) -> None:
    text = "text" if table == "NVTX_EVENTS" else "NULL"
    extra = {"globalTid": -1} if table != "CUPTI_ACTIVITY_KIND_KERNEL" else {
        "graphNodeId": -1, "deviceId": -1, "shortName": -1}  # fmt: skip
    columns = ", ".join(f"coalesce({name}, -1)" for name in extra)
    with closing(sqlite3.connect(f"file:{NSYS}?immutable=1", uri=True)) as db:
        told = db.execute(
            f"SELECT start, end, {columns}, {text} FROM {table} WHERE end IS NOT NULL"
        ).fetchall()
    assert read(NSYS, table, extra) == told


@pytest.mark.parametrize("value", [1.5, "12", b"x"])
def test_a_stamp_that_is_no_integer_is_refused(value: object, tmp_path: Path) -> None:
    path = tmp_path / "t.sqlite"
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE t (start, end)")
        db.execute("INSERT INTO t VALUES (?, 7)", (value,))
        db.commit()
    with pytest.raises(DamagedError, match="integer"):
        read(path, "t", {})


def test_a_table_that_was_never_filled_has_no_rows(tmp_path: Path) -> None:
    path = tmp_path / "t.sqlite"
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE t (start, end, text)")
        db.commit()
    assert read(path, "t", {"late": 1}) == []


@settings(max_examples=60, deadline=None)
@given(st.integers(0, NSYS.stat().st_size - 9), st.binary(min_size=1, max_size=8))
def test_any_bytes_give_traces_or_one_line(at: int, new: bytes) -> None:
    data = bytearray(NSYS.read_bytes())
    # The schema's own pages are SQLite's to read.
    data[at : at + len(new)] = new
    with TemporaryDirectory() as folder:
        path = Path(folder) / "t.sqlite"
        path.write_bytes(data)
        try:
            said = str(len(load_trace(path)))
        except ArchiveError as error:
            said = str(error)
    assert said != "0"
    assert "\n" not in said
