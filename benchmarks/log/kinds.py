"""Logs of every kind that servers write, made from the wording of real ones.

Each maker returns one block of whole lines; a benchmark feeds it again and again. The
stamps move on within a block, so that nothing is read from a cache that a real log
would not hit.
"""

import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path

CASES = Path(__file__).parents[2] / "tests" / "data" / "logs"
_BLOCK_LINES = 40_000
_N_RANKS = 8


def _stamp(i: int) -> str:
    """One second for ten lines, as a busy server stamps them."""
    minutes, s = divmod(i // 10, 60)
    hours, m = divmod(minutes, 60)
    return f"05-{1 + hours // 24 % 28:02d} {hours % 24:02d}:{m:02d}:{s:02d}"


def startup() -> bytes:
    """Real starts of vLLM, one after another."""
    files = sorted(CASES.glob("vllm-*.log"))
    text = b"\n".join(p.read_bytes().rstrip(b"\n") for p in files) + b"\n"
    return text * (4_000_000 // len(text) + 1)


def _vllm(i: int, text: str, level: str = "INFO", who: str = "APIServer pid=7") -> str:
    return f"({who}) {level} {_stamp(i)} [loggers.py:271] {text}"


def _served(source: str) -> Iterator[str]:
    """The line that says that a server is up, so that what follows is serving."""
    yield _vllm(0, "vLLM API server version 0.19.0")
    yield f"(APIServer pid=7) INFO {_stamp(0)} [{source}.py:90] Starting vLLM server on http://0.0.0.0:8000"
    yield "(APIServer pid=7) INFO:     Application startup complete."


def stats() -> bytes:
    """A serving vLLM: statistics, access log, chatter."""
    lines = list(_served("launcher"))
    for i in range(_BLOCK_LINES):
        if i % 4 == 0:
            lines.append(
                _vllm(
                    i,
                    f"Engine 000: Avg prompt throughput: {i % 977}.5 tokens/s, Avg"
                    f" generation throughput: {i % 1999}.1 tokens/s, Running: {i % 256}"
                    f" reqs, Waiting: {i % 7} reqs, GPU KV cache usage: {i % 100}.3%,"
                    " Prefix cache hit rate: 12.5%",
                )
            )
        elif i % 4 == 1:
            lines.append(_vllm(i, f"Received request cmpl-{i:08x}: prompt: 'a b c'."))
        else:
            lines.append(
                f'(APIServer pid=7) INFO:     10.0.0.{i % 250}:{i % 60000} - "POST'
                ' /v1/completions HTTP/1.1" 200 OK'
            )
    return _joined(lines)


def iterations() -> bytes:
    """A serving vLLM that logs every iteration."""
    lines = list(_served("launcher"))
    lines += [
        _vllm(
            i,
            f"Engine 000: Iteration({i}): 0 context requests, 0 context tokens, 16"
            f" generation requests, 16 generation tokens, iteration elapsed time:"
            f" {8 + i % 300 / 100:.2f} ms, GPU KV cache usage: {i % 100}.1%",
        )
        for i in range(_BLOCK_LINES)
    ]
    return _joined(lines)


def json_lines() -> bytes:
    """The same chatter as a JSON log of the engine's own logger."""
    lines = []
    for i, line in enumerate(stats().decode().splitlines()):
        message = line.split("] ", 1)[-1]
        record = {
            "levelname": "INFO",
            "asctime": _stamp(i),
            "name": "vllm.v1.metrics.loggers",
            "processName": "APIServer",
            "message": message,
        }
        lines.append(json.dumps(record))
    return _joined(lines)


def docker_json() -> bytes:
    """The same chatter in docker's json-file."""
    lines = [
        json.dumps(
            {
                "log": line + "\n",
                "stream": "stderr",
                "time": f"2026-05-01T10:{i // 600 % 60:02d}:{i // 10 % 60:02d}.1Z",
            }
        )
        for i, line in enumerate(stats().decode().splitlines())
    ]
    return _joined(lines)


def ranks() -> bytes:
    """Eight ranks that start at once, with NCCL's own talk between the engine's."""
    nccl = [
        f"h:{{pid}}:{{pid}} [{{rank}}] NCCL INFO Channel {n:02d}/0 : {{rank}}[{{rank}}]"
        f" -> {n % _N_RANKS}[{n % _N_RANKS}] via P2P/CUMEM"
        for n in range(24)
    ]
    talk = (
        *nccl,
        "Using FlashAttention version 3",
        "Loading weights took 41.20 seconds",
        "Cache the graph of shape None for later use",
        "Using Triton backend out of potential backends: ['TRITON', 'FLASHINFER'].",
        "rank 3 in world size 8 is assigned as DP rank 0, PP rank 0, TP rank 3, EP"
        " rank 3",
        "vLLM is using nccl==2.27.5",
        "Auto-prefetch is disabled because the filesystem (EXT4) is not a recognized"
        " network FS (NFS/Lustre).",
    )
    lines = [_vllm(0, "vLLM API server version 0.19.0")]
    for i in range(_BLOCK_LINES):
        rank = i % _N_RANKS
        who = f"Worker_TP{rank} pid={100 + rank}"
        level = "WARNING" if i % 97 == 0 else "INFO"
        text = talk[i // _N_RANKS % len(talk)]
        if "NCCL" in text:
            lines.append(f"({who}) {text.format(pid=100 + rank, rank=rank)}")
        else:
            lines.append(_vllm(i, text, level, who))
    return _joined(lines)


def sglang() -> bytes:
    """A serving SGLang: batches and access log."""
    lines = []
    for i in range(_BLOCK_LINES):
        stamp = f"2026-{_stamp(i)}"
        if i % 3 == 0:
            lines.append(
                f"[{stamp} TP0] Decode batch, #running-req: {i % 256}, #token:"
                f" {i % 99999}, token usage: 0.{i % 100:02d}, cuda graph: True, gen"
                f" throughput (token/s): {i % 9999}.12, #queue-req: 0"
            )
        elif i % 3 == 1:
            lines.append(
                f"[{stamp} TP0] Prefill batch, #new-seq: 1, #new-token: {i % 4096},"
                " #cached-token: 0, token usage: 0.01, #running-req: 3, #queue-req: 0"
            )
        else:
            lines.append(
                f'[{stamp}] INFO:     10.0.0.2:{i % 60000} - "POST /generate HTTP/1.1"'
                " 200 OK"
            )
    return _joined(lines)


def llama() -> bytes:
    """A serving llama-server: slots and timings."""
    lines = [
        "0.00.100.000 I srv  llama_server: loading model",
        "main: server is listening on http://0.0.0.0:8080",
    ]
    for i in range(_BLOCK_LINES // 5):
        head = f"{i // 6000}.{i // 100 % 60:02d}.{i % 1000:03d}.{i * 7 % 1000:03d} I"
        slot = f"id {i % 16:2d} | task {i} |"
        lines += [
            f"{head} slot launch_slot_: {slot} processing task, is_child = 0",
            f"{head} slot print_timing: {slot} prompt eval time =    1281.37 ms /    70"
            " tokens (   18.31 ms per token,    54.63 tokens per second)",
            f"{head} slot print_timing: {slot}        eval time =    1854.53 ms /    64"
            " tokens (   29.44 ms per token,    33.97 tokens per second)",
            f"{head} slot print_timing: {slot}       total time =    3135.90 ms /   134"
            " tokens",
            f"{head} slot      release: {slot} stop processing: n_tokens = 137,"
            " truncated = 0",
        ]
    return _joined(lines)


def bars() -> bytes:
    """Progress bars: many states on one line, and one state a line."""
    lines = [_vllm(0, "vLLM API server version 0.19.0")]
    for n in range(200):
        total = 63
        states = [
            f"Loading safetensors checkpoint shards: {100 * k // total:3d}% Completed |"
            f" {k}/{total} [00:{k % 60:02d}<00:10,  1.23s/it]"
            for k in range(total + 1)
        ]
        lines.append("\r" + "\r".join(states))
        lines += [
            f"Capturing CUDA graphs (decode, FULL): {100 * k // total:3d}%|"
            f"{'#' * (k % 10):10s}| {k}/{total} [00:{n % 60:02d}<00:01, 12.3it/s]"
            for k in range(total + 1)
        ]
    return _joined(lines)


def access() -> bytes:
    """Access log alone."""
    return _joined(
        f'INFO:     10.0.0.{i % 250}:{i % 60000} - "POST /v1/completions HTTP/1.1" 200'
        " OK"
        for i in range(_BLOCK_LINES)
    )


def garbage_text() -> bytes:
    """Words of no logger."""
    draw = random.Random(7)
    words = [
        "".join(draw.choices("abcdefghijklmnopqrstuvwxyz", k=draw.randint(2, 9)))
        for _ in range(2000)
    ]
    return _joined(" ".join(draw.choices(words, k=12)) for _ in range(_BLOCK_LINES))


def garbage_bytes() -> bytes:
    """Bytes of no encoding."""
    return random.Random(7).randbytes(4_000_000)


def _joined(lines: "Iterator[str] | list[str]") -> bytes:
    return "\n".join(lines).encode() + b"\n"


KINDS: dict[str, Callable[[], bytes]] = {
    "vLLM starts": startup,
    "vLLM statistics": stats,
    "vLLM iterations": iterations,
    "JSON of the engine": json_lines,
    "JSON of docker": docker_json,
    "8 ranks": ranks,
    "SGLang serving": sglang,
    "llama-server serving": llama,
    "progress bars": bars,
    "access log": access,
    "text of no logger": garbage_text,
    "random bytes": garbage_bytes,
}
