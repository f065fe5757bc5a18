"""What an export of nsys holds: real ones, one made small, and damaged ones."""

import sqlite3
from pathlib import Path

import pytest

from stepscope.session.phases.nsysfiles import held_by

TRACES = Path(__file__).parents[3] / "shared" / "data" / "traces"
TWO_GPUS = TRACES / "nsys_2xh100_train" / "before.sqlite"
#: Graphs as one box each, recorded by a version that says what is amiss.
ONE_GPU = TRACES / "nsys_rtx3060_graph_granularity.sqlite"


def export(path: Path, *statements: str) -> Path:
    db = sqlite3.connect(path)
    db.execute("CREATE TABLE StringIds (id INTEGER, value TEXT)")
    for statement in statements:
        db.execute(statement)
    db.commit()
    db.close()
    return path


def test_each_gpu_that_a_process_worked_on_is_a_rank() -> None:
    two, one = held_by(TWO_GPUS), held_by(ONE_GPU)
    assert two is not None
    assert one is not None
    assert (two.n_ranks, one.n_ranks) == (2, 1)


def test_two_processes_on_one_device_number_are_two_ranks(tmp_path: Path) -> None:
    kernels = "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (deviceId, globalPid)"
    rows = "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (0, 1), (0, 2), (0, 2)"
    found = held_by(export(tmp_path / "x.sqlite", kernels, rows))
    assert found is not None
    assert found.n_ranks == 2


def test_what_nsys_says_of_cuda_is_told_and_the_rest_is_not() -> None:
    found = held_by(ONE_GPU)
    assert found is not None
    (warning,) = found.warnings
    assert warning.startswith("Installed CUDA driver version (13.2) is not supported")


def test_tables_without_rows_hold_no_work(tmp_path: Path) -> None:
    kernels = "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (deviceId, globalPid)"
    for name, statements in (("lazy", ()), ("full", (kernels,))):
        found = held_by(export(tmp_path / f"{name}.sqlite", *statements))
        assert found is not None
        assert (found.n_ranks, found.warnings) == (0, ())


@pytest.mark.parametrize("n_bytes", [0, 40, 5_000, 60_000])
def test_a_file_that_was_cut_short_is_no_export(tmp_path: Path, n_bytes: int) -> None:
    path = tmp_path / "cut.sqlite"
    path.write_bytes(TWO_GPUS.read_bytes()[:n_bytes])
    assert held_by(path) is None
    assert held_by(tmp_path / "absent.sqlite") is None
