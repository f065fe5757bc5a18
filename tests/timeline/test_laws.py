"""Intervals and loading, on made inputs."""

import gzip
import json
from decimal import Decimal
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from stepscope.errors import ArchiveError, RecipeError
from stepscope.timeline.columns import Trace
from stepscope.timeline.gaps import find_gaps
from stepscope.timeline.intervals import (
    clip,
    complement,
    intersect,
    length,
    subtract,
    union,
)
from stepscope.timeline.kineto import load_kineto
from stepscope.timeline.load import load_trace

PAIRS = st.lists(st.tuples(st.integers(0, 200), st.integers(0, 40)), max_size=30)


def spans(pairs: list[tuple[int, int]]) -> tuple[set[int], tuple[np.ndarray, ...]]:
    start = np.array([s for s, _ in pairs], dtype=np.int64)
    end = np.array([s + n for s, n in pairs], dtype=np.int64)
    return {x for s, n in pairs for x in range(s, s + n)}, union(start, end)


@settings(deadline=None)
@given(PAIRS, PAIRS)
def test_interval_arithmetic_is_set_arithmetic(
    a: list[tuple[int, int]], b: list[tuple[int, int]]
) -> None:
    points_a, (sa, ea) = spans(a)
    points_b, (sb, eb) = spans(b)
    assert length((sa, ea)) == len(points_a)
    assert length(subtract((sa, ea), (sb, eb))) == len(points_a - points_b)
    assert length(intersect((sa, ea), (sb, eb))) == len(points_a & points_b)
    inside = {x for x in points_a if 20 <= x < 90}
    assert length(clip((sa, ea), 20, 90)) == len(inside)
    assert length(complement((sa, ea), 20, 90)) == 70 - len(inside)


def event(name: str, ts: float, dur: float, **args: object) -> dict[str, object]:
    cat = "cuda_runtime" if name.startswith("cuda") else "kernel"
    return {"ph": "X", "cat": cat, "name": name, "ts": ts, "dur": dur, "args": args}


@settings(deadline=None)
@given(PAIRS.filter(lambda pairs: any(n for _, n in pairs)))
def test_busy_and_gaps_fill_the_span(pairs: list[tuple[int, int]]) -> None:
    rows = [event("k", s, n, device=0, stream=7) for s, n in pairs if n]
    trace = loaded(json.dumps({"traceEvents": rows}).encode())
    gaps = find_gaps(trace)
    busy = length(union(trace.ops.start_ns, trace.ops.end_ns))
    span = int(trace.ops.end_ns.max() - trace.ops.start_ns[0])
    assert busy + int(gaps.parts_ns.sum()) == span


def loaded(data: bytes) -> Trace:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "t.json"
        path.write_bytes(data)
        return load_trace(path)[0]


def test_stamps_since_an_epoch_stay_exact() -> None:
    text = b'[{"ph":"X","cat":"kernel","name":"k","ts":1711111111111111.123,"dur":2.5}]'
    trace = loaded(text)
    assert trace.ops.start_ns.tolist() == [1711111111111111123]
    assert trace.ops.end_ns.tolist() == [1711111111111113623]


@pytest.mark.parametrize("n_decimals", [None, 0, 1, 3, 6])
@settings(deadline=None)
@given(
    stamps=st.lists(
        st.tuples(st.integers(10**15, 4 * 10**15), st.integers(0, 10**6 - 1)),
        min_size=1,
        max_size=30,
    )
)
def test_many_stamps_since_an_epoch_are_their_digits(
    n_decimals: int | None, stamps: list[tuple[int, int]]
) -> None:
    # None: as many decimals as there are, as some writers leave closing zeros out.
    texts = [
        f"{us}.{part:06d}".rstrip("0").rstrip(".")
        if n_decimals is None
        else f"{us}.{part:06d}"[: 16 + bool(n_decimals) + n_decimals]
        for us, part in stamps
    ]
    rows = [
        f'{{"ph":"X","cat":"kernel","name":"k","ts":{text},"dur":1}}' for text in texts
    ]
    trace = loaded(f"[{','.join(rows)}]".encode())
    assert trace.ops.start_ns.tolist() == sorted(
        int(Decimal(text) * 1000 // 1) for text in texts
    )


def test_a_late_stamp_that_is_no_number_costs_only_its_own_event() -> None:
    texts = ("1711111111111111.123", '"1,5"', "1711111111111115.123", '{"a":1,"b":2}')
    rows = [
        f'{{"ph":"X","cat":"kernel","name":"k","ts":{text},"dur":1}}' for text in texts
    ]
    trace = loaded(f"[{','.join(rows)}]".encode())
    assert trace.ops.start_ns.tolist() == [1711111111111111123, 1711111111111115123]


def test_layout_does_not_matter() -> None:
    rows = [event("k", i * 10.5, 1.25, device=0, correlation=i) for i in range(50)]
    plain = loaded(json.dumps({"traceEvents": rows, "traceName": "a]}"}).encode())
    pretty = loaded(
        json.dumps({"schemaVersion": 1, "traceEvents": rows}, indent=2).encode()
    )
    bare = loaded(json.dumps(rows).encode())
    for other in (pretty, bare):
        assert other.ops.start_ns.tolist() == plain.ops.start_ns.tolist()


@pytest.mark.parametrize("block_bytes", [70, 700, 5000])
@pytest.mark.parametrize("indent", [None, 1])
def test_many_blocks_give_what_one_gives(
    block_bytes: int, indent: int | None, tmp_path: Path
) -> None:
    rows = [
        event("k", i * 10.5, 1.25, device=0, correlation=i, seen=[{"id": 1}, {"id": 2}])
        for i in range(100)
    ]
    path = tmp_path / "t.json.gz"
    text = json.dumps({"traceEvents": rows}, indent=indent).encode()
    path.write_bytes(gzip.compress(text[:900]) + gzip.compress(text[900:]))
    whole, cut = load_kineto(path)[0], load_kineto(path, block_bytes)[0]
    assert len(whole.ops) == 100
    assert cut.ops.start_ns.tolist() == whole.ops.start_ns.tolist()
    assert cut.ops.correlation.tolist() == whole.ops.correlation.tolist()


@pytest.mark.parametrize(
    "data",
    [b"", b"{}", b"hello", gzip.compress(b'{"traceEvents": [{"ph": "X"')[:-6]],
)
def test_what_is_no_trace_is_refused_in_one_line(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_bytes(data)
    with pytest.raises(ArchiveError) as caught:
        load_trace(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_file_is_the_callers_fault(tmp_path: Path) -> None:
    with pytest.raises(RecipeError):
        load_trace(tmp_path / "absent.json")


def test_a_graph_that_lost_nodes_in_one_replay_is_refused() -> None:
    from stepscope.timeline.analyze import analyze_traces

    rows: list[dict[str, object]] = []
    for step in range(8):
        at = step * 1000.0
        rows.append(event("cudaGraphLaunch", at, 5.0, correlation=step + 1))
        n = 30 if step != 3 else 24
        rows += [
            event("k", at + 10 + i * 20.0, 19.5, device=0, correlation=step + 1)
            for i in range(n)
        ]
    found = analyze_traces([loaded(json.dumps({"traceEvents": rows}).encode())])
    assert "records-dropped" in found.quality.defects
    assert found.ranks[0].idle_ms is None


@pytest.mark.parametrize(
    ("name", "rank"),
    [
        ("dp1_pp0_tp1_dcp0_ep3_rank3.17905.pt.trace.json", 3),
        ("dp1_tp0.pt.trace.json", 1),
        ("rank-7.json", 7),
        ("udp1_x.json", None),
    ],
)
def test_a_file_name_may_say_the_rank(name: str, rank: int, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_text(json.dumps([event("k", 1.0, 2.0, device=0)]))
    assert load_trace(path)[0].rank == rank
