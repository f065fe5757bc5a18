"""Reading a cell back: what a kill left, and no more memory than a request."""

import subprocess
import sys
import tracemalloc
from pathlib import Path

import msgspec
import numpy as np
import pytest

from stepscope.load.bench_result import chunks, samples, statistics, totals
from stepscope.load.columns import columns
from stepscope.load.journal import Recorded, Stamps, read_requests
from stepscope.run.frames import frame
from stepscope.run.requests import Request


def request(index: int, gaps_ns: list[int] | None = None) -> Request:
    offsets = np.cumsum(gaps_ns or [5, 7])
    first, last = int(offsets[0]), int(offsets[-1])
    sent = 1_000 + index
    return Request(
        index=index, sent_at_ns=sent, ended_at_ns=sent + last,
        first_content_at_ns=sent + first, last_content_at_ns=sent + last,
        output_tokens=len(offsets), n_chunks=len(offsets),
        chunk_offsets_ns=offsets.astype("<i8").tobytes(),
    )  # fmt: skip


def framed(index: int, gaps_ns: list[int] | None = None) -> bytes:
    return frame(msgspec.msgpack.encode(request(index, gaps_ns)))


def wrong(data: bytes) -> bytes:
    return data[:-1] + bytes([data[-1] ^ 1])


@pytest.mark.parametrize(
    "tail",
    [
        b"",
        b"\x05",
        framed(9)[:-1],
        wrong(framed(9)) + framed(8),
        bytes(64),
        b"\xff" * 9,
    ],
    ids=["none", "a byte", "cut", "wrong", "zeros", "a length beyond the end"],
)
def test_what_lies_before_a_bad_frame_is_read(tmp_path: Path, tail: bytes) -> None:
    whole = framed(1) + framed(0)
    (tmp_path / "requests-0.journal").write_bytes(whole + tail)
    (tmp_path / "requests-1.journal").write_bytes(framed(2))
    assert [r.index for r in read_requests(tmp_path)] == [0, 1, 2]
    walk = Recorded(tmp_path, Stamps)
    assert [s.sent_at_ns for s in walk] == [s.sent_at_ns for s in walk]
    assert [s.n_chunks for s in walk] == [2, 2, 2]


@pytest.mark.parametrize("bad", [wrong(framed(9)), bytes(64)], ids=["wrong", "zeros"])
def test_nothing_behind_a_bad_frame_is_read_in_a_long_journal(
    tmp_path: Path, bad: bytes
) -> None:
    """Long enough to be read in several blocks, with frames across their borders."""
    long = [framed(i, [7] * 5_000) for i in range(20)]
    (tmp_path / "requests-0.journal").write_bytes(
        b"".join([*long[:10], bad, *long[10:]])
    )
    assert [r.index for r in read_requests(tmp_path)] == list(range(10))
    (tmp_path / "requests-0.journal").write_bytes(b"".join(long))
    assert [r.index for r in read_requests(tmp_path)] == list(range(20))


def test_memory_does_not_grow_with_the_tokens_of_a_cell(tmp_path: Path) -> None:
    n_tokens, each = 4_000_000, 20_000
    gaps = np.random.default_rng(1).integers(1_000, 90_000_000, each).tolist()
    with (tmp_path / "requests-0.journal").open("wb") as file:
        for i in range(n_tokens // each):
            file.write(framed(i, gaps))
    columns(Recorded(tmp_path, Request))  # whatever is loaded once
    tracemalloc.start()
    cell = columns(Recorded(tmp_path, Request))
    found = chunks(Recorded(tmp_path, Stamps), cell, (99.0,))
    told = totals(cell, {}) | statistics(
        samples(cell), found.gaps, ("itl", "ttft"), (99.0,)
    )
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert told["total_output_tokens"] == n_tokens
    assert told["p99_itl_ms"] == pytest.approx(
        np.percentile(np.tile(np.array(gaps[1:]) / 1e6, n_tokens // each), 99)
    )
    assert most < 8 * n_tokens  # the gaps alone, held, would be as much


@pytest.mark.parametrize("module", ["stepscope.load.worker", "stepscope.cli.bench"])
def test_while_a_cell_is_driven_no_process_has_numpy(module: str) -> None:
    program = f"import sys, {module}; sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
