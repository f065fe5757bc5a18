"""Does a faster reader still read the same? Records of many odd logs, as hashes.

``python benchmarks/log/snapshots.py write FILE`` before a change, ``... check FILE``
after it. The logs are whole files, blocks of every kind, seams between two kinds,
wrapped lines, and lines of which a character was changed; each is fed in pieces of one
size. The caps of kept events are lowered, so that thinning is met too.
"""

import gzip
import hashlib
import json
import random
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.log.kinds import KINDS

from stepscope.parse.log import state
from stepscope.parse.serverlog import LogReader

ROOT = Path(__file__).parents[2]
_FOLDERS = (ROOT / "tests" / "data" / "logs", ROOT.parent / "shared" / "data")
_PIECES = (1, 977, 65_536, 1 << 22)
_NOISE = (
    b"", b"\r", b"Traceback (most recent call last):",
    b'  File "/a/b.py", line 3, in c',
    b"ValueError: no", b"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate"
    b" 2.00 GiB. GPU 0 has a total capacity of 79.1 GiB of which 1.00 GiB is free.",
    b"(EngineCore pid=4) ERROR 05-02 10:00:00 [core.py:1] died", b"Killed",
    b"INFO:     Shutting down", b"(APIServer pid=7) INFO:     Application startup"
    b" complete.", b"42%| abc", b"Loading x:  50% Completed | 1/2 [00:01<00:01]",
    b"\x1b[36m(APIServer pid=7)\x1b[0m INFO 05-02 10:00:00 [a.py:1] hello 5",
    b"[rank0]: ValueError: x", b"memory.events: oom_kill 2", b"\xff\xfe\x80 bytes",
    b"version 5.1", b"NVIDIA H200", b"7 quick foxes", b"web-1  | quick fox",
    b'INFO:     1.2.3.4:5 - "POST /v1/completions HTTP/1.1" 500 Internal Server Error',
    b"(APIServer pid=7) INFO 05-02 10:00:00 [utils.py:1] non-default args: {'model':"
    b" 'm'}", b"Process EngineCore_DP0:", b"KeyboardInterrupt",
    b"(EngineCore pid=4) INFO 05-02 10:00:01 [a.py:1] Routine is done",
    b"(Worker_TP1 pid=5) WARNING 05-02 10:00:02 [a.py:1] --foo-bar will be ignored",
    b"(EngineCore pid=4) INFO 05-02 10:00:03 [loggers.py:1] Engine 000: Avg prompt"
    b" throughput: 1.0 tokens/s, Running: 2 reqs, Preemptions: 3",
    b"[2026-05-01 10:00:00 TP0] KV cache pool is full. Retract requests. #retracted:"
    b" 1", b"[2026-05-01 10:00:00] The server is fired up and ready to roll!",
    b"[2026-05-01 10:00:00] Decode batch, #running-req: 3, #retracted-req: 4",
    b"[2026-05-01 10:00:00] server_args=ServerArgs(model_path='m', tp_size=2)",
    b"prompt eval time = 5.0 ms / 3 tokens", b'{"log":"a\\n","stream":"s"}',
)  # fmt: skip
_WRAPS: tuple[Callable[[bytes], bytes], ...] = (
    lambda line: b"vllm-1  | " + line,
    lambda line: b"2026-07-01T10:00:00.123456789Z stderr F " + line,
    lambda line: b"Jul 01 10:00:00 node7 vllm[412]: " + line,
    lambda line: b"my own prefix " + line,
    lambda line: b"\x1b[36m" + line + b"\x1b[0m",
    lambda line: line + b"\r",
    lambda line: json.dumps(
        {"log": line.decode("utf-8", "replace") + "\n", "stream": "stderr", "time": "t"}
    ).encode(),
    lambda line: json.dumps(
        {"message": line.decode("utf-8", "replace"), "levelname": "INFO"}
    ).encode(),
)


def files() -> Iterator[tuple[str, bytes]]:
    """Every log that lies in the repository or beside it."""
    for folder in _FOLDERS:
        for path in sorted(folder.rglob("*.log*")):
            data = path.read_bytes()
            yield path.name, gzip.decompress(data) if path.suffix == ".gz" else data


def logs() -> Iterator[tuple[str, bytes]]:
    """All logs with their names, the same ones in every run."""
    whole = list(files())
    yield from whole
    draw = random.Random(20260501)
    blocks = [(name, make().split(b"\n")) for name, make in KINDS.items()]
    yield from ((name, b"\n".join(lines[:3000])) for name, lines in blocks)
    pools = [lines for _, lines in blocks] + [data.split(b"\n") for _, data in whole]
    weights = [6.0] * len(blocks) + [1.0] * len(whole)
    for n in range(500):
        yield f"seam {n}", b"\n".join(_seams(draw, pools, weights))
    for n in range(500):
        yield f"edit {n}", b"\n".join(_edited(draw, pools, weights))


def _cut(draw: random.Random, lines: list[bytes], most: int) -> list[bytes]:
    at = draw.choice((0, draw.randrange(len(lines))))
    return lines[at : at + draw.randint(1, most)]


def _seams(
    draw: random.Random, pools: list[list[bytes]], weights: list[float]
) -> Iterator[bytes]:
    wrap = draw.choice((None, None, *_WRAPS))
    for lines in draw.choices(pools, weights, k=draw.randint(2, 6)):
        share = draw.choice((0.0, 0.0, 0.002, 0.05))
        for line in _cut(draw, lines, 600):
            yield line if wrap is None else wrap(line)
            if draw.random() < share:
                yield draw.choice(_NOISE)


def _edited(
    draw: random.Random, pools: list[list[bytes]], weights: list[float]
) -> Iterator[bytes]:
    share = draw.choice((0.01, 0.1, 0.5))
    for lines in draw.choices(pools, weights, k=draw.randint(1, 3)):
        for line in _cut(draw, lines, 400):
            yield edited(draw, line) if draw.random() < share else line


def edited(draw: random.Random, line: bytes) -> bytes:
    """Return a line with up to three characters changed."""
    for _ in range(draw.randint(1, 3)):
        at = draw.randint(0, len(line))
        match draw.randrange(5):
            case 0:
                line = line[:at] + line[at + draw.randint(1, 3) :]
            case 1:
                line = (
                    line[:at] + bytes([draw.choice(b" 0:,.%|[(\r\xc3Xx-")]) + line[at:]
                )
            case 2:
                line = line[:at]
            case 3:
                line = line[:at] + b" rror" + line[at:]
            case _:
                line = line[at:]
    return line


def record(data: bytes, size: int) -> str:
    """Return a hash of what is read of a log that comes in pieces of a size."""
    reader = LogReader()
    try:
        for at in range(0, len(data), size):
            reader.feed(data[at : at + size])
        log = reader.close()
    except ValueError as error:  # A defect, but one that another change mends.
        return f"ValueError: {error}"
    return hashlib.sha256(msgspec.json.encode(log, order="deterministic")).hexdigest()


def main(what: str, path: Path) -> int:
    """Write the hashes, or say which differ."""
    state.EVENT_CAPS.update(iteration=700, stats=300)
    found = {}
    for n, (name, data) in enumerate(logs()):
        sizes = _PIECES if n % 20 == 0 and len(data) < 100_000 else _PIECES[1:]
        size = sizes[n % len(sizes)]
        found[f"{n} {name} {size}"] = record(data, size)
    if what == "write":
        path.write_text(json.dumps(found, indent=0))
        return 0
    known = json.loads(path.read_text())
    differ = [name for name in found if known.get(name) != found[name]]
    print(f"{len(found)} logs, {len(differ)} read differently", *differ[:20], sep="\n")
    return bool(differ) or len(known) != len(found)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], Path(sys.argv[2])))
