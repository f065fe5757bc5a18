"""A server log to its record: ``parse_log`` for whole logs, ``LogReader`` for streams.

No I/O: bytes in, a record out. Memory is bounded whatever the log's size. Lines that
mean nothing (access log, progress bars) are turned away before they are decoded.
"""

import re
from collections.abc import Iterable

from stepscope.parse.log.assemble import assemble
from stepscope.parse.log.bars import Bars
from stepscope.parse.log.failures import FailureReader
from stepscope.parse.log.frame import Frame, FrameReader
from stepscope.parse.log.lines import LineSplitter
from stepscope.parse.log.llamacpp import read_llama
from stepscope.parse.log.plain import PlainLines
from stepscope.parse.log.quick import dull_bare, dull_word, framed, sample_kind
from stepscope.parse.log.rules import Rules, apply, first_word, untagged, valued
from stepscope.parse.log.samples import (
    ITERATION,
    TIMING,
    current_timing,
    engine_stats,
    iteration,
    sglang_batch,
    spec_stats,
)
from stepscope.parse.log.sglang import SGLANG_RULES
from stepscope.parse.log.shapes import Dull, Shapes
from stepscope.parse.log.state import Here, State
from stepscope.parse.log.vllm_boot import BOOT_RULES, capture_bar, ready
from stepscope.parse.log.vllm_config import CONFIG_RULES, read_loose
from stepscope.parse.log.vllm_memory import MEMORY_RULES
from stepscope.run.serverlog import ServerLog

_BAR = re.compile(
    r"(?P<what>[A-Z][^:|%]{2,80}):? +(?P<pct>\d+)% ?(?:Completed ?)?\|"
    r"(?:[^|]{0,40}\|)? ?"
    r"(?P<done>\d+)/(?P<total>\d+) \[(?P<spent>[\d:]+)"
)
_ANY_BAR = re.compile(r"\d+%(?: Completed)? ?\|")
_CAPTURE = re.compile(
    r"Capturing (?:\w+ )?(?:CUDA|cuda|HIP) graphs?(?: shapes)?(?: \(([^)]*)\))?"
)
_VERSION_BANNER = re.compile(r"version (\d+\.\d+\S*)\s*$")
_DEVICE = re.compile(r"NVIDIA[ _](?:[A-Z][\w]*[ _])*?[A-Z]*\d{2,5}[\w]*")
_ENGINE_NUMBER = re.compile(rb"Engine (\d+): ")
#: A cheap look before the dear one.
_ENDING = re.compile(r"hutdown|hutting|SIG|signal|Interrupt|raceful")
_SHUTDOWN = re.compile(
    r"\[shutdown\] (?:API server: shutdown triggered|EngineCore: trigger received)|"
    r"Shutting down$|Received SIGTERM|SIGTERM received|Received signal (?:2|15)\b|"
    r"Shutting down FastAPI|KeyboardInterrupt|Gracefully exiting|received SIGINT"
)
_MERGED: Rules = {
    word: tuple(
        row
        for table in (BOOT_RULES, MEMORY_RULES, CONFIG_RULES, SGLANG_RULES)
        for row in table.get(word, ())
    )
    for word in {*BOOT_RULES, *MEMORY_RULES, *CONFIG_RULES, *SGLANG_RULES}
}
_VALUED = valued(_MERGED)
_BARE = Dull(stamped=False)
#: First words of bare lines that some table knows.
_WORDS = frozenset(word.encode() for word in _MERGED)


class LogReader:
    """Reads a log piece by piece.

    ``feed`` bytes as they come, then ``close`` once. A file that holds several starts
    of the server is read to its last one.
    """

    def __init__(self, engine: str | None = None) -> None:
        self._engine = engine
        self._lines = LineSplitter()
        self._frames = FrameReader()
        self._failures = FailureReader()
        self._state = State()
        self._state.engine = engine
        self._n_lines = 0
        self._n_boots = 1
        self._shapes = Shapes()
        self._bars = Bars()
        self._plain = PlainLines(_WORDS)
        self._known_for: object = None
        self._head = b""
        self._head_frame = Frame("")
        self._head_engine = 0

    def feed(self, data: bytes) -> None:
        """Take the next bytes."""
        number = self._n_lines
        skips, busy = self._shapes.skips, self._failures.busy
        for raw in self._lines.feed(data):
            number += 1
            if b" HTTP/1." in raw and b'"' in raw and b"rror" not in raw:
                self._state.n_requests += 1
                if self._state.ready_line is None and b'" 200' in raw:
                    self._serving(number, raw)
            elif (
                raw
                and not (b" I slot " in raw and b" time =" not in raw)
                and (busy(number) or not skips(number, raw))
            ):
                self._n_lines = number
                self._raw(raw)
                busy = self._failures.busy
        self._n_lines = number

    def _serving(self, number: int, raw: bytes) -> None:
        """A request was answered, so the server is up, whatever else was printed.

        SGLang answers requests of its own before it says that it is ready.
        """
        if self._state.engine == "sglang" or b"GET /health" in raw:
            return
        self._n_lines = number
        frame = self._frames.read(raw.decode("utf-8", "replace"))
        if frame.engine == "sglang":
            return
        self._stamp(frame)
        ready(self._state, Here(number, frame))

    def close(self) -> ServerLog:
        """Return the record; the reader is spent afterwards."""
        truncated = False
        for raw in self._lines.close():
            truncated = True
            self._n_lines += 1
            self._raw(raw)
        self._bars_read()
        self._stamp(None)
        for process, line in self._shapes.worked().items():
            facts = self._state.process(process)
            facts.last_work_line = max(facts.last_work_line, line)
        return assemble(
            self._state,
            n_lines=self._n_lines,
            n_boots=self._n_boots,
            truncated=truncated,
            n_cut=self._lines.n_cut,
        )

    def _raw(self, raw: bytes) -> None:
        if self._state.event_strides and self._thinned(raw):
            return
        if (b"%" in raw or self._bars.climbing) and self._held_back(raw):
            return
        if b"Iteration(" in raw:
            match = ITERATION.search(raw)
            if match is not None:
                self._iteration(raw, match)
                return
        elif self._state.engine == "vllm":
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
        dull = self._text(raw.decode("utf-8", "replace"))
        state = self._state
        known_for = (state.engine, state.ready_line is None, self._n_boots)
        if known_for != self._known_for:
            # What means nothing now may have meant something before, and the reverse.
            self._known_for = known_for
            self._learn_anew()
        elif dull is not None and not self._failures.busy(self._n_lines):
            self._shapes.learn(raw, dull)

    def _learn_anew(self) -> None:
        for process, line in self._shapes.worked().items():
            facts = self._state.process(process)
            facts.last_work_line = max(facts.last_work_line, line)
        self._shapes.forget()

    def _stamp(self, frame: Frame | None) -> None:
        """Take a line's time, after that of the last line that was turned away."""
        state, raw = self._state, self._shapes.stamp_of
        if raw is not None:
            self._shapes.stamp_of = None
            if (
                frame is None
                or frame.at_s is None
                or frame.clock != state.clock
                or state.first_at_s is None
            ):
                text = raw.rstrip(b"\r").decode("utf-8", "replace")
                state.stamp(self._frames.read(text))
        if frame is not None:
            state.stamp(frame)

    def _dull(self, raw: bytes) -> bool:
        """Turn away a line that means nothing: any while serving, bare ones before."""
        found = framed(raw)
        serving = self._state.ready_line is not None
        if found is None:
            if self._failures.busy(self._n_lines) or not dull_bare(raw):
                return False
            if not serving and b"|" in raw and b"%" in raw:
                return False
            self._shapes.learn(raw, _BARE)
            return True
        if not serving:
            return False
        word = found
        if not dull_word(word, raw):
            return word == b"Engine" and self._state.thinned("stats")
        self._shapes.stamp_of = raw
        return True

    def _is_plain(self, raw: bytes) -> bool:
        """Tell whether no logger framed a line and it means nothing."""
        return (
            self._state.engine != "vllm"
            and not self._failures.busy(self._n_lines)
            and self._plain.has(raw)
        )

    def _thinned(self, raw: bytes) -> bool:
        """Count a sample that is not kept, before anything of it is read."""
        kind = sample_kind(raw)
        if kind is None or not self._state.thinned(kind):
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
        now = self._n_lines
        for line, raw in self._bars.taken():
            self._n_lines = line
            self._text(raw.rstrip(b"\r").decode("utf-8", "replace"))
        self._n_lines = now

    def _timing(self, raw: bytes) -> bool:
        """Take a timing line of llama-server in its current form."""
        match = TIMING.match(raw)
        if match is None:
            return False
        if not self._state.thinned("stats"):
            frame = self._frames.read(raw.decode("utf-8", "replace"))
            self._stamp(frame)
            current_timing(self._state, Here(self._n_lines, frame), match)
        return True

    def _iteration(self, raw: bytes, match: re.Match[bytes]) -> None:
        if self._state.thinned("iteration"):
            return
        head = raw[: match.start()]
        if head != self._head:  # It holds the second, so many lines share it.
            named = _ENGINE_NUMBER.search(head)
            frame = self._frames.read(head.decode("utf-8", "replace"))
            frame.text = ""
            self._stamp(frame)
            self._head, self._head_frame = head, frame
            self._head_engine = int(named[1]) if named is not None else 0
        here = Here(self._n_lines, self._head_frame)
        iteration(self._state, here, match, self._head_engine)

    def _folded(self, raw: bytes) -> None:
        """Several states of a bar on one line: the last of each is kept."""
        bars: dict[str, str] = {}
        for piece in raw.split(b"\r"):
            if not piece or self._is_plain(piece):
                continue
            text = piece.decode("utf-8", "replace")
            if _ANY_BAR.search(text):
                bars[text.split("%", 1)[0].rstrip("0123456789 ")] = text
            else:
                self._text(text)
        for text in bars.values():
            self._text(text)

    def _text(self, text: str) -> Dull | None:
        """Read one line; return what to remember of it where it meant nothing."""
        frame = self._frames.read(text)
        if "\n" in frame.text:
            for piece in frame.text.split("\n"):
                self._framed(
                    Frame(
                        piece.rstrip("\r"),
                        frame.process,
                        frame.level,
                        frame.at_s,
                        frame.clock,
                        frame.engine,
                    )
                )
            return None
        return self._framed(frame)

    def _framed(self, frame: Frame) -> Dull | None:
        state = self._state
        here = Here(self._n_lines, frame)
        text = frame.text
        if not text:
            return Dull(stamped=False)
        if text.startswith(("non-default args", "server_args=")):
            self._maybe_restart(here)
            state = self._state
        self._stamp(frame)
        if frame.engine is not None and state.engine is None:
            state.engine = frame.engine
        if "%" in text and "|" in text and self._bar(here):
            return None
        if self._sample(here):
            return None
        if apply(_MERGED, state, here):
            return None
        if state.engine in (None, "llamacpp") and read_llama(state, here):
            return None
        return self._rest(here)

    def _sample(self, here: Here) -> bool:
        text = here.text
        start = text[:32]
        if "throughput" in text and ("Avg prompt throughput" in text):
            engine_stats(self._state, here)
            if self._state.ready_line is None:
                ready(self._state, here)  # Only a serving engine prints these.
        elif start.startswith(("Prefill batch", "Decode batch")):
            sglang_batch(self._state, here)
        elif start.startswith("SpecDecoding metrics"):
            spec_stats(self._state, here)
        else:
            return False
        return True

    def _bar(self, here: Here) -> bool:
        """Take a progress bar: of loading, or of graph capture."""
        hit = _BAR.search(here.text)
        if hit is None:
            return _ANY_BAR.search(here.text) is not None
        done, total = int(hit["done"]), int(hit["total"])
        capture = _CAPTURE.search(hit["what"])
        if capture is not None:
            mode = (capture[1] or "graphs").split(",")[-1].strip()
            capture_bar(self._state, here, mode, done, total)
        elif "shard" in hit["what"]:
            self._state.shards = (done, total, _seconds(hit["spent"]))
            self._state.advance(here, "load_weights")
        elif "warmup" in hit["what"].lower() or "tun" in hit["what"].lower():
            self._state.advance(here, "kernel_warmup")
        return True

    def _rest(self, here: Here) -> Dull | None:
        """Lines that no table knows: version banner, shutdown, warnings, failures."""
        state, text, frame = self._state, here.text, here.frame
        meant = "version " in text or "NVIDIA" in text or _ENDING.search(text)
        if state.version is None and "version " in text:
            banner = _VERSION_BANNER.search(text)
            if banner is not None:
                state.version = banner[1]
        if "NVIDIA" in text and "device_name" not in state.resolved:
            named = _DEVICE.search(text)
            if named is not None:
                state.resolve(here, "device_name", named[0].strip(" ._"))
        if meant and _SHUTDOWN.search(text):
            self._stop(here)
        if frame.level == "WARNING":
            meant = read_loose(state, here) or meant
        works = (
            frame.level in ("INFO", "WARNING")
            and frame.engine == "vllm"
            and not text.startswith("[shutdown]")
            and "Parent process" not in text
        )
        if works:
            state.process(frame.process).last_work_line = here.line
        if self._failures.read(state, here) or meant:
            return None
        if first_word(untagged(text)) in _VALUED and any(c.isdigit() for c in text):
            return None
        return Dull(frame.at_s is not None, frame.process, works)

    def _stop(self, here: Here) -> None:
        state = self._state
        if state.ready_line is None and "EngineCore: trigger" in here.text:
            return  # Part of the tear-down after another process has failed.
        if state.shutdown_line is None:
            state.shutdown_line = here.line

    def _maybe_restart(self, here: Here) -> None:
        """A second start in the same file: what came before is another story."""
        old = self._state
        over = (
            old.ready_line is not None
            or old.failures
            or old.shutdown_line is not None
            or old.anyone.stage != "spawn"
        )
        if old.args_line is None or not over:
            return
        self._shapes.forget()
        self._shapes.stamp_of = None
        self._state = State()
        self._state.engine = old.engine
        self._state.version = old.version
        self._state.boot_line = here.line
        self._failures = FailureReader()
        self._n_boots += 1


def _seconds(spent: str) -> float | None:
    total = 0.0
    for part in spent.split(":"):
        if not part.isdigit():
            return None
        total = total * 60 + int(part)
    return total


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
