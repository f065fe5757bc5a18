"""Whatever stands in a trace: an answer that closes, or one line of refusal."""

import gzip
import json
import random
from pathlib import Path
from typing import Any

import pytest
from tests.timeline.planting import PI0, TRACES

from stepscope.errors import ArchiveError
from stepscope.timeline.analyze import analyze_traces
from stepscope.timeline.device import read_device
from stepscope.timeline.load import load_trace
from stepscope.timeline.perfetto import perfetto
from stepscope.timeline.picture import step_picture

_KEYS = ("ts", "dur", "pid", "tid", "cat", "name", "ph", "args")
_ARGS = ("stream", "correlation", "device", "graph node id")
_ODD: tuple[Any, ...] = (
    None, "x", -1, 0, 1e300, -5.5, 2**63, 2**70, "5", True, 1e16, 3.25, [], {},
)  # fmt: skip


def real_events() -> list[dict[str, Any]]:
    document = json.loads(gzip.decompress((TRACES / PI0).read_bytes()))
    events = [e for e in document["traceEvents"] if e.get("ph") == "X"]
    return sorted(events, key=lambda e: e["ts"])


def spoiled(events: list[dict[str, Any]], rng: random.Random) -> bytes:
    """Take a stretch of a trace, and make some fields and some bytes odd."""
    at = rng.randrange(len(events) - 100)
    size = rng.choice([0, 1, 2, 30, 400, 1500])
    some = [{**e, "args": dict(e.get("args", {}))} for e in events[at : at + size]]
    for _ in range(rng.choice([0, 1, 5, 60]) if some else 0):
        event = rng.choice(some)
        if rng.random() < 0.4 and isinstance(event.get("args"), dict):
            event["args"] = {**event["args"], rng.choice(_ARGS): rng.choice(_ODD)}
        elif rng.random() < 0.2:
            event.pop(rng.choice(_KEYS), None)
        else:
            event[rng.choice(_KEYS)] = rng.choice(_ODD)
    text = json.dumps({"traceEvents": some} if rng.random() < 0.8 else some)
    data = bytearray(text.encode())
    for _ in range(rng.choice([0, 0, 1, 3])):
        data[rng.randrange(len(data))] = rng.randrange(256)
    return bytes(data)


@pytest.mark.parametrize("seed", range(4))
def test_any_events_give_an_answer_or_one_line(seed: int, tmp_path: Path) -> None:
    rng, events = random.Random(seed), real_events()
    path = tmp_path / "t.json"
    answered = 0
    refusals = []
    for _ in range(40):
        path.write_bytes(spoiled(events, rng))
        try:
            traces = load_trace(path)
        except ArchiveError as error:
            refusals.append(str(error))
            continue
        answered += 1
        found = analyze_traces(traces)
        for rank in found.ranks:
            assert rank.closes_to_pct in (None, 0)
            if not found.quality.usable:
                assert rank.busy_pct is None
        for device in map(read_device, traces):
            if len(device.start):
                step_picture(device)
                perfetto([device], 2)
    assert answered > 10
    assert not any("\n" in text for text in refusals)


def test_a_file_whose_device_records_are_all_bad_has_none(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_text('[{"ph":"X","cat":"kernel","name":"k","ts":0,"dur":0}]')
    (trace,) = load_trace(path)
    assert len(trace.ops) == 0
    assert trace.n_zero_stamps == 1
    assert "no-device-records" in analyze_traces([trace]).quality.defects


@pytest.mark.parametrize("stamp", ["1e400", "-1e400", "1e999999"])
def test_a_stamp_beyond_all_numbers_is_a_bad_record(tmp_path: Path, stamp: str) -> None:
    path = tmp_path / "t.json"
    path.write_text(
        f'[{{"ph":"X","cat":"kernel","name":"k","ts":{stamp},"dur":1,'
        '"args":{"correlation":1}}]'
    )
    (trace,) = load_trace(path)
    assert len(trace.ops) == 0
