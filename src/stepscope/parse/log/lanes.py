"""Samples of a serving engine, read without taking their frame and names apart.

A log that grows is nearly all samples: statistics, iterations, batches, timings. Their
frames differ in the clock alone, so a frame is read once for each process; what the
message says is read by ``templates``. Whatever is not exactly as it was met before is
left to the reader that understands all lines, and that one's record is the law.
"""

import re
from collections.abc import Callable

from stepscope.parse.log.frame import Head, vllm_head
from stepscope.parse.log.messages import Messages
from stepscope.parse.log.quick import framed, sample_kind
from stepscope.parse.log.samples import (
    ITERATION,
    TIMING,
    batch_numbers,
    iteration_numbers,
    start_s,
    timing_numbers,
)
from stepscope.parse.log.state import MAX_TEXT
from stepscope.run.serverlog import LogEvent

#: docker's json-file around a line in which nothing had to be escaped.
_DOCKER = re.compile(
    rb'\{"log": ?"([^"\\\x00-\x1f\x7f-\xff]*)\\n", ?"stream": ?"std(?:out|err)",'
    rb' ?"time": ?"[\w:.+-]*"\}'
)
_SGLANG = re.compile(
    rb"\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d((?: (?:[A-Z]{2,4}\d+|[a-z_]+))*)\] "
)
_ENGINE_NUMBER = re.compile(rb"Engine (\d+): ")
_MAX_HEADS = 4_096

#: How far into a line its frame may reach.
_MAX_FRAME = 200
_VLLM_STARTS = frozenset({b"Engine", b"SpecDe"})
_MAX_CLOCK = 40
_TIMED = b" I slot print_timing: "

Lane = Callable[[int, bytes], bool]


class Lanes:
    """Chooses a lane for what is known, and reads the samples that fit it."""

    def __init__(self, messages: Messages) -> None:
        self._messages = messages
        self._templates = messages.templates
        self._shapes = messages.shapes
        self._heads: dict[bytes, Head | None] = {}
        self._tags: dict[bytes, str | None] = {}
        self._last = b""
        self._last_known = False
        self._process: str | None = None
        self._at_s: float | None = None

    def choose(self) -> Lane | None:
        """Return what takes a line that is a sample and says whether it was one.

        None while nothing is known of the engine, or where its clock is another one.
        """
        state = self._messages.state
        if state.first_at_s is None:
            return None
        if state.engine == "vllm" and state.clock == "year":
            # The first statistics tell that it is ready.
            return self._vllm if state.ready_line is not None else None
        if state.engine == "sglang" and state.clock == "unix":
            return self._sglang
        if state.engine == "llamacpp" and state.clock == "start":
            return self._llama
        return None

    def _thinned(self, raw: bytes) -> bool | None:
        """True: counted and left out; None: not a sample that may be left out."""
        kind = sample_kind(raw)
        if kind is None:
            return None
        if not self._messages.state.thinned(kind):
            return False
        self._shapes.stamp_of = raw
        return True

    def _keep(
        self, line: int, text: str, found: dict[str, float], kind: str = "stats"
    ) -> bool:
        state, at_s = self._messages.state, self._at_s
        self._shapes.stamp_of = None
        state.last_at_s = at_s
        state.keep(
            LogEvent(
                kind=kind,
                line=line,
                text=text,
                at_s=at_s,
                process=self._process,
                numbers=found,
            )
        )
        return True

    def _vllm(self, line: int, raw: bytes) -> bool:
        start = raw.find(b"] ", 0, _MAX_FRAME) + 2
        if raw[start : start + 6] not in _VLLM_STARTS:
            return False
        if self._messages.state.is_thinned:
            thinned = self._thinned(raw)
            if thinned is not False:
                return thinned or False
        if raw[:1] == b"{":
            wrapped = _DOCKER.fullmatch(raw)
            inner = wrapped[1] if wrapped is not None else b""
            start = inner.find(b"] ") + 2
            return self._headed(inner, start) and self._stats(line, inner[start:])
        if not self._headed(raw, start):
            return False
        at = raw.find(b" Iteration(", start, start + 24) + 1
        if at:
            return self._iteration(line, raw, start, at)
        return self._stats(line, raw[start:])

    def _stats(self, line: int, message: bytes) -> bool:
        found = self._templates.read(message)
        if found is None or len(message) > MAX_TEXT or found.get("n_preemptions"):
            return False
        return self._keep(line, message.decode("ascii"), found)

    def _headed(self, raw: bytes, start: int) -> bool:
        """Read what stands before ``start``; say whether it is as it was before."""
        head = raw[:start]
        if head == self._last:
            return self._last_known
        self._last, self._last_known = head, False
        at = head.rfind(b" [") - 14
        if at < 0:
            return False
        key = head[:at] + head[at + 14 :]
        try:
            known = self._heads[key]
        except KeyError:
            known = None
            if framed(raw) in (b"Engine", b"SpecDecoding"):
                known = vllm_head(head.decode("utf-8", "replace"), at)
            if len(self._heads) < _MAX_HEADS:
                self._heads[key] = known
        if known is None:
            return False
        self._process = known.process
        self._at_s = self._messages.frames.year_s(head[at : at + 14])
        self._last_known = self._at_s is not None
        return self._last_known

    def _iteration(self, line: int, raw: bytes, start: int, at: int) -> bool:
        match = ITERATION.match(raw, at)
        number = raw[start + 7 : at - 2]
        if match is None or raw[at - 2 : at - 1] != b":" or not number.isdigit():
            return False
        found = iteration_numbers(match, float(number))
        return self._keep(line, "", found, "iteration")

    def _sglang(self, line: int, raw: bytes) -> bool:
        start = raw.find(b"] ", 0, _MAX_FRAME) + 2
        message = raw[start:]
        if not message.startswith((b"Decode batch", b"Prefill batch")):
            return False
        if self._messages.state.is_thinned:
            thinned = self._thinned(raw)
            if thinned is not False:
                return thinned or False
        if not self._tagged(raw, start):
            return False
        found = self._templates.read(message)
        if found is None or len(message) > MAX_TEXT or found.get("n_retracted"):
            return False
        found = batch_numbers(found, prefill=message[:1] == b"P")
        return self._keep(line, message.decode("ascii"), found)

    def _tagged(self, raw: bytes, start: int) -> bool:
        """Read SGLang's frame; say whether it is as it was before."""
        head = raw[:start]
        if head == self._last:
            return self._last_known
        self._last, self._last_known = head, False
        key = head[:1] + head[20:]
        try:
            self._process = self._tags[key]
        except KeyError:
            match = _SGLANG.fullmatch(head)
            if match is None:
                return False
            self._process = match[1].decode("ascii").strip() or None
            if len(self._tags) < _MAX_HEADS:
                self._tags[key] = self._process
        self._at_s = self._messages.frames.date_s(head[1:20])
        self._last_known = self._at_s is not None
        return self._last_known

    def _llama(self, line: int, raw: bytes) -> bool:
        at = raw.find(b" I slot ", 0, _MAX_CLOCK)
        if at < 0:
            return False
        match = TIMING.match(raw) if raw.startswith(_TIMED, at) else None
        if match is None:
            return b" time =" not in raw  # What else a slot tells is of no use.
        if not raw.isascii() or b"[" in raw or b"\x1b" in raw:
            return False  # It may be coloured.
        if self._messages.state.is_thinned:
            thinned = self._thinned(raw)
            if thinned is not False:
                return thinned or False
        self._process, self._at_s = None, start_s(raw[:at])
        text = raw[at + 3 :].decode("ascii")[:MAX_TEXT]
        return self._keep(line, text, timing_numbers(match))
