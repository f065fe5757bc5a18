"""What others put before every line of a log changes nothing of what is read."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from stepscope.parse.log.frame import FrameReader
from stepscope.parse.log.wrapping import Wrapping
from stepscope.parse.serverlog import parse_log

LOGS = Path(__file__).parents[1] / "data" / "logs"
NAMES = [
    "vllm-dsv41-baseline.log",
    "h200/kv-small.log.gz",
    "retold/capture-sglang-0.4.6-tp8-rank7.log",
    "retold/load-0.8.5-lost-esc.log",
    "retold/load-llama-cuda.log",
    "retold/runtime-0.16-dies-later.log",
    "retold/sigterm-0.26.log",
]

WRAPS: dict[str, Callable[[bytes], bytes]] = {
    "docker compose": lambda x: b"vllm-1  | " + x,
    "docker with stamps": lambda x: b"2026-06-02T09:00:00.123456789Z " + x,
    "CRI": lambda x: b"2026-06-02T09:00:00.123456789+02:00 stderr F " + x,
    "kubectl": lambda x: b"[pod/vllm-0/server] " + x,
    "stern": lambda x: b"glm-5-agg-78f968cf54-6c78t modelserver " + x,
    "journal": lambda x: b"Jun 02 09:00:00 gpu-7 vllm[123]: " + x,
    "journal with years": lambda x: b"2026-06-02T09:00:00+0000 gpu-7 vllm[123]: " + x,
    "a launcher": lambda x: b"2026-06-09 14:01:54.604 [Info] (Process) " + x,
    "Python's logging": lambda x: b"2026-06-02 09:50:27,531 - __main__ - INFO - " + x,
    "a stamp in brackets": lambda x: b"[2026-06-06T02:10:00.703Z] " + x,
    "VLLM_LOGGING_PREFIX": lambda x: b"[node7/job-12] " + x,
    "a terminal": lambda x: b"\x1b[32m" + x + b"\x1b[0m",
    "a terminal in a container": lambda x: b"\x1b[36mvllm-1  |\x1b[0m " + x,
    "Windows": lambda x: x + b"\r",
}


def data_of(name: str) -> bytes:
    data = (LOGS / name).read_bytes()
    return gzip.decompress(data) if name.endswith(".gz") else data


def wrapped(data: bytes, wrap: Callable[[bytes], bytes]) -> bytes:
    lines = data.removesuffix(b"\n").split(b"\n")
    return b"".join(wrap(line) + b"\n" for line in lines)


@pytest.mark.parametrize("wrap", WRAPS)
@pytest.mark.parametrize("name", NAMES)
def test_a_wrapped_log_gives_the_record_of_the_bare_one(name: str, wrap: str) -> None:
    data = data_of(name)
    assert parse_log(wrapped(data, WRAPS[wrap])) == parse_log(data)


@pytest.mark.parametrize("size", [1, 101, 4096])
def test_a_wrapped_log_may_come_in_pieces(size: int) -> None:
    data = wrapped(data_of(NAMES[-1]), WRAPS["stern"])
    pieces = (data[at : at + size] for at in range(0, len(data), size))
    assert parse_log(pieces) == parse_log(data)


def test_a_collector_of_logs_may_have_wrapped_each_line_in_json() -> None:
    data = data_of(NAMES[-1])
    collected = wrapped(
        data, lambda x: json.dumps({"ts": 1, "line": x.decode()}).encode()
    )
    bare, found = parse_log(data), parse_log(collected)
    assert found.ledger == bare.ledger
    assert found.resolved == bare.resolved
    assert found.boot == bare.boot


def test_a_log_that_begins_bare_is_left_as_it_is() -> None:
    first = b"(EngineCore pid=2) INFO 06-02 09:00:00 [core.py:1] x"
    later = b"vllm-1  | (EngineCore pid=2) INFO 06-02 09:00:01 [core.py:1] y"
    wrapping = Wrapping()
    assert wrapping.bare([first]) == [first]
    assert wrapping.bare([later]) == [later]


def test_only_as_many_prefixes_are_taken_off_as_the_first_line_has() -> None:
    wrapping = Wrapping()
    wrapping.bare([b"a-1  | INFO 06-02 09:00:00 [core.py:1] x"])
    assert wrapping.bare([b"a-2  | name | value"]) == [b"name | value"]


@pytest.mark.parametrize("odd", ["NaN", "1e999", '"\\ud800"'])
def test_a_json_line_with_what_strict_decoders_refuse_is_read_like_any_other(
    odd: str,
) -> None:
    line = (
        '{"levelname": "INFO", "asctime": "06-02 09:00:0%d", "processName":'
        ' "APIServer", "x": %s, "message": "%s"}\n'
    )
    said = "vLLM API server version 0.19.0", "Application startup complete."
    logs = [
        "".join(line % (n, value, text) for n, text in enumerate(said))
        for value in ("1", odd)
    ]
    plain, found = (parse_log(log.encode()) for log in logs)
    assert found == plain
    assert found.version == "0.19.0"


def test_each_json_line_has_its_own_stamp() -> None:
    reader = FrameReader()
    stamps = ["06-02 09:00:01", "06-02 09:00:01", None, "2026-06-02T09:00:02", "later"]
    read = [
        reader.read(json.dumps({"asctime": at, "processName": "p", "message": "m"}))
        for at in [*stamps, stamps[0]]
    ]
    first = read[0].at_s
    assert first is not None
    clocks = [frame.clock for frame in read]
    assert clocks == ["year", "year", None, "unix", None, "year"]
    assert [f.at_s == first for f in read] == [True, True, False, False, False, True]
