"""nsys exports of several schemas, made small, and real ones that were damaged."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from tests.timeline.planting import TRACES

from stepscope.errors import ArchiveError
from stepscope.timeline.analyze import analyze_traces
from stepscope.timeline.load import load_trace

#: Columns that a schema has of each table, beyond those that all have.
SCHEMAS: dict[str, dict[str, tuple[str, ...]]] = {
    "2024": {"kernel": ("globalPid", "graphNodeId"), "nvtx": ()},
    "2026": {
        "kernel": ("globalPid", "graphNodeId", "greenContextId", "mangledName"),
        "nvtx": ("textId", "domainId"),
    },
    "bare": {"kernel": (), "nvtx": ()},
}


def export(path: Path, schema: str, *, zero: bool = False) -> None:
    """Write two processes, each with its own device and the same correlation ids."""
    extra = SCHEMAS[schema]
    kernel = ("start", "end", "deviceId", "streamId", "correlationId", "shortName")
    nvtx = ("start", "end", "text", "globalTid")
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE StringIds (id INTEGER, value TEXT)")
        names = ((1, "gemm"), (2, "cudaGraphLaunch_v10000"), (3, "decode step"))
        db.executemany("INSERT INTO StringIds VALUES (?, ?)", names)
        _table(db, "CUPTI_ACTIVITY_KIND_KERNEL", kernel + extra["kernel"])
        _table(db, "NVTX_EVENTS", nvtx + extra["nvtx"])
        calls = ("start", "end", "correlationId", "nameId", "globalTid")
        _table(db, "CUPTI_ACTIVITY_KIND_RUNTIME", calls)
        # Without process ids nothing tells two processes apart.
        for process in (0,) if schema == "bare" else (100, 101):
            pid = process << 24
            for step in range(6):
                at, ids = 1000 + step * 100_000, step + 1
                _row(db, "CUPTI_ACTIVITY_KIND_RUNTIME", calls,
                     (at, at + 500, ids, 2, pid | process))  # fmt: skip
                for i in range(25):
                    begin = at + 1000 + i * 3000
                    row = (begin, begin + 2500, process % 2, 7, ids, 1)
                    _row(db, "CUPTI_ACTIVITY_KIND_KERNEL", kernel, row)
                if "globalPid" in extra["kernel"]:
                    db.execute(
                        "UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET globalPid = ?"
                        " WHERE globalPid IS NULL",
                        (pid,),
                    )
            if "textId" in extra["nvtx"]:
                _row(db, "NVTX_EVENTS", (*nvtx, "textId"), (0, 9, None, pid | 5, 3))
            _row(db, "NVTX_EVENTS", nvtx, (5, 50, "said", pid | 5))
            _row(db, "NVTX_EVENTS", nvtx, (7, None, "a mark", pid | 5))
        if zero:
            _row(db, "CUPTI_ACTIVITY_KIND_KERNEL", kernel, (0, 0, 0, 7, 1, 1))
        db.commit()


def _table(db: sqlite3.Connection, name: str, columns: tuple[str, ...]) -> None:
    db.execute(f"CREATE TABLE {name} ({', '.join(columns)})")


def _row(
    db: sqlite3.Connection, name: str, columns: tuple[str, ...], row: tuple[object, ...]
) -> None:
    marks = ", ".join("?" * len(row))
    db.execute(f"INSERT INTO {name} ({', '.join(columns)}) VALUES ({marks})", row)


@pytest.mark.parametrize("schema", ["2024", "2026"])
def test_each_device_has_its_own_calls_in_every_schema(
    schema: str, tmp_path: Path
) -> None:
    path = tmp_path / "odd name?#%20.sqlite"
    export(path, schema)
    traces = load_trace(path)
    assert [t.rank for t in traces] == [0, 1]
    found = analyze_traces(traces)
    assert found.quality.usable
    for trace, rank in zip(traces, found.ranks, strict=True):
        assert len(trace.ops) == 150
        assert len(trace.calls) == 6
        assert {trace.names[i] for i in trace.spans.name} >= {"said"}
        assert (rank.n_steps, rank.step_source) == (6, "graph-launches")
        assert rank.idle_ms is not None
        assert rank.idle_ms.inside_graph == pytest.approx(24 * 500 / 1e6)
        assert rank.idle_ms.no_launch_record == 0
        assert rank.closes_to_pct == 0


def test_a_schema_without_processes_is_one_process(tmp_path: Path) -> None:
    path = tmp_path / "t.sqlite"
    export(path, "bare")
    (trace,) = load_trace(path)
    assert len(trace.ops) == 150
    assert analyze_traces([trace]).ranks[0].n_steps == 6


def test_of_nsys_strings_those_that_are_used_are_named(tmp_path: Path) -> None:
    path = tmp_path / "t.sqlite"
    export(path, "2026")
    with closing(sqlite3.connect(path)) as db:
        db.execute("INSERT INTO StringIds VALUES (99, 'a kernel that never ran')")
        db.execute(
            "UPDATE CUPTI_ACTIVITY_KIND_RUNTIME SET nameId = 4 WHERE start > 9e4"
        )
        db.commit()
    trace = load_trace(path)[0]
    assert set(trace.names) == {
        "gemm", "cudaGraphLaunch_v10000", "?", "said", "decode step"
    }  # fmt: skip
    assert [trace.names[i] for i in trace.calls.name[:2]] == [
        "cudaGraphLaunch_v10000",
        "?",
    ]


def test_stamps_of_zero_are_counted_and_left_out(tmp_path: Path) -> None:
    path = tmp_path / "t.sqlite"
    export(path, "2024", zero=True)
    traces = load_trace(path)
    assert traces[0].n_zero_stamps == 1
    assert int(traces[0].ops.start_ns.min()) > 0
    found = analyze_traces(traces)
    assert "records-dropped" in found.quality.defects
    assert not found.quality.usable


def test_graphs_recorded_as_one_box_give_their_spans_and_no_idle_time() -> None:
    found = analyze_traces(load_trace(TRACES / "nsys_rtx3060_graph_granularity.sqlite"))
    (rank,) = found.ranks
    assert not found.quality.usable
    assert rank.graph_span_ms is not None
    assert rank.graph_span_ms.median == pytest.approx(0.001552)
    assert rank.busy_pct is None


@pytest.mark.parametrize("share", [0.2, 0.6, 0.95])
def test_an_export_cut_in_mid_page_is_refused(share: float, tmp_path: Path) -> None:
    whole = (TRACES / "nsys_2xh100_train" / "before.sqlite").read_bytes()
    path = tmp_path / "t.sqlite"
    path.write_bytes(whole[: round(share * len(whole))])
    with pytest.raises(ArchiveError) as caught:
        load_trace(path)
    assert "\n" not in str(caught.value)


def test_a_database_that_is_no_export_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "t.sqlite"
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE other (id)")
        db.commit()
    with pytest.raises(ArchiveError, match="StringIds"):
        load_trace(path)
