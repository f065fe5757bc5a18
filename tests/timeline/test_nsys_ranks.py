"""Ranks of nsys exports in which several processes call their GPU 0.

A real export of two processes, each on an H100 of its own, is renumbered as it comes
from engines that each see one GPU only.
"""

import functools
import sqlite3
from collections.abc import Iterable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.timeline.planting import TRACES

from stepscope.session.phases.nsysfiles import held_by
from stepscope.timeline.analyze import analyze_traces
from stepscope.timeline.columns import Trace
from stepscope.timeline.load import load_trace, load_traces
from stepscope.timeline.records import TraceResult

NSYS = TRACES / "nsys_2xh100_train" / "before.sqlite"
WORK = [f"CUPTI_ACTIVITY_KIND_{kind}" for kind in ("KERNEL", "MEMCPY", "MEMSET")]
#: Process ids of the export.
ONE, TWO = 144, 145


def renumbered(path: Path, gpus: Iterable[tuple[int | None, int, int]] | None) -> Path:
    """Write the export with both GPUs called 0, and what says which is which."""
    path.write_bytes(NSYS.read_bytes())
    with closing(sqlite3.connect(path)) as db:
        for table in WORK:
            db.execute(f"UPDATE {table} SET deviceId = 0")
        if gpus is not None:
            db.execute(
                "CREATE TABLE TARGET_INFO_CUDA_DEVICE (gpuId INTEGER,"
                " cudaId INTEGER NOT NULL, pid INTEGER NOT NULL)"
            )
            rows = "INSERT INTO TARGET_INFO_CUDA_DEVICE VALUES (?, ?, ?)"
            db.executemany(rows, gpus)
        db.commit()
    return path


@functools.cache
def truth() -> TraceResult:
    return analyze_traces(load_trace(NSYS))


def unnamed(found: TraceResult) -> list[object]:
    return [replace_path(rank) for rank in found.ranks]


def replace_path(rank: object) -> object:
    return {
        name: getattr(rank, name)
        for name in rank.__struct_fields__  # type: ignore[attr-defined]  # a record
        if name != "path"
    }


def test_processes_on_gpus_of_their_own_give_what_numbered_gpus_give(
    tmp_path: Path,
) -> None:
    path = renumbered(tmp_path / "t.sqlite", [(0, 0, ONE), (1, 0, TWO)])
    found = analyze_traces(load_trace(path))
    assert found.quality == truth().quality
    assert found.quality.usable
    assert unnamed(found) == unnamed(truth())
    assert found.collectives == truth().collectives


@pytest.mark.parametrize(
    ("gpus", "said"),
    [
        (None, "can not be told"),
        ([(0, 0, ONE)], "can not be told"),
        ([(0, 0, ONE), (None, 0, TWO)], "can not be told"),
        ([(0, 0, ONE), (0, 0, TWO)], "2 processes ran on one GPU"),
    ],
)
def test_where_they_may_share_a_gpu_no_idle_figure_is_given_and_why(
    gpus: list[tuple[int | None, int, int]] | None, said: str, tmp_path: Path
) -> None:
    path = renumbered(tmp_path / "t.sqlite", gpus)
    found = analyze_traces(load_trace(path))
    assert found.quality.defects == ("mixed-processes", "stream-overlap")
    mixed = [f.message for f in found.findings if f.code == "mixed-processes"]
    assert len(mixed) == 2
    assert all(said in message for message in mixed)
    for rank, true in zip(found.ranks, truth().ranks, strict=True):
        assert (rank.idle_ms, rank.busy_pct) == (None, None)
        assert rank.top_kernels == true.top_kernels
        assert rank.step_ms == true.step_ms


@pytest.mark.parametrize("gpus", [None, [(0, 0, ONE), (1, 0, TWO)]])
def test_the_capturing_side_counts_the_same_ranks(
    gpus: list[tuple[int | None, int, int]] | None, tmp_path: Path
) -> None:
    path = renumbered(tmp_path / "t.sqlite", gpus)
    held = held_by(path)
    assert held is not None
    assert held.n_ranks == len(load_trace(path)) == 2


def merged(traces: list[Trace]) -> Trace:
    """Return both ranks' traces as if they were one process' device."""

    def joined(table: str) -> object:
        tables = [getattr(trace, table) for trace in traces]
        start = np.concatenate([t.start_ns for t in tables])
        order = np.argsort(start, kind="stable")
        return replace(tables[0], **{
            name: np.concatenate([getattr(t, name) for t in tables])[order]
            for name in tables[0].__slots__
        })  # fmt: skip

    tables = {name: joined(name) for name in ("ops", "calls", "spans")}
    return replace(traces[0], **tables)  # type: ignore[arg-type]  # of the same kinds


def test_what_one_process_launches_after_its_last_kernel_is_not_lost_in_mid_trace(
    tmp_path: Path,
) -> None:
    path = renumbered(tmp_path / "t.sqlite", None)
    found = analyze_traces([merged(load_trace(path))])
    assert "records-dropped" not in found.quality.defects


def test_what_one_process_loses_in_mid_trace_shows_beside_another(
    tmp_path: Path,
) -> None:
    path = renumbered(tmp_path / "t.sqlite", None)
    one, two = load_trace(path)
    kept = np.ones(len(two.ops), dtype=np.bool_)
    kept[len(kept) // 2 : len(kept) // 2 + 40] = False
    found = analyze_traces([merged([one, replace(two, ops=two.ops.take(kept))])])
    assert "records-dropped" in found.quality.defects


def test_graphs_recorded_as_boxes_are_their_own_ranks(tmp_path: Path) -> None:
    path = renumbered(tmp_path / "t.sqlite", [(0, 0, ONE), (1, 0, TWO)])
    with closing(sqlite3.connect(path)) as db:
        db.execute(
            "CREATE TABLE CUPTI_ACTIVITY_KIND_GRAPH_TRACE"
            " (start, end, deviceId, globalPid)"
        )
        db.execute(
            "INSERT INTO CUPTI_ACTIVITY_KIND_GRAPH_TRACE SELECT start, end, deviceId,"
            " globalPid FROM CUPTI_ACTIVITY_KIND_KERNEL WHERE globalPid >> 24 & 255 ="
            f" {TWO}"
        )
        db.commit()
    one, two = load_trace(path)
    assert one.graph_level_records == 0
    assert two.graph_level_records == len(two.graph_boxes) == 2017


def test_an_export_with_graphs_as_boxes_and_nothing_else_says_so(
    tmp_path: Path,
) -> None:
    path = renumbered(tmp_path / "t.sqlite", None)
    with closing(sqlite3.connect(path)) as db:
        for table in WORK[1:]:
            db.execute(f"DROP TABLE {table}")
        db.execute(f"ALTER TABLE {WORK[0]} RENAME TO CUPTI_ACTIVITY_KIND_GRAPH_TRACE")
        db.commit()
    found = analyze_traces(load_traces([path]))
    assert "graph-granularity" in found.quality.defects
    assert "no-device-records" not in found.quality.defects
    held = held_by(path)
    assert held is not None
    assert held.n_ranks == len(found.ranks) == 2


def test_an_export_without_gpu_work_is_not_usable_and_says_why(tmp_path: Path) -> None:
    path = renumbered(tmp_path / "t.sqlite", None)
    with closing(sqlite3.connect(path)) as db:
        for table in WORK:
            db.execute(f"DROP TABLE {table}")
        db.commit()
    found = analyze_traces(load_traces([path]))
    assert not found.quality.usable
    assert found.quality.defects == ("no-device-records",)
    assert load_traces([path, NSYS]), "one of several may hold none"
