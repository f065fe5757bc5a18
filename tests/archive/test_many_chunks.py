"""Cells whose chunk times stay in their files say what they would say whole."""

from pathlib import Path

import msgspec
import numpy as np
import pytest
from tests.archive.writing import RUN, cell, framed

from stepscope.archive.cells import n_chunks_of
from stepscope.archive.journal import Journal
from stepscope.archive.reader import open_run
from stepscope.archive.writer import RunWriter
from stepscope.errors import ArchiveError
from stepscope.recipe.records import Workload
from stepscope.run.requests import Request

SLOTS, WAVES, TOKENS = 16, 6, 40
N = SLOTS * WAVES


def answers() -> list[Request]:
    rng = np.random.default_rng(3)
    begin = np.full(SLOTS, 10**9)
    rows = []
    for index in range(N):
        gaps = rng.normal(20e6, 2e6, TOKENS if index % 9 else 0)
        offsets = (50e6 + np.cumsum(gaps)).astype("<i8")
        sent = int(begin[index % SLOTS])
        last = sent + int(offsets[-1]) if len(offsets) else None
        ended = (last or sent) + 1_000_000
        begin[index % SLOTS] = ended
        rows.append(
            Request(
                index=index,
                slot=index % SLOTS,
                sent_at_ns=sent,
                ended_at_ns=ended,
                first_content_at_ns=sent + int(offsets[0]) if last else None,
                last_content_at_ns=last,
                output_tokens=len(offsets) or None,
                n_chunks=len(offsets),
                chunk_offsets_ns=offsets.tobytes(),
                failure=None if last else "empty",
            )
        )
    return rows


def measured(path: Path, *, closed: bool) -> Path:
    writer = RunWriter.create(path, RUN)
    for name in ("a-c16-r0", "a-c16-r1"):
        work = Workload(concurrency=SLOTS, n_prompts=N)
        asked = msgspec.structs.replace(cell(name), workload=work)
        writer.put_cell(asked)
        journal = Journal(writer.cell_dir(name) / "requests-0.journal")
        for row in answers():
            journal.append(framed(row))
        journal.close()
        writer.put_cell(msgspec.structs.replace(asked, status="done"))
    if closed:
        writer.close(complete=True)
    return path


@pytest.mark.parametrize("closed", [True, False], ids=["closed", "killed"])
def test_a_cell_beyond_the_limit_leaves_its_chunk_times_in_its_files(
    tmp_path: Path, closed: bool
) -> None:
    path = measured(tmp_path / "r", closed=closed)
    whole = open_run(path)
    room_for_one = n_chunks_of(path / "cells" / "a-c16-r0")
    first, second = open_run(path, most_chunks=room_for_one).cells
    assert first == whole.cells[0]
    assert first.chunks is None
    assert second.chunks is not None
    assert not any(r.chunk_offsets_ns for r in second.requests)
    bare = [
        msgspec.structs.replace(r, chunk_offsets_ns=b"")
        for r in whole.cells[1].requests
    ]
    assert list(second.requests) == bare
    for _ in range(2):  # as often as it is asked for
        pieces = list(second.chunks.pieces())
        counts = np.concatenate([n for n, _ in pieces])
        assert counts.tolist() == [r.n_chunks for r in second.requests]
        kept = np.concatenate([offsets for _, offsets in pieces]).astype("<i8")
        held = b"".join(r.chunk_offsets_ns for r in whole.cells[1].requests)
        assert kept.tobytes() == held


def test_a_damaged_file_is_named_when_its_chunks_are_walked(tmp_path: Path) -> None:
    path = measured(tmp_path / "r", closed=True)
    run = open_run(path, most_chunks=0)
    file = path / "cells" / "a-c16-r0" / "requests.parquet"
    data = bytearray(file.read_bytes())
    data[4:-600] = bytes(len(data) - 604)
    file.write_bytes(data)
    chunks = run.cells[0].chunks
    assert chunks is not None
    with pytest.raises(ArchiveError, match=r"requests\.parquet"):
        list(chunks.pieces())
