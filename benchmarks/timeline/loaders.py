"""Time our loader and simple peers on traces of 300 MB made out of real ones.

python loaders.py FOLDER [--mb 300] [--only ours,json] TRACE...

FOLDER receives the large traces; one of an nsys export (.sqlite) only our loader reads.
CPU seconds and peak memory are of a fresh process
that does nothing but load; the interpreter's start (a load of a tiny trace) is taken
off the seconds and not off the memory.
"""

import argparse
import gzip
import json
import os
import resource
import sys
from multiprocessing import Process
from pathlib import Path

from enlarge_nsys import enlarge as enlarge_nsys
from replicate import replicate


def ours(path: Path) -> int:
    from stepscope.timeline.load import load_trace

    return sum(len(trace.ops) for trace in load_trace(path))


def stdlib_json(path: Path) -> int:
    data = path.read_bytes()
    document = json.loads(gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data)
    events = document["traceEvents"] if isinstance(document, dict) else document
    return sum(event.get("cat") in _DEVICE for event in events)


def orjson_whole(path: Path) -> int:
    import orjson

    data = path.read_bytes()
    document = orjson.loads(gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data)
    events = document["traceEvents"] if isinstance(document, dict) else document
    return sum(event.get("cat") in _DEVICE for event in events)


def msgspec_untyped(path: Path) -> int:
    import msgspec

    data = path.read_bytes()
    plain = gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
    document = msgspec.json.decode(plain)
    events = document["traceEvents"] if isinstance(document, dict) else document
    return sum(event.get("cat") in _DEVICE for event in events)


def hta(path: Path) -> int:
    from hta.common.trace_parser import parse_trace_dataframe
    from hta.configs.parser_config import ParserConfig

    _, frame, *_ = parse_trace_dataframe(str(path), ParserConfig.get_default_cfg())
    return int((frame["stream"] >= 0).sum())


_DEVICE = {"kernel", "gpu_memcpy", "gpu_memset"}
LOADERS = {
    "ours": ours,
    "json": stdlib_json,
    "msgspec": msgspec_untyped,
    "orjson": orjson_whole,
    "hta": hta,
}


def cost(name: str, path: Path) -> tuple[float, float, int] | None:
    """Load in a child; return CPU seconds, peak MB and number of device operations."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        os.dup2(writer, 9)
        os.set_inheritable(9, True)
        me = [sys.executable, __file__, "--load", name, str(path)]
        os.execv(sys.executable, me)
    os.close(writer)
    with os.fdopen(reader) as stream:
        said = stream.read()
    _, status, used = os.wait4(child, 0)
    if status or not said:
        return None
    return used.ru_utime + used.ru_stime, used.ru_maxrss / 1024, int(said)


def enlarge(source: Path, large: Path, known: Path, n_mb: int) -> None:
    if source.suffix == ".sqlite":
        enlarge_nsys(source, large, max(n_mb * 10**6 // source.stat().st_size, 1))
        known.write_text(str(large.stat().st_size))
        return
    known.write_text(str(replicate(source, large, n_mb * 10**6)))


def _forms(source: Path, *, gz: bool) -> tuple[str, ...]:
    if source.suffix == ".sqlite":
        return (".sqlite",)
    return (".json", ".json.gz") if gz else (".json",)


def main() -> None:
    if sys.argv[1:2] == ["--load"]:
        n = LOADERS[sys.argv[2]](Path(sys.argv[3]))
        os.write(9, str(n).encode())
        return
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("traces", nargs="+", type=Path)
    parser.add_argument("--mb", type=int, default=300)
    parser.add_argument("--only", default="ours,json,msgspec")
    parser.add_argument("--gz", action="store_true", help="also the compressed form")
    wanted = parser.parse_args()
    print("| trace | loader | MB | operations | CPU s | MB per CPU s | peak MB |")
    print("|---|---|---|---|---|---|---|")
    for source in wanted.traces:
        for suffix in _forms(source, gz=wanted.gz):
            large = wanted.folder / (source.name.split(".")[0] + "-large" + suffix)
            known = large.with_suffix(".bytes")
            if not known.exists():
                # A child's peak begins with what its parent holds when it forks.
                make = Process(target=enlarge, args=(source, large, known, wanted.mb))
                make.start()
                make.join()
            size = int(known.read_text()) / 1e6
            every = wanted.only.split(",")
            for name in every if suffix != ".sqlite" else ["ours"]:
                idle = cost(name, source)
                full = cost(name, large)
                label = f"| {large.name} | {name} | {size:.0f} |"
                if idle is None or full is None:
                    print(label, "failed | | | |", flush=True)
                    continue
                seconds = full[0] - idle[0]
                print(
                    label,
                    f"{full[2]} | {seconds:.2f} | {size / seconds:.0f} |"
                    f" {full[1]:.0f} |",
                    flush=True,
                )
    print("peak of this process, for scale:", resource.getrusage(0).ru_maxrss // 1024)


if __name__ == "__main__":
    main()
