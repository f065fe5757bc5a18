"""Writes a run for the tests; as a program, writes until it is killed.

``python writing.py DIR`` prints a line for each thing that ``RunWriter`` has taken, so
that whoever kills it knows what must be there.
"""

import sys
from pathlib import Path

import msgspec
import numpy as np

from stepscope.archive.journal import Journal
from stepscope.archive.writer import RunWriter
from stepscope.findings import Finding
from stepscope.recipe.records import Workload
from stepscope.run.frames import frame
from stepscope.run.requests import Request
from stepscope.run.run import Cell, Launch, Run, Timeline
from stepscope.run.samples import GpuSample, HostSample, ProcessSample

RUN = Run(
    id="r",
    engine="embedded",
    timeline=Timeline(
        kind="monotonic", anchor_at_ns=0, anchor_unix_ns=1_796_000_000 * 10**9
    ),
    recipe_text='name = "r"\n',
    model_config="{}",
)


def cell(name: str, status: str = "interrupted") -> Cell:
    return Cell(
        name=name,
        configuration="a",
        launch="a-l0",
        workload=Workload(concurrency=2, n_prompts=4),
        status=status,  # type: ignore[arg-type]
    )


def request(index: int, worker: int = 0) -> Request:
    sent = 1_000 * index + worker
    offsets = np.arange(index % 5 + 1, dtype="<i8") * 10 + 7
    return Request(
        index=index,
        worker=worker,
        sent_at_ns=sent,
        ended_at_ns=sent + 100,
        first_content_at_ns=sent + 7,
        last_content_at_ns=sent + int(offsets[-1]),
        output_tokens=len(offsets),
        n_chunks=len(offsets),
        chunk_offsets_ns=offsets.tobytes(),
        failure="reset" if index % 7 == 6 else None,
    )


def framed(row: Request) -> bytes:
    return frame(msgspec.msgpack.encode(row))


def write_cell(writer: RunWriter, name: str, n_requests: int) -> tuple[Request, ...]:
    """Measure a cell with two workers and close it; return its requests in order."""
    writer.put_cell(cell(name))
    folder = writer.cell_dir(name)
    rows = [request(index, index % 2) for index in range(n_requests)]
    for worker in (0, 1):
        journal = Journal(folder / f"requests-{worker}.journal")
        for row in rows:
            if row.worker == worker:
                journal.append(framed(row))
        journal.close()
    writer.close_cell(name)
    writer.put_cell(cell(name, "done"))
    return tuple(rows)


def put_everything(writer: RunWriter) -> None:
    folder = writer.launch_dir("a-l0")
    (folder / "server.log").write_bytes(b"hello\n")
    writer.put_launch(Launch(name="a-l0", configuration="a", ready=True))
    writer.put_sample(GpuSample(at_ns=1, gpu=0, power_w=3.5, memory_used_bytes=2**40))
    writer.put_sample(HostSample(at_ns=2, cpu_busy_ns=9))
    writer.put_sample(ProcessSample(at_ns=3, pid=4, role="server", name="x", cpu_ns=5))
    writer.put_metrics_text(4, 'a{b="c"} 1\n')
    writer.put_finding(Finding(code="no-repeats", severity="info", message="once"))


def say(*words: object) -> None:
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


def write_forever(path: Path) -> None:
    """Write cells and samples, saying what has been taken, until killed."""
    writer = RunWriter.create(path, RUN)
    number = at_ns = 0
    while True:
        name = f"a-c{number}-r0"
        writer.put_cell(cell(name))
        folder = writer.cell_dir(name)
        journals = [Journal(folder / f"requests-{w}.journal") for w in (0, 1)]
        for index in range(40):
            journals[index % 2].append(framed(request(index, index % 2)))
            say("request", number, index)
            at_ns += 10**8
            writer.put_sample(GpuSample(at_ns=at_ns, gpu=0))
            writer.put_metrics_text(at_ns, f"a {at_ns}\n")
        writer.close_cell(name)
        writer.put_cell(cell(name, "done"))
        say("cell", number)
        number += 1


if __name__ == "__main__":
    write_forever(Path(sys.argv[1]))
