"""Chunk times that are walked in pieces give the figures of those that are held."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import msgspec
import numpy as np
import numpy.typing as npt
import pytest

from stepscope.analysis.analyze import analyze
from stepscope.analysis.cell.columns import columns
from stepscope.analysis.cell.latency import gap_stats
from stepscope.board.hypotheses.gaps import gaps
from stepscope.board.view import views
from stepscope.run.requests import Request
from stepscope.run.run import Cell, Run

Served = Callable[..., tuple[Request, ...]]
MakeCell = Callable[..., Cell]
MakeRun = Callable[..., Run]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Apart:
    """Chunk times beside the requests, some requests at a time."""

    rows: tuple[Request, ...]
    at_once: int

    @property
    def n(self) -> int:
        return sum(len(r.chunk_offsets_ns) for r in self.rows) // 8

    def pieces(self) -> Iterator[tuple[Ints, Ints]]:
        for at in range(0, len(self.rows), self.at_once):
            raw = [r.chunk_offsets_ns for r in self.rows[at : at + self.at_once]]
            counts = np.array([len(one) // 8 for one in raw])
            yield counts, np.frombuffer(b"".join(raw), "<i8").astype(np.int64)


def apart(cell: Cell, at_once: int) -> Cell:
    bare = [msgspec.structs.replace(r, chunk_offsets_ns=b"") for r in cell.requests]
    kept = Apart(cell.requests, at_once)
    return msgspec.structs.replace(cell, requests=tuple(bare), chunks=kept)


@pytest.mark.parametrize("at_once", [1, 7, 10_000])
def test_a_cell_analyzed_in_pieces_says_what_it_says_whole(
    served: Served, cell_of: MakeCell, run_of: MakeRun, at_once: int
) -> None:
    rng = np.random.default_rng(5)
    n = 160
    requests = served(
        n, 16, ttft_ms=rng.normal(60, 9, n), tpot_ms=rng.normal(9, 0.4, n), tokens=50
    )
    requests = (
        *requests[:-2],
        msgspec.structs.replace(requests[-2], chunk_offsets_ns=b"", n_chunks=0),
        msgspec.structs.replace(requests[-1], failure="stall"),
    )
    whole = cell_of(requests, concurrency=16, tokens=50)
    run = run_of(whole)
    pieces = run_of(apart(whole, at_once))
    expected, found = analyze(run), analyze(pieces)
    assert found.findings == expected.findings
    one, other = found.cells[0], expected.cells[0]
    assert other.itl_ms.n > 1_000
    assert other.steady_step_ms is not None
    for name in one.__struct_fields__:
        mine, its = getattr(one, name), getattr(other, name)
        if isinstance(its, float):
            assert mine == pytest.approx(its, rel=1e-9), name
        else:
            assert mine == its, name
    split = gaps(views(run, expected)[0])
    assert split is not None
    assert gaps(views(pieces, found)[0]) == split


def test_a_cell_of_many_chunks_has_the_percentiles_of_all_its_gaps() -> None:
    rng = np.random.default_rng(6)
    rows = []
    for index in range(300):
        offsets = np.cumsum(rng.lognormal(16, 0.3, 4_000)).astype("<i8")
        rows.append(
            Request(
                index=index,
                sent_at_ns=10**9 * (1 + index % 3) + index,
                ended_at_ns=10**15,
                first_content_at_ns=10**9 + int(offsets[0]),
                last_content_at_ns=10**9 + int(offsets[-1]),
                output_tokens=4_000,
                n_chunks=4_000,
                chunk_offsets_ns=offsets.tobytes(),
            )
        )
    table = columns(tuple(rows))
    assert len(list(table.chunks.pieces())) > 1
    every = np.concatenate([np.diff(r.chunks_ns) for r in rows])
    found = gap_stats(table.chunks)
    assert found.n == len(every)
    for name, p in (("median", 50), ("p90", 90), ("p99", 99), ("max", 100)):
        exact = float(np.percentile(every, p)) / 1e6
        assert getattr(found, name) == pytest.approx(exact, rel=1e-12)
    bare = [msgspec.structs.replace(r, chunk_offsets_ns=b"") for r in rows]
    for at_once in (300, 2):
        kept = columns(tuple(bare), Apart(tuple(rows), at_once))
        assert len(list(kept.chunks.pieces())) > 1
        assert gap_stats(kept.chunks) == found
        arrivals = [p.arrivals_ns for p in kept.chunks.pieces()]
        expected = np.concatenate([r.chunks_ns for r in rows])
        assert (np.concatenate(arrivals) == expected).all()
