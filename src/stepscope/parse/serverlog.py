"""A server log to its record: ``parse_log`` for whole logs, ``LogReader`` for streams.

No I/O: bytes in, a record out. Memory is bounded whatever the log's size. Lines that
mean nothing (access log, progress bars) are turned away before they are decoded, and
samples, of which a long log consists, are read without taking them apart.
"""

import re
from collections.abc import Iterable
from itertools import islice

from stepscope.parse.log.assemble import assemble
from stepscope.parse.log.bars import Bars, bar_name
from stepscope.parse.log.frame import Frame
from stepscope.parse.log.lanes import Lane, Lanes
from stepscope.parse.log.lines import LineSplitter
from stepscope.parse.log.messages import ANY_BAR, WORDS, Messages
from stepscope.parse.log.plain import PlainLines
from stepscope.parse.log.quick import dull_bare, dull_word, framed, sample_kind
from stepscope.parse.log.samples import (
    ITERATION,
    TIMING,
    iteration_numbers,
    timing_numbers,
)
from stepscope.parse.log.shapes import Dull
from stepscope.parse.log.state import Here
from stepscope.parse.log.vllm_boot import ready
from stepscope.parse.log.wrapping import Wrapping
from stepscope.run.serverlog import ServerLog

_ENGINE_NUMBER = re.compile(rb"Engine (\d+): ")
_BARE = Dull(stamped=False)
#: How the access log ends; other forms cost a longer look.
_ANSWER = b' HTTP/1.1" 200 OK'
#: Lines that are looked at together.
_GROUP = 256
#: So few lines are read one by one.
_FEW = 32


class LogReader:
    """Reads a log piece by piece.

    ``feed`` bytes as they come, then ``close`` once. A file that holds several starts
    of the server is read to its last one.
    """

    def __init__(self, engine: str | None = None) -> None:
        self._lines = LineSplitter()
        self._wrapping = Wrapping()
        self._messages = Messages(engine)
        self._shapes = self._messages.shapes
        self._lanes = Lanes(self._messages)
        self._bars = Bars()
        self._plain = PlainLines(WORDS)
        self._n_lines = 0
        self._n_plain = 0
        self._mute = False
        self._known_for: object = None
        self._head = b""
        self._head_frame = Frame("")
        self._head_engine = 0

    def feed(self, data: bytes) -> None:
        """Take the next bytes."""
        self._wrapping.see(data)
        lines = iter(self._wrapping.bare(self._lines.feed(data)))
        while group := list(islice(lines, _GROUP)):
            if self._mute and len(group) >= _FEW:
                self._mute = self._skim(group)
                continue
            self._n_plain = 0
            self._each(group)
            self._mute = self._n_plain * 2 > len(group)

    def _skim(self, group: list[bytes]) -> bool:
        """Read the few lines that are no plain text; say whether they were few."""
        begin = self._n_lines
        if not self._may_skim():
            self._each(group)
            return False
        loud = self._plain.loud(group)
        for n in loud:
            self._n_lines = begin + n
            self._each(group[n : n + 1])
            if not self._may_skim():
                self._each(group[n + 1 :])
                break
        self._n_lines = begin + len(group)
        return len(loud) * 2 < len(group)

    def _may_skim(self) -> bool:
        """True while a plain line means nothing: no traceback or bar is going on."""
        return self._bars.idle and not self._messages.failures.busy(self._n_lines + 1)

    def _each(self, lines: list[bytes]) -> None:
        number, skips = self._n_lines, self._shapes.skips
        until, lane = self._messages.failures.until, self._lane()
        climbs = self._bars.climbs if self._climbing() else None
        for raw in lines:
            number += 1
            if raw.endswith(_ANSWER) and b"rror" not in raw:
                self._answered(number, raw)
            elif lane is not None and lane(number, raw):
                continue
            elif b" HTTP/1." in raw and b'"' in raw and b"rror" not in raw:
                self._answered(number, raw)
            elif climbs is not None and climbs(number, raw):
                continue
            elif raw and (number <= until or not skips(number, raw)):
                if b" I slot " in raw and b" time =" not in raw:
                    continue  # What else a slot tells is of no use.
                self._n_lines = number
                self._raw(raw)
                until, lane = self._messages.failures.until, self._lane()
                climbs = self._bars.climbs if self._climbing() else None
        self._n_lines = number

    def _lane(self) -> Lane | None:
        """Return what takes samples from here on, until another line is read."""
        lane = self._lanes.choose()
        if lane is None or not self._bars.idle or self._known_for != self._known():
            return None
        return lane

    def _climbing(self) -> bool:
        """True where a bar's states need only be held back."""
        state = self._messages.state
        return (
            bool(self._bars.climbing)
            and state.ready_line is None
            and not state.is_thinned
        )

    def _known(self) -> tuple[str | None, bool, int]:
        """Return what decides whether a line means something."""
        state = self._messages.state
        return state.engine, state.ready_line is None, self._messages.n_boots

    def _answered(self, number: int, raw: bytes) -> None:
        """Count an answered request.

        It says that the server is up, whatever else was printed; but SGLang answers
        requests of its own before it says that it is ready.
        """
        state = self._messages.state
        state.n_requests += 1
        if state.ready_line is not None or b'" 200' not in raw:
            return
        if state.engine == "sglang" or b"GET /health" in raw:
            return
        self._n_lines = number
        frame = self._messages.frames.read(raw.decode("utf-8", "replace"))
        if frame.engine == "sglang":
            return
        self._messages.stamp(frame)
        ready(state, Here(number, frame))

    def close(self) -> ServerLog:
        """Return the record; the reader is spent afterwards."""
        truncated = False
        self._each(self._wrapping.bare(self._lines.short()))
        for raw in self._wrapping.bare(list(self._lines.close())):
            truncated = True
            self._n_lines += 1
            self._raw(raw)
        self._bars_read()
        self._messages.stamp(None)
        self._worked()
        return assemble(
            self._messages.state,
            n_lines=self._n_lines,
            n_boots=self._messages.n_boots,
            truncated=truncated,
            n_cut=self._lines.n_cut,
        )

    def _raw(self, raw: bytes) -> None:
        state = self._messages.state
        if state.is_thinned and self._thinned(raw):
            return
        if (b"%" in raw or self._bars.climbing) and self._held_back(raw):
            return
        if b"Iteration(" in raw:
            match = ITERATION.search(raw)
            if match is not None:
                self._iteration(raw, match)
                return
        elif state.engine == "vllm":
            if self._dull(raw):
                return
        elif (b" print_timing: " in raw and self._timing(raw)) or (
            b"\r" not in raw[:-1] and self._is_plain(raw)
        ):
            return
        if b"\r" in raw:
            raw = raw.rstrip(b"\r")
            if b"\r" in raw:
                self._folded(raw)
                return
        dull = self._messages.read(self._n_lines, raw.decode("utf-8", "replace"))
        known = self._known()
        if known != self._known_for:
            # What means nothing now may have meant something before, and the reverse.
            self._known_for = known
            self._worked()
            self._shapes.forget()
        elif dull is not None and not self._messages.failures.busy(self._n_lines):
            self._shapes.learn(raw, dull)

    def _worked(self) -> None:
        """Credit the processes whose signs of life were turned away."""
        for process, line in self._shapes.worked().items():
            facts = self._messages.state.process(process)
            facts.last_work_line = max(facts.last_work_line, line)

    def _dull(self, raw: bytes) -> bool:
        """Turn away a line that means nothing: any while serving, bare ones before."""
        found = framed(raw)
        state = self._messages.state
        serving = state.ready_line is not None
        if found is None:
            if self._messages.failures.busy(self._n_lines) or (
                not serving and b"|" in raw and b"%" in raw
            ):
                return False
            if not dull_bare(raw):
                return False
            self._n_plain += 1
            self._shapes.learn(raw, _BARE)
            return True
        if not serving:
            return False
        word = found
        if not dull_word(word, raw):
            return word == b"Engine" and state.thinned("stats")
        self._shapes.stamp_of = raw
        return True

    def _is_plain(self, raw: bytes) -> bool:
        """Tell whether no logger framed a line and it means nothing."""
        plain = (
            self._messages.state.engine != "vllm"
            and not self._messages.failures.busy(self._n_lines)
            and self._plain.has(raw)
        )
        self._n_plain += plain
        return plain

    def _thinned(self, raw: bytes) -> bool:
        """Count a sample that is not kept, before anything of it is read."""
        kind = sample_kind(raw)
        if kind is None or not self._messages.state.thinned(kind):
            return False
        self._shapes.stamp_of = raw
        return True

    def _held_back(self, raw: bytes) -> bool:
        held = self._bars.holds(self._n_lines, raw)
        if held:
            return True
        self._bars_read()
        if held is None:
            self._bars.climbing.clear()
        return False

    def _bars_read(self) -> None:
        """Read the last states of the bars that were held back: other talk follows."""
        for line, raw in self._bars.taken():
            self._messages.read(line, raw.rstrip(b"\r").decode("utf-8", "replace"))

    def _timing(self, raw: bytes) -> bool:
        """Take a timing line of llama-server in its current form."""
        match = TIMING.match(raw)
        if match is None:
            return False
        if not self._messages.state.thinned("stats"):
            frame = self._messages.frames.read(raw.decode("utf-8", "replace"))
            self._messages.stamp(frame)
            here = Here(self._n_lines, frame)
            self._messages.state.event(here, "stats", timing_numbers(match))
        return True

    def _iteration(self, raw: bytes, match: re.Match[bytes]) -> None:
        if self._messages.state.thinned("iteration"):
            return
        head = raw[: match.start()]
        if head != self._head:  # It holds the second, so many lines share it.
            named = _ENGINE_NUMBER.search(head)
            frame = self._messages.frames.read(head.decode("utf-8", "replace"))
            frame.text = ""
            self._head, self._head_frame = head, frame
            self._head_engine = int(named[1]) if named is not None else 0
        self._messages.stamp(self._head_frame)
        here = Here(self._n_lines, self._head_frame)
        found = iteration_numbers(match, float(self._head_engine))
        self._messages.state.event(here, "iteration", found)

    def _folded(self, raw: bytes) -> None:
        """Several states of a bar on one line: the last of each is kept."""
        bars: dict[str, bytes] = {}
        for piece in raw.split(b"\r"):
            name = bar_name(piece)
            if name is not None and piece.isascii():
                bars[name.decode("ascii")] = piece
                continue
            if not piece or self._is_plain(piece):
                continue
            text = piece.decode("utf-8", "replace")
            if ANY_BAR.search(text):
                bars[text.split("%", 1)[0].rstrip("0123456789 ")] = piece
            else:
                self._messages.read(self._n_lines, text)
        for piece in bars.values():
            self._messages.read(self._n_lines, piece.decode("utf-8", "replace"))


def parse_log(data: bytes | Iterable[bytes], engine: str | None = None) -> ServerLog:
    """Read a whole server log.

    Args:
        data: The log, or its pieces in order; a piece may end anywhere.
        engine: ``vllm``, ``sglang`` or ``llamacpp`` where it is known; by default the
            log is asked.

    Returns:
        What the log says. Nothing in a log is an error: text that is no log gives a
        record without an engine, and the finding ``unknown-log-version``.
    """
    reader = LogReader(engine)
    if isinstance(data, (bytes, bytearray, memoryview)):
        view = memoryview(data)
        for at in range(0, len(view), 1 << 22):
            reader.feed(bytes(view[at : at + (1 << 22)]))
    else:
        for piece in data:
            reader.feed(piece)
    return reader.close()
