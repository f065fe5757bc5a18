"""How fast logs of each kind are read, beside ``grep`` and a loop over lines.

``python benchmarks/log/parse.py [MEGABYTES]`` prints a Markdown table. Figures are
CPU-seconds of this process; the peers read the same bytes in the same run: ``grep -c``
for one word, and Python's own loop that decodes every line and asks each for one.
"""

import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.log.kinds import KINDS

from stepscope.parse.serverlog import LogReader

_PIECE = 1 << 22


def main(megabytes: int) -> None:
    """Print one row a kind."""
    print(
        "| kind | against a loop over lines | against `grep -c` | peak MiB so far |"
        " MB per CPU-second |"
    )
    print("|---|---|---|---|---|")
    for name, make in KINDS.items():
        with tempfile.NamedTemporaryFile(suffix=".log") as file:
            block = make()
            size = 0
            while size < megabytes * 1_000_000:
                size += file.write(block)
            file.flush()
            ours = _cpu_s(lambda: _parsed(file.name))
            loop = _cpu_s(lambda: _looped(file.name))
            grep = _grep_s(file.name)
        speed = size / 1e6 / ours
        print(
            f"| {name} | {ours / loop:.1f}x | {ours / grep:.1f}x |"
            f" {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10} |"
            f" {speed:.0f} |",
            flush=True,
        )


def _parsed(path: str) -> None:
    reader = LogReader()
    with Path(path).open("rb") as stream:
        while piece := stream.read(_PIECE):
            reader.feed(piece)
    reader.close()


def _looped(path: str) -> int:
    with Path(path).open("rb") as stream:
        return sum("ERROR" in line.decode("utf-8", "replace") for line in stream)


def _cpu_s(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


def _grep_s(path: str) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(
        ["grep", "-ac", "ERROR", path], stdout=subprocess.DEVNULL, check=False
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return max(used, 1e-3)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 200)
