"""Whatever a database may be: rows are what SQLite says, or one line says why not."""

import sqlite3
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings, strategies as st
from tests.timeline.planting import TRACES
from tests.timeline.test_sqlitepages import read

from stepscope.errors import ArchiveError
from stepscope.timeline.load import load_trace
from stepscope.timeline.sqliterows import DamagedError

NSYS = TRACES / "nsys_2xh100_train" / "before.sqlite"
N = 1200
#: Statements that make a table ``t`` of start, end, id and text, and may be unlike
#: what an export has.
FORMS: dict[str, tuple[str, ...]] = {
    "plain": ("CREATE TABLE t (start, end, id, text)",),
    "typed": ("CREATE TABLE t (start INTEGER NOT NULL, end INT, id INT, text TEXT)",),
    "without rowid": (
        "CREATE TABLE t (id INT, start INT, end INT, text TEXT,"
        " PRIMARY KEY (start, end)) WITHOUT ROWID",
    ),
    "utf-16": ("PRAGMA encoding = 'UTF-16le'", "CREATE TABLE t (start, end, id, text)"),
    "utf-16 of the other order": (
        "PRAGMA encoding = 'UTF-16be'", "CREATE TABLE t (start, end, id, text)"
    ),
    "row id": ("CREATE TABLE t (start INTEGER PRIMARY KEY, end, id, text)",),
    "row id of another column": (
        "CREATE TABLE t (number INTEGER PRIMARY KEY, start, end, id, text)",
    ),
    "an unwanted column called rowid": (
        "CREATE TABLE t (rowid, start, end, id, text)",
    ),
    "a column made of others": (
        "CREATE TABLE t (start, twice AS (start * 2) STORED, once AS (start),"
        " end, id, text)",
    ),
    "kept whole": ("PRAGMA auto_vacuum = 1", "CREATE TABLE t (start, end, id, text)"),
    "kept whole by steps": (
        "PRAGMA auto_vacuum = 2", "CREATE TABLE t (start, end, id, text)"
    ),
    "large pages": (
        "PRAGMA page_size = 65536", "CREATE TABLE t (start, end, id, text)"
    ),
    "small pages": ("PRAGMA page_size = 512", "CREATE TABLE t (start, end, id, text)"),
    "a view": (
        "CREATE TABLE u (start, end, id, text)",
        "CREATE VIEW t AS SELECT * FROM u",
        "CREATE TRIGGER into_u INSTEAD OF INSERT ON t BEGIN INSERT INTO u VALUES"
        " (new.start, new.end, new.id, new.text); END",
    ),
    "a trigger of the same name": (
        "CREATE TABLE t (start, end, id, text)",
        "CREATE TABLE u (a)",
        "CREATE TRIGGER t AFTER INSERT ON u BEGIN DELETE FROM u; END",
    ),
    "wide": (
        "CREATE TABLE t (start, "
        + ", ".join(f"c{i} DEFAULT 1234567" for i in range(90))
        + ", end, id, text)",
    ),
    "very wide": (
        "CREATE TABLE t (start, "
        + ", ".join(f"c{i}" for i in range(900))
        + ", end, id, text)",
    ),
    "wide on small pages": (
        "PRAGMA page_size = 512",
        "CREATE TABLE t (start, "
        + ", ".join(f"c{i} DEFAULT 'some text'" for i in range(60))
        + ", end, id, text)",
    ),
}  # fmt: skip


def filled(path: Path, *statements: str, n: int = N) -> None:
    """Make a table and fill it, delete some, fill it again."""
    with closing(sqlite3.connect(path)) as db:
        for statement in statements:
            db.execute(statement)
        rows = [
            (i * 977, i * 977 + 31, None if i % 7 == 0 else i % 300,
             None if i % 5 == 0 else "é" * (i % 40) + "long" * (600 * (i % 50 == 1)))
            for i in range(n)
        ]  # fmt: skip
        insert = "INSERT INTO t (start, end, id, text) VALUES (?, ?, ?, ?)"
        db.executemany(insert, rows)
        if "CREATE VIEW" not in " ".join(statements):
            db.execute("DELETE FROM t WHERE start % 4 = 1")
        db.executemany(
            insert, [(10**9 + a, 10**9 + b, c, d) for a, b, c, d in rows[:90]]
        )
        db.commit()


def told(path: Path, *columns: str) -> list[tuple[object, ...]]:
    names = ", ".join(("start", "end", *columns, "text"))
    with closing(sqlite3.connect(path)) as db:
        return db.execute(
            f"SELECT {names} FROM t WHERE start IS NOT NULL AND end IS NOT NULL"
        ).fetchall()


def same(path: Path) -> None:
    """Hold our reader to SQLite."""
    found, truth = read(path, "t", {"id": -3}), told(path, "coalesce(id, -3)")
    assert truth
    assert sorted(map(repr, found)) == sorted(map(repr, truth))


@pytest.mark.parametrize("form", FORMS)
def test_rows_are_what_sqlite_says_in_every_form(form: str, tmp_path: Path) -> None:
    path = tmp_path / "t.sqlite"
    filled(path, *FORMS[form])
    same(path)


@pytest.mark.parametrize("form", ["plain", "row id", "small pages"])
@pytest.mark.parametrize("default", ["5", "'text'", "7.5", "NULL"])
def test_rows_from_before_a_column_was_added_have_its_default(
    form: str, default: str, tmp_path: Path
) -> None:
    path = tmp_path / "t.sqlite"
    filled(path, *FORMS[form])
    with closing(sqlite3.connect(path)) as db:
        db.execute(f"ALTER TABLE t ADD COLUMN late DEFAULT {default}")
        db.execute("INSERT INTO t (start, end, late) VALUES (-5, -4, 9)")
        db.commit()
    if default in {"5", "NULL"}:
        truth = told(path, "coalesce(late, -3)")
        assert sorted(map(repr, read(path, "t", {"late": -3}))) == sorted(
            map(repr, truth)
        )
    else:
        with pytest.raises(DamagedError, match="integer"):
            read(path, "t", {"late": -3})


@pytest.mark.parametrize("n_reserved", [8, 32, 255])
def test_bytes_that_are_reserved_on_every_page_are_left_alone(
    n_reserved: int, tmp_path: Path
) -> None:
    path = tmp_path / "t.sqlite"
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA page_size = 1024")
        db.execute("PRAGMA user_version = 1")
        db.commit()
    page = bytearray(path.read_bytes())
    assert len(page) == 1024
    page[20] = n_reserved
    page[105:107] = (1024 - n_reserved).to_bytes(2, "big")
    path.write_bytes(page)
    filled(path, *FORMS["plain"])
    assert path.read_bytes()[20] == n_reserved
    same(path)


@pytest.mark.parametrize("value", [3.0, 1.5])
def test_stamps_of_a_column_of_reals_are_refused(value: float, tmp_path: Path) -> None:
    path = tmp_path / "t.sqlite"
    filled(path, "CREATE TABLE t (start REAL, end, id, text)", n=0)
    with closing(sqlite3.connect(path)) as db:
        db.execute("INSERT INTO t (start, end) VALUES (?, 8)", (value,))
        db.commit()
    with pytest.raises(DamagedError, match="integer"):
        read(path, "t", {})


@pytest.mark.parametrize("size", [512, 4096])
@pytest.mark.parametrize("long", [0, 2000])
@pytest.mark.parametrize("value", [b"", b"x", b"x" * 200, 0, 1, 77, 1.5])
def test_a_text_that_is_none_is_refused(
    value: object, long: int, size: int, tmp_path: Path
) -> None:
    path = tmp_path / "t.sqlite"
    make = "CREATE TABLE t (start, end, other, text)"
    filled(path, f"PRAGMA page_size = {size}", f"{make[:-1]}, id)", n=0)
    with closing(sqlite3.connect(path)) as db:
        row = "INSERT INTO t (start, end, other, text) VALUES (1, 2, ?, ?)"
        db.execute(row, ("o" * long, value))
        db.commit()
    with pytest.raises(DamagedError, match="text"):
        read(path, "t", {})


def test_a_virtual_table_is_read_by_sqlite(tmp_path: Path) -> None:
    path = tmp_path / "t.sqlite"
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE VIRTUAL TABLE t USING rtree_i32(number, start, end, +text)")
        db.executemany("INSERT INTO t VALUES (?, ?, ?, 'x')", [(1, 2, 3), (4, 5, 6)])
        db.commit()
    assert read(path, "t", {"number": -1}) == [(2, 3, 1, "x"), (5, 6, 4, "x")]


def test_changes_that_lie_in_a_log_beside_the_file_are_not_overlooked(
    tmp_path: Path,
) -> None:
    path = tmp_path / "t.sqlite"
    path.write_bytes(NSYS.read_bytes())
    n = len(load_trace(path)[0].ops)
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA wal_autocheckpoint = 0")
        db.execute("DELETE FROM CUPTI_ACTIVITY_KIND_KERNEL WHERE deviceId = 0")
        db.commit()
        with pytest.raises(ArchiveError, match=r"t\.sqlite-wal") as caught:
            load_trace(path)
        assert "\n" not in str(caught.value)
    # The last to close it brings them in.
    assert len(load_trace(path)[0].ops) < n


def test_a_file_that_was_left_in_mid_change_is_refused(tmp_path: Path) -> None:
    path, journal = tmp_path / "t.sqlite", tmp_path / "t.sqlite-journal"
    path.write_bytes(NSYS.read_bytes())
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA cache_size = 4")
        db.execute("DELETE FROM CUPTI_ACTIVITY_KIND_KERNEL")
        left, half = journal.read_bytes(), path.read_bytes()
    path.write_bytes(half)
    journal.write_bytes(left)
    with pytest.raises(ArchiveError, match=r"t\.sqlite-journal"):
        load_trace(path)
    journal.write_bytes(bytes(512))
    path.write_bytes(NSYS.read_bytes())
    assert load_trace(path), "a journal that was ended is no change"


@pytest.mark.parametrize("at", [0, 7, 8, 40, 4090, 4096, 65535])
def test_a_cell_that_lies_outside_its_page_is_refused(at: int, tmp_path: Path) -> None:
    path = tmp_path / "t.sqlite"
    filled(path, "CREATE TABLE t (start, end, id, text)")
    data = bytearray(path.read_bytes())
    # A leaf of the table, and the pointers of some of its cells.
    leaf = next(
        i
        for i in range(4096 * 3, len(data), 4096)
        if data[i] == 13 and data[i + 4] > 20
    )
    data[leaf + 8 + 10 : leaf + 8 + 12] = at.to_bytes(2, "big")
    path.write_bytes(data)
    with pytest.raises(DamagedError):
        read(path, "t", {"id": -3})


def test_pages_that_lead_to_one_page_twice_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "t.sqlite"
    filled(path, "CREATE TABLE t (start, end, id, text)")
    with closing(sqlite3.connect(path)) as db:
        query = "SELECT rootpage FROM sqlite_master WHERE name = 't'"
        (root,) = db.execute(query).fetchone()
    data = bytearray(path.read_bytes())
    page = (root - 1) * 4096
    assert data[page] == 5
    first, second = (
        page + int.from_bytes(data[page + 12 + 2 * i : page + 14 + 2 * i], "big")
        for i in (0, 1)
    )
    data[second : second + 4] = data[first : first + 4]
    path.write_bytes(data)
    with pytest.raises(DamagedError, match="lead"):
        read(path, "t", {"id": -3})


def test_texts_that_are_no_utf8_are_shown_as_well_as_they_can_be(
    tmp_path: Path,
) -> None:
    path = tmp_path / "t.sqlite"
    path.write_bytes(NSYS.read_bytes())
    with closing(sqlite3.connect(path)) as db:
        for text in ("ff41", "ff" * 5000):
            db.execute(
                "UPDATE NVTX_EVENTS SET text = CAST(x'" + text + "' AS TEXT) WHERE"
                " rowid IN (SELECT rowid FROM NVTX_EVENTS WHERE end IS NOT NULL AND"
                " text NOT LIKE '%\ufffd%' AND length(text) < 500"
                f" ORDER BY rowid {'DESC' if len(text) > 9 else ''} LIMIT 1)"
            )
        db.execute(
            "UPDATE StringIds SET value = CAST(x'ff42' AS TEXT) WHERE id = (SELECT"
            " shortName FROM CUPTI_ACTIVITY_KIND_KERNEL LIMIT 1)"
        )
        db.commit()
    names = set(load_trace(path)[0].names)
    assert {"\ufffdA", "\ufffd" * 5000, "\ufffdB"} <= names


def one_long(path: Path) -> tuple[bytearray, int]:
    """Write a table with one row that spills; return it and where its root begins."""
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE t (start, end, id, text)")
        for i in range(900):
            row = "INSERT INTO t (rowid, start, end, text) VALUES (?, 1, 2, ?)"
            db.execute(row, (i + 1, "long" * 3000 if i == 70 else "short" * 9))
        db.commit()
    data = bytearray(path.read_bytes())
    assert data[4096] == 5
    return data, 4096


def test_row_ids_that_do_not_ascend_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "t.sqlite"
    data, _ = one_long(path)
    # The long row's cell: its 12,008 bytes, row 71, a list of seven bytes of types.
    at = data.index(b"\xdd\x68\x47\x07")
    data[at + 2] = 7
    path.write_bytes(data)
    with pytest.raises(DamagedError, match="ascend"):
        read(path, "t", {})


def test_long_rows_that_their_ids_do_not_lead_to_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "t.sqlite"
    data, root = one_long(path)
    for i in range(int.from_bytes(data[root + 3 : root + 5], "big")):
        at = root + 12 + 2 * i
        # The key of each child but the last, as small as it can be.
        cell = root + int.from_bytes(data[at : at + 2], "big")
        long = data[cell + 4] >= 128
        data[cell + 4 : cell + 5 + long] = b"\x80\x01" if long else b"\x01"
    path.write_bytes(data)
    with pytest.raises(DamagedError, match="by their ids"):
        read(path, "t", {})


@pytest.mark.parametrize(
    "name",
    ["nsys_2xh100_train/before.sqlite", "nsys_rtx3060_graph_granularity.sqlite"],
)
def test_every_column_of_integers_of_a_real_export_is_what_sqlite_says(
    name: str,
) -> None:
    path = TRACES / name
    n_columns = 0
    with closing(sqlite3.connect(f"file:{path}?immutable=1", uri=True)) as db:
        tables = db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        for (table,) in tables.fetchall():
            has = [row[1] for row in db.execute(f"PRAGMA table_info({table})")]
            if not {"start", "end"} <= set(has):
                continue
            kinds = {
                column: {
                    kind
                    for (kind,) in db.execute(
                        f'SELECT DISTINCT typeof("{column}") FROM {table}'
                    )
                }
                for column in has
            }
            whole = [c for c in has if kinds[c] <= {"integer", "null"}]
            wanted = {c: -9 for c in whole if c not in {"start", "end"}}
            asked = ", ".join(f'coalesce("{c}", -9)' for c in wanted)
            said = db.execute(
                f"SELECT start, end{', ' * bool(wanted)}{asked},"
                f" {'text' if 'text' in has else 'NULL'} FROM {table}"
                " WHERE start IS NOT NULL AND end IS NOT NULL"
            ).fetchall()
            assert read(path, table, wanted) == said
            n_columns += len(wanted) if said else 0
    assert n_columns > 50


NUMBERS = st.none() | st.integers(-(2**63), 2**63 - 1) | st.integers(-200, 200)
DECLARED = st.sampled_from(["", "INT", "INTEGER NOT NULL DEFAULT 7", "BIGINT", "BLOB"])


@settings(max_examples=40, deadline=None)
@given(
    st.lists(DECLARED, max_size=12),
    st.lists(st.lists(NUMBERS, min_size=12, max_size=12), min_size=1, max_size=40),
    st.sampled_from(["", "INTEGER PRIMARY KEY", "INT PRIMARY KEY"]),
    st.sampled_from(["", "WITHOUT ROWID"]),
    st.sampled_from([512, 4096, 65536]),
    st.sampled_from(["UTF-8", "UTF-16le"]),
    st.sampled_from(["", "t" * 300, "é"]),
)
def test_tables_of_any_columns_are_what_sqlite_says(
    declared: list[str],
    rows: list[list[int | None]],
    key: str,
    ending: str,
    page_size: int,
    encoding: str,
    text: str,
) -> None:
    if not key:
        ending = ""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "t.sqlite"
        with closing(sqlite3.connect(path)) as db:
            db.execute(f"PRAGMA page_size = {page_size}")
            db.execute(f"PRAGMA encoding = '{encoding}'")
            columns = "".join(f", c{i} {kind}" for i, kind in enumerate(declared))
            db.execute(
                f"CREATE TABLE t (id INT{columns}, start {key}, text, end) {ending}"
            )
            names = [f"c{i}" for i in range(len(declared))]
            for i, row in enumerate(rows * 5):
                values = [v if v is not None else 3 for v in row[: len(names)]]
                db.execute(
                    f"INSERT INTO t VALUES ({', '.join('?' * (len(names) + 4))})",
                    (row[-1], *values, i * 129 - 7, text or None, row[-2]),
                )
            db.commit()
        wanted = {"id": -3} | dict.fromkeys(names, -3)
        truth = told(path, *(f"coalesce({name}, -3)" for name in wanted))
        found = read(path, "t", wanted)
    assert sorted(map(repr, found)) == sorted(map(repr, truth))
