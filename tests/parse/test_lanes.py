"""Samples read the short way are what the reader of all lines makes of them."""

import random
from functools import cache

import pytest
from benchmarks.log.kinds import KINDS
from benchmarks.log.snapshots import edited

from stepscope.parse.log.messages import WORDS, Messages
from stepscope.parse.log.plain import PlainLines
from stepscope.parse.log.samples import Named, start_s
from stepscope.parse.log.templates import Templates
from stepscope.parse.serverlog import LogReader, parse_log
from stepscope.run.serverlog import LogEvent

SAMPLED = {
    "vLLM statistics": "stats",
    "JSON of docker": "stats",
    "SGLang serving": "stats",
    "llama-server serving": "stats",
}
SPEC = (
    b"(APIServer pid=7) INFO 05-01 00:00:09 [metrics.py:86] SpecDecoding metrics: Mean"
    b" acceptance length: 2.46, Accepted throughput: 41.10 tokens/s, Drafted"
    b" throughput: 84.20 tokens/s, Accepted: 411 tokens, Drafted: 842 tokens,"
    b" Per-position acceptance rate: 0.734, 0.512, Avg Draft acceptance rate: 48.8%"
)


@cache
def whole(kind: str) -> list[bytes]:
    return KINDS[kind]().split(b"\n")


def block(kind: str, n: int = 1500) -> list[bytes]:
    return whole(kind)[:n]


def generally(lines: list[bytes]) -> list[LogEvent]:
    """Read every line by its frame and its names, as no long log is read."""
    messages = Messages(None)
    for n, raw in enumerate(lines, 1):
        if b" HTTP/1." not in raw and raw:
            messages.read(n, raw.decode("utf-8", "replace"))
    return messages.state.events["stats"].events


def shortly(lines: list[bytes]) -> list[LogEvent]:
    log = parse_log(b"\n".join(lines) + b"\n")
    return [event for event in log.events if event.kind == "stats"]


@pytest.mark.parametrize("kind", SAMPLED)
def test_a_sample_is_read_as_its_frame_and_its_names_say(kind: str) -> None:
    lines = block(kind)
    lines[700:700] = [SPEC] if "vLLM" in kind else []
    found = shortly(lines)
    assert len(found) > 300
    assert found == generally(lines)


@pytest.mark.parametrize("kind", ["vLLM statistics", "SGLang serving"])
def test_a_sample_with_a_changed_letter_is_read_as_its_names_say(kind: str) -> None:
    draw = random.Random(5)
    head, tail = block(kind)[:50], block(kind)[50:]
    marks = (b"Avg prompt", b"e batch", b"Prefill batch")
    lines = [
        edited(draw, line)
        if draw.random() < 0.3 and any(m in line for m in marks)
        else line
        for line in tail
    ]
    # What tells of a failure is another reader's.
    lines = head + [x for x in lines if b"rror" not in x and b"\r" not in x]
    found = {event.line: event for event in shortly(lines)}
    wanted = {event.line: event for event in generally(lines)}
    # A line that lost its frame is no line of a logger, and bare lines are not read.
    assert len(found) > 0.9 * len(wanted)
    assert {line: wanted.get(line) for line in found} == found


def test_an_iteration_has_the_time_and_the_engine_of_its_frame() -> None:
    lines = block("vLLM iterations", 60)
    lines[40] = (
        lines[40].replace(b"Engine 000", b"Engine 012").replace(b"r pid=7", b"r2 pid=8")
    )
    log = parse_log(b"\n".join(lines) + b"\n")
    event = next(e for e in log.events if e.line == 41)
    assert event.numbers["engine"] == 12.0
    assert event.process == "APIServer2"
    assert event.numbers["iteration"] == 37.0
    assert event.text == ""
    assert event.at_s == 10_368_003.0


def test_preemptions_are_events_of_their_own_among_samples() -> None:
    lines = block("vLLM statistics", 400)
    for n, line in enumerate(lines):
        if b"Avg prompt" in line and n > 200:
            lines[n] = line.replace(b", GPU KV", b", Preemptions: 3, GPU KV")
    log = parse_log(b"\n".join(lines) + b"\n")
    assert (
        log.event_counts["preemption"] == sum(b"Preemptions" in x for x in lines) > 40
    )


def test_a_long_servers_timings_keep_their_slots_beyond_ten_minutes() -> None:
    line = (
        b"%s I slot print_timing: id  3 | task 70 |        eval time =    1854.53 ms /"
        b"    64 tokens (   29.44 ms per token,    33.97 tokens per second)\n"
    )
    head = b"0.00.100.000 I srv  llama_server: loading model\n"
    clocks = (b"9.59.000.001", b"12.00.000.001", b"712.00.250.000")
    log = parse_log(head + b"".join(line % clock for clock in clocks))
    samples = [e for e in log.events if e.kind == "stats"]
    assert [e.numbers["slot"] for e in samples] == [3.0, 3.0, 3.0]
    assert [e.at_s for e in samples] == [599.000001, 720.000001, 42720.25]
    assert start_s(b"712.00.250.000") == 42720.25


def test_a_template_takes_numbers_by_place_and_refuses_what_it_can_not_place() -> None:
    templates = Templates()
    message = b"Engine 010: Avg prompt throughput: %b tokens/s, Running: %b reqs"
    for first, second in ((b"1.5", b"2"), (b"0.0", b"31"), (b"7", b"05")):
        assert templates.read(message % (first, second)) == {
            "engine": 10.0,
            "prompt_tokens_per_s": float(first),
            "n_running": float(second),
        }
    assert templates.read(message % (b"1.2.3", b"4")) is None
    assert templates.read(message % (b"-1.5", b"4")) is None
    assert templates.read(b"Engine 010: Iteration(3): 4 context requests") is None
    assert templates.read(b"Decode batch, \x1b[31m#running-req: 3") is None


def test_numbers_are_read_as_python_reads_them() -> None:
    draw = random.Random(3)
    named = Named("a", "b")
    for _ in range(2000):
        one = f"{draw.random() * 10 ** draw.randint(0, 12):.{draw.randint(1, 17)}f}"
        two = str(draw.getrandbits(draw.choice((3, 20, 64, 200))))
        found = named.read((one.encode(), two.encode()))
        assert found == {"a": float(one), "b": float(two)}
    assert named.read((b"007", b".5")) == {"a": 7.0, "b": 0.5}
    with pytest.raises(ValueError, match="could not convert"):
        named.read((b"1.2.3", b"4"))


def test_of_a_block_only_the_lines_that_may_mean_something_are_loud() -> None:
    lines = [b"quick brown fox %d" % n for n in range(300)]
    loud = {
        7: b"the quick MemoryError fox",
        8: b"Loading the quick fox",
        90: b"2026-05-01 10:00:00 fox",
        120: b"(EngineCore pid=1) the quick fox",
        121: b"[2026-05-01 10:00:00] fox",
        200: b'{"log": "fox"}',
        250: b"name-1  | the quick fox",
        251: b"fox: 12%| 3/9",
        299: b"GET / HTTP/1.1",
    }
    for n, line in loud.items():
        lines[n] = line
    plain = PlainLines(WORDS)
    assert plain.loud(lines) == sorted(loud)
    assert plain.loud(lines) == sorted(loud)
    # Bytes of no encoding are looked at in another way, with the same end.
    lines[0] = b"quick \xff fox"
    assert plain.loud(lines) == sorted(loud)


@pytest.mark.parametrize("kind", ["text of no logger", "random bytes"])
def test_a_failure_in_the_midst_of_plain_text_is_found_where_it_stands(
    kind: str,
) -> None:
    lines = [line for line in block(kind, 4000) if b"Traceback" not in line]
    at = 2_900
    lines[at:at] = [
        b"Traceback (most recent call last):",
        b'  File "/a/b.py", line 3, in run',
        b"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
    ]
    log = parse_log(b"\n".join(lines) + b"\n")
    assert [(f.signature, f.line) for f in log.failures] == [("gpu-oom", at + 3)]
    assert log.failures[0].frames == ("b.run",)


def test_pieces_change_nothing_once_lines_are_looked_at_together() -> None:
    data = b"\n".join(block("text of no logger", 3000) + block("vLLM statistics"))
    once = parse_log(data)
    reader = LogReader()
    for at in range(0, len(data), 5_000):
        reader.feed(data[at : at + 5_000])
    assert reader.close() == once
