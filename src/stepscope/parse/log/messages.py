"""One line after another into what is known of the start that they belong to."""

import re

from stepscope.parse.log.failures import FailureReader
from stepscope.parse.log.frame import Frame, FrameReader
from stepscope.parse.log.llamacpp import read_llama
from stepscope.parse.log.rules import Rules, apply, first_word, untagged, valued
from stepscope.parse.log.samples import engine_stats, figures, sglang_batch
from stepscope.parse.log.sglang import SGLANG_RULES
from stepscope.parse.log.shapes import Dull, Shapes
from stepscope.parse.log.state import Here, State
from stepscope.parse.log.templates import Templates
from stepscope.parse.log.vllm_boot import BOOT_RULES, capture_bar, ready
from stepscope.parse.log.vllm_config import CONFIG_RULES, read_loose
from stepscope.parse.log.vllm_memory import MEMORY_RULES

_BAR = re.compile(
    r"(?P<what>[A-Z][^:|%]{2,80}):? +(?P<pct>\d+)% ?(?:Completed ?)?\|"
    r"(?:[^|]{0,40}\|)? ?"
    r"(?P<done>\d+)/(?P<total>\d+) \[(?P<spent>[\d:]+)"
)
#: A state of a progress bar, of whatever.
ANY_BAR = re.compile(r"\d+%(?: Completed)? ?\|")
_CAPTURE = re.compile(
    r"Capturing (?:\w+ )?(?:CUDA|cuda|HIP) graphs?(?: shapes)?(?: \(([^)]*)\))?"
)
#: Art, or an engine's name, stands before it; "NCCL version 2.27.3" tells of NCCL.
_VERSION_BANNER = re.compile(
    r"(?:^|[^\w\s.,:;]\s+|\b(?:vLLM|SGLang|sglang|llama\.cpp|server)\s+)"
    r"version:? (\d+\.\d+\S*)\s*$"
)
#: How the line begins that says a start's arguments.
_ARGUMENTS = ("non-default args", "server_args=", "args: Namespace(")
_REFUSED = re.compile(r"\S+: error: (?:unrecognized|argument|the following) ")
_BUILD = re.compile(r"build: \d+ \(")
_DEVICE = re.compile(r"NVIDIA[ _](?:[A-Z][\w]*[ _])*?[A-Z]*\d{2,5}[\w]*")
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
#: First words of bare lines that some table knows.
WORDS = frozenset(word.encode() for word in _MERGED)


class Messages:
    """Reads lines that may mean something.

    Attributes:
        state: What was read of the last start.
        failures: Tracebacks and errors of the last start.
        frames: Takes the frames off.
        shapes: The lines that were turned away; one of them may hold the last time.
        templates: The wordings of the samples so far.
        n_boots: Starts so far.
    """

    def __init__(self, engine: str | None) -> None:
        self.state = State()
        self.state.engine = engine
        self.failures = FailureReader()
        self.frames = FrameReader()
        self.shapes = Shapes()
        self.templates = Templates()
        self.n_boots = 1

    def stamp(self, frame: Frame | None) -> None:
        """Take a line's time, after that of the last line that was turned away."""
        state, raw = self.state, self.shapes.stamp_of
        if raw is not None:
            self.shapes.stamp_of = None
            if (
                frame is None
                or frame.at_s is None
                or frame.clock != state.clock
                or state.first_at_s is None
            ):
                text = raw.rstrip(b"\r").decode("utf-8", "replace")
                state.stamp(self.frames.read(text))
        if frame is not None:
            state.stamp(frame)

    def read(self, line: int, text: str) -> Dull | None:
        """Read one line; return what to remember of it where it meant nothing."""
        frame = self.frames.read(text)
        if "\n" in frame.text:
            for piece in frame.text.split("\n"):
                self._framed(
                    Here(
                        line,
                        Frame(
                            piece.rstrip("\r"),
                            frame.process,
                            frame.level,
                            frame.at_s,
                            frame.clock,
                            frame.engine,
                        ),
                    )
                )
            return None
        return self._framed(Here(line, frame))

    def _framed(self, here: Here) -> Dull | None:
        state, frame = self.state, here.frame
        text = frame.text
        if not text:
            return Dull(stamped=False)
        if self._begins(here):
            self._maybe_restart(here)
            state = self.state
        self.stamp(frame)
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
            engine_stats(self.state, here, self._figures(text))
            if self.state.ready_line is None:
                ready(self.state, here)  # Only a serving engine prints these.
        elif start.startswith(("Prefill batch", "Decode batch")):
            sglang_batch(self.state, here, self._figures(text))
        elif start.startswith("SpecDecoding metrics"):
            self.state.event(here, "stats", self._figures(text))
        else:
            return False
        return True

    def _figures(self, text: str) -> dict[str, float]:
        found = self.templates.read(text.encode()) if text.isascii() else None
        return figures(text) if found is None else found

    def _bar(self, here: Here) -> bool:
        """Take a progress bar: of loading, or of graph capture."""
        hit = _BAR.search(here.text)
        if hit is None:
            return ANY_BAR.search(here.text) is not None
        done, total = int(hit["done"]), int(hit["total"])
        capture = _CAPTURE.search(hit["what"])
        if capture is not None:
            mode = (capture[1] or "graphs").split(",")[-1].strip()
            capture_bar(self.state, here, mode, done, total)
        elif "shard" in hit["what"]:
            self.state.shards = (done, total, _seconds(hit["spent"]))
            self.state.advance(here, "load_weights")
        elif "warmup" in hit["what"].lower() or "tun" in hit["what"].lower():
            self.state.advance(here, "kernel_warmup")
        return True

    def _rest(self, here: Here) -> Dull | None:
        """Lines that no table knows: version banner, shutdown, warnings, failures."""
        state, text, frame = self.state, here.text, here.frame
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
        if self.failures.read(state, here) or meant:
            return None
        if first_word(untagged(text)) in _VALUED and any(c.isdigit() for c in text):
            return None
        return Dull(frame.at_s is not None, frame.process, works)

    def _stop(self, here: Here) -> None:
        state = self.state
        if state.ready_line is None and "EngineCore: trigger" in here.text:
            return  # Part of the tear-down after another process has failed.
        if state.shutdown_line is None:
            state.shutdown_line = here.line

    def _begins(self, here: Here) -> bool:
        """True for a line that only the start of a process prints."""
        state, frame = self.state, here.frame
        if state.engine == "llamacpp":
            if frame.clock != "start" or frame.at_s is None:
                return _BUILD.match(frame.text) is not None
            return state.last_at_s is not None and frame.at_s < state.last_at_s - 1.0
        if frame.text.startswith(_ARGUMENTS):
            return state.args_line is not None
        return ": error: " in frame.text and _REFUSED.match(frame.text) is not None

    def _maybe_restart(self, here: Here) -> None:
        """A second start in the same file: what came before is another story."""
        old = self.state
        over = (
            old.ready_line is not None
            or old.failures
            or old.shutdown_line is not None
            or old.anyone.stage != "spawn"
        )
        if not over:
            return
        self.shapes.forget()
        self.shapes.stamp_of = None
        self.state = State()
        self.state.engine = old.engine
        self.state.version = old.version
        self.state.boot_line = here.line
        self.failures = FailureReader()
        self.n_boots += 1


def _seconds(spent: str) -> float | None:
    total = 0.0
    for part in spent.split(":"):
        if not part.isdigit():
            return None
        total = total * 60 + int(part)
    return total
