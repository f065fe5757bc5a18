import csv
import io
import json
import subprocess
import sys
from pathlib import Path

SMALL = Path(__file__).parents[1] / "data" / "imports" / "small"


def stepscope(*words: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "stepscope", *map(str, words)],
        capture_output=True,
        text=True,
        check=False,
    )


def test_an_imported_run_answers_in_all_three_forms(tmp_path: Path) -> None:
    out = tmp_path / "run"
    done = stepscope("import", SMALL, "--out", out)
    assert (done.returncode, done.stdout) == (0, f"{out}\n")

    sql = "SELECT cell, count(*) AS n, max(failure) AS f FROM requests GROUP BY cell"
    sql += " ORDER BY cell"
    as_json = stepscope("query", sql, out, "--json")
    assert json.loads(as_json.stdout) == [
        {"cell": "c1_0", "n": 2, "f": None},
        {"cell": "c2_0", "n": 4, "f": None},
    ]
    as_csv = stepscope("query", sql, out, "--csv")
    assert list(csv.reader(io.StringIO(as_csv.stdout))) == [
        ["cell", "n", "f"],
        ["c1_0", "2", ""],
        ["c2_0", "4", ""],
    ]
    assert stepscope("query", sql, out).stdout == (
        "cell  n  f\n----  -  -\nc1_0  2  -\nc2_0  4  -\n"
    )


def test_query_takes_what_import_takes() -> None:
    done = stepscope("query", "SELECT count(*) FROM cells", SMALL, "--csv")
    assert (done.returncode, done.stdout) == (0, "count_star()\n2\n")


def test_a_second_import_and_a_wrong_question_are_one_line_and_exit_2(
    tmp_path: Path,
) -> None:
    stepscope("import", SMALL / "c1_0.json.gz", "--out", tmp_path / "run")
    for done in (
        stepscope("import", SMALL, "--out", tmp_path / "run"),
        stepscope("import", tmp_path / "nowhere"),
        stepscope("query", "SELEC 1", tmp_path / "run"),
        stepscope("query", "SELECT 1", tmp_path / "nowhere"),
    ):
        assert done.returncode == 2
        assert done.stdout == ""
        assert len(done.stderr.splitlines()) == 1


def test_a_damaged_input_is_one_line_and_exit_4(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("{")
    done = stepscope("import", tmp_path / "a.json", "--out", tmp_path / "run")
    assert done.returncode == 4
    assert done.stderr.startswith(f"{tmp_path / 'a.json'}: is no JSON")
    assert len(done.stderr.splitlines()) == 1
