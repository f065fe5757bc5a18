from pathlib import Path

import pytest

from stepscope.archive.query import query
from stepscope.archive.writer import RunWriter
from stepscope.errors import RecipeError
from stepscope.run.frames import frame
from stepscope.run.run import Run, Timeline

GOLDEN = Path(__file__).parents[1] / "data" / "runs" / "format1"


@pytest.mark.parametrize(
    ("sql", "rows"),
    [
        ("SELECT engine, gpu, tp FROM runs", ("vllm", "NVIDIA H200", 1)),
        ("SELECT launch, ready FROM launches", ("baseline-l0", True)),
        ("SELECT count(*), max(concurrency) FROM cells", (2, 2)),
        ("SELECT count(*), sum(output_tokens) FROM requests", (6, 1536)),
        ("SELECT count(*) FROM samples WHERE power_w > 100", (56,)),
        ("SELECT count(cpu_busy_ns) FROM host_samples", (56,)),
        ("SELECT role FROM process_samples", ("engine-core",)),
        ("SELECT name, value FROM metrics WHERE moment = 'sampled'",
         ("vllm:num_requests_running", 1.0)),
        ("SELECT count(*) FROM log_events WHERE kind = 'stats'", (3,)),
        ("SELECT code FROM findings", ("no-repeats",)),
        ("SELECT count(*), sum(n_ok), max(output_tokens_per_s) > 0 FROM cell_figures",
         (2, 6, True)),
        ("SELECT len(chunk_offsets_ns) = n_chunks FROM requests LIMIT 1", (True,)),
    ],
)  # fmt: skip
def test_every_table_answers(sql: str, rows: tuple[object, ...]) -> None:
    assert query(sql, [GOLDEN])[1] == [rows]


def test_latencies_are_columns() -> None:
    columns, rows = query(
        "SELECT cell, avg(ttft_ms) AS ttft, avg(tpot_ms) AS tpot FROM requests"
        " GROUP BY cell ORDER BY cell",
        [GOLDEN],
    )
    assert columns == ("cell", "ttft", "tpot")
    assert rows[0] == ("c1_0", pytest.approx(24.2235, abs=1e-4), pytest.approx(4.14639))


def test_all_tables_are_listed_and_nothing_else() -> None:
    _, rows = query("SHOW TABLES", [GOLDEN])
    names = {row[0] for row in rows}
    assert {"runs", "launches", "cells", "requests", "samples", "findings"} <= names


def test_two_runs_with_one_id_are_told_apart(tmp_path: Path) -> None:
    run = Run(id="same", engine="url", timeline=Timeline(kind="monotonic"))
    for name in ("a", "b"):
        RunWriter.create(tmp_path / name, run).close(complete=True)
    _, rows = query("SELECT run FROM runs", [tmp_path / "a", tmp_path / "b"])
    assert rows == [("a",), ("b",)]


def test_a_killed_run_answers(tmp_path: Path) -> None:
    run = Run(id="r", engine="url", timeline=Timeline(kind="monotonic"))
    writer = RunWriter.create(tmp_path / "r", run)
    (writer.cell_dir("a-c1-r0") / "requests-0.journal").write_bytes(
        frame(b"\x83\xa5index\x00\xaasent_at_ns\x05\xabended_at_ns\x07") + b"torn"
    )
    _, rows = query("SELECT cell, sent_at_ns FROM requests", [tmp_path / "r"])
    assert rows == [("a-c1-r0", 5)]


@pytest.mark.parametrize(
    "sql",
    [
        "SELEC 1",
        "SELECT nothing FROM runs",
        "",
        "SELECT 1; SELECT 2",
        "CREATE TABLE x AS SELECT 1",
        "DROP VIEW requests",
        "SET enable_external_access = true",
        "COPY (SELECT 1) TO 'stolen.csv'",
        "ATTACH 'other.db'",
        "INSTALL httpfs",
        "SELECT * FROM read_csv('pyproject.toml')",
        "SELECT * FROM read_text('pyproject.toml')",
        "SELECT * FROM 'pyproject.toml'",
        "SELECT * FROM glob('*')",
        "SELECT * FROM sql",
    ],
)
def test_what_is_no_plain_question_is_one_line_and_exit_2(
    sql: str,
) -> None:
    with pytest.raises(RecipeError) as error:
        query(sql, [GOLDEN])
    assert "\n" not in str(error.value)
    assert error.value.exit_code == 2
    assert not Path("stolen.csv").exists()


def test_columns_of_one_name_are_numbered() -> None:
    columns, rows = query("SELECT run, run, cell FROM cells LIMIT 1", [GOLDEN])
    assert columns == ("run", "run_1", "cell")
    assert rows[0][0] == rows[0][1]
    taken, _ = query("SELECT 1 AS a, 2 AS a, 3 AS a_1", [GOLDEN])
    assert taken == ("a", "a_2", "a_1")


def test_throughput_by_run_is_one_query() -> None:
    sql = (Path(__file__).parents[2] / "docs" / "trend.md").read_text("utf-8")
    sql = sql.split("```sql\n", 1)[1].split("```", 1)[0]
    columns, rows = query(sql, [GOLDEN])
    assert columns == (
        "run", "created_unix_ns", "configuration", "concurrency", "repeat",
        "output_tokens_per_s", "tpot_ms", "ttft_ms",
    )  # fmt: skip
    assert [row[3] for row in rows] == [1, 2]
    assert all(row[5] > 0 for row in rows)
