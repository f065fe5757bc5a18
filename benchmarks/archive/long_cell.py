"""What does a run with a cell of very many tokens take to read?

    python long_cell.py write RUN N_TOKENS [N_CELLS]
    python long_cell.py read RUN

``write`` makes a whole run as the client leaves it: 256 slots, answers of 256 tokens, a
step of 20 ms that spreads by 2 %, a chunk a token, journals turned to Parquet. ``read``
runs ``analyze``, ``analyze --json``, ``report`` and ``query`` on it and prints CPU
seconds and the peak of resident memory of each.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import numpy as np

from stepscope.archive.journal import Journal
from stepscope.archive.writer import RunWriter
from stepscope.recipe.records import Workload
from stepscope.run.frames import frame
from stepscope.run.requests import Request
from stepscope.run.run import Cell, Launch, Run, Timeline

_SLOTS, _TOKENS, _STEP_NS, _FIRST_NS = 256, 256, 20e6, 150e6
_BATCH = 256
_COUNTED = "SELECT count(*), median(ttft_ms), sum(len(chunk_offsets_ns)) FROM requests"


def _requests(n: int) -> Iterator[Request]:
    """Yield the requests of a closed loop, wave by wave."""
    rng = np.random.default_rng(7)
    begin = np.full(_SLOTS, 10**9, np.int64)
    for index in range(n):
        slot = index % _SLOTS
        gaps = rng.normal(_STEP_NS, _STEP_NS / 50, _TOKENS)
        gaps[0] = rng.normal(_FIRST_NS, _FIRST_NS / 20)
        offsets = np.cumsum(gaps).astype("<i8")
        sent = int(begin[slot])
        last = sent + int(offsets[-1])
        begin[slot] = last + 200_000
        yield Request(
            index=index, slot=slot, sent_at_ns=sent, ended_at_ns=last + 100_000,
            first_byte_at_ns=sent + int(offsets[0]) - 1_000,
            first_content_at_ns=sent + int(offsets[0]), last_content_at_ns=last,
            prompt_tokens=1_024, output_tokens=_TOKENS, n_chunks=_TOKENS,
            requested_output_tokens=_TOKENS, chunk_offsets_ns=offsets.tobytes(),
            finish_reason="length", http_status=200,
        )  # fmt: skip


def write(path: Path, n_tokens: int, n_cells: int) -> None:
    n = -(-n_tokens // _TOKENS)
    timeline = Timeline(kind="monotonic", anchor_at_ns=0, anchor_unix_ns=1_796 * 10**15)
    writer = RunWriter.create(path, Run(id=path.name, engine="url", timeline=timeline))
    writer.put_launch(Launch(name="a-l0", configuration="a", ready=True))
    for repeat in range(n_cells):
        work = Workload(
            concurrency=_SLOTS, n_prompts=n, input_tokens=1_024, output_tokens=_TOKENS
        )
        cell = Cell(
            name=f"a-c{_SLOTS}-r{repeat}", configuration="a", launch="a-l0",
            workload=work, repeat=repeat, status="interrupted",
        )  # fmt: skip
        writer.put_cell(cell)
        journal = Journal(writer.cell_dir(cell.name) / "requests-0.journal")
        held = bytearray()
        for number, request in enumerate(_requests(n), 1):
            held += frame(msgspec.msgpack.encode(request))
            if number % _BATCH == 0 or number == n:
                journal.append(bytes(held))
                held.clear()
        journal.close()
        writer.close_cell(cell.name)
        writer.put_cell(msgspec.structs.replace(cell, status="done"))
    writer.close(complete=True)


def read(path: Path) -> None:
    page = path.parent / f"{path.name}.html"
    commands = {
        "analyze": ["analyze", str(path)],
        "analyze --json": ["analyze", str(path), "--json"],
        "report": ["report", str(path), "-o", str(page)],
        "query": ["query", _COUNTED, str(path)],
    }
    for name, words in commands.items():
        with Path(os.devnull).open("wb") as nowhere:
            program = "from stepscope.cli.main import entry; entry()"
            child = subprocess.Popen(
                [sys.executable, "-c", program, *words], stdout=nowhere
            )
            _, status, used = os.wait4(child.pid, 0)
        print(
            f"{name:16} exit {os.waitstatus_to_exitcode(status)},"
            f" {used.ru_utime + used.ru_stime:6.1f} CPU s,"
            f" {used.ru_maxrss / 1024:8,.0f} MiB at most"
        )


def main() -> None:
    kind, path, *words = sys.argv[1:]
    if kind == "write":
        write(Path(path), int(words[0]), int(words[1]) if len(words) > 1 else 1)
        return
    read(Path(path))


if __name__ == "__main__":
    main()
