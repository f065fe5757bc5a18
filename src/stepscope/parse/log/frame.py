"""One line without its frame: who said it, when, how loud, and what."""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from stepscope.parse.log.wrapping import ANSI, CONTAINER

_ANSI = re.compile(ANSI.pattern.decode())
_PROCS = re.compile(r"(?:\([A-Za-z][^()]{0,60}?pid=\d+[^()]{0,60}\) ?)+")
_PROC = re.compile(
    r"\(([A-Za-z][^()]*?)(?: rank=(\d+))? pid=(\d+)(?:, ip=([\w.:]+))?\)"
)
_HEAD = re.compile(
    r"(DEBUG|INFO|WARNING|ERROR|CRITICAL) (\d\d-\d\d \d\d:\d\d:\d\d)"
    r" \[([^\]:]{1,120}):(\d+)\] ?"
)
_SGLANG = re.compile(
    r"\[(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)((?: (?:[A-Z]{2,4}\d+|[a-z_]+))*)\] ?"
)
_FLASHINFER = re.compile(
    r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)[,.]\d+ - ([A-Z]+) - [\w.]+:\d+ - ([\w.]+): "
)
_LLAMA = re.compile(r"(\d+)\.(\d\d)\.(\d{3})\.(\d{3}) ([DIWE]) ")
_UVICORN = re.compile(r"(INFO|WARNING|ERROR|CRITICAL):    ? ?")
_CONTAINER = re.compile(CONTAINER.decode())
#: What torch's exception hook puts before every line.
_RANK = re.compile(r"\[rank\d+\]: ?")
_LEVELS = {"D": "DEBUG", "I": "INFO", "W": "WARNING", "E": "ERROR"}
_DAYS_BEFORE = (0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334)

#: How far into a line a frame may reach that is remembered, and how many are.
_MAX_HEAD = 200
_MAX_HEADS = 4_096
_YEAR = re.compile(r"[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2}")
#: A stamp without its seconds.
_YEAR_MINUTE = re.compile(rb"\d\d-\d\d \d\d:\d\d:")
_UNIX_MINUTE = re.compile(rb"\d{4}-\d\d-\d\d \d\d:\d\d:")

#: Where a JSON log has its message: loggers, then collectors of logs.
_MESSAGES = ("message", "msg", "log", "MESSAGE", "line")

#: Process names that say nothing about which process it is.
_SHARED_NAMES = frozenset({"RayWorkerWrapper", "VllmWorkerProcess"})


@dataclass(slots=True)
class Frame:
    """What stands around a message.

    ``clock`` is what ``at_s`` counts from; see ``ServerLog.clock``. ``level`` is None
    for a line that no logger wrote (a traceback, a progress bar, another library).
    Only a JSON log's ``text`` may hold line feeds.
    """

    text: str
    process: str | None = None
    level: str | None = None
    at_s: float | None = None
    clock: str | None = None
    engine: str | None = None


@dataclass(frozen=True, slots=True)
class Head:
    """What a frame says beside its time."""

    process: str | None
    level: str


class FrameReader:
    """Takes frames off. It remembers the last stamp, since most lines share it."""

    def __init__(self) -> None:
        self._stamp = ""
        self._at_s: float | None = None
        self._json_stamp: object = None
        self._json_at: tuple[float | None, str | None] = (None, None)
        self._heads: dict[str, Head | None] = {}
        self._minute = b""
        self._minute_s: float | None = None

    def year_s(self, stamp: bytes) -> float | None:
        """Read vLLM's ``MM-DD HH:MM:SS``; None where it is not exactly that."""
        return self._clocked(stamp, 12, _YEAR_MINUTE, _year_s)

    def date_s(self, stamp: bytes) -> float | None:
        """Read SGLang's ``YYYY-MM-DD HH:MM:SS``; None where it is not exactly that."""
        return self._clocked(stamp, 17, _UNIX_MINUTE, _unix_s)

    def _clocked(
        self,
        stamp: bytes,
        at: int,
        form: re.Pattern[bytes],
        read: Callable[[str], float | None],
    ) -> float | None:
        minute, seconds = stamp[:at], stamp[at:]
        if minute != self._minute:
            self._minute, self._minute_s = minute, None
            if form.fullmatch(minute) is not None:
                self._minute_s = read(minute.decode() + "00")
        if self._minute_s is None or len(seconds) != 2 or not seconds.isdigit():
            return None
        return self._minute_s + int(seconds)

    def read(self, text: str) -> Frame:
        """Split ``text``, one line without its line feed, into frame and message."""
        if "\x1b" in text or "[1;" in text or "[0;" in text:
            text = _ANSI.sub("", text)
        if text.startswith("[rank"):
            text = _RANK.sub("", text, count=1)
        frame = self._known_frame(text) or self._engine_frame(text)
        if frame is not None:
            return frame
        if text.startswith("{"):
            return self._json(text)
        start = text[:80]
        if start.startswith("20") or "|" in start or "[" in start or "pod/" in start:
            shorter = text
            for _ in range(3):
                found = _CONTAINER.match(shorter)
                if found is None:
                    break
                shorter = shorter[found.end() :]
            if shorter is not text and len(shorter) < len(text):
                return self._engine_frame(shorter) or self._loose(shorter)
        return self._loose(text)

    def _loose(self, text: str) -> Frame:
        start = text[:300]
        if "INFO " in start or "ERROR " in start or "WARN" in start:
            return self._searched(text)
        return self._bare(text)

    def _known_frame(self, text: str) -> Frame | None:
        """Read a frame of vLLM that differs from one met before in its clock alone."""
        end = text.find("] ", 0, _MAX_HEAD) + 2
        at = text.rfind(" [", 0, end) - 14
        if at < 0:
            return None
        stamp = text[at : at + 14]
        key = text[:at] + text[at + 14 : end]
        try:
            head = self._heads[key]
        except KeyError:
            head = vllm_head(text[:end], at)
            if len(self._heads) < _MAX_HEADS:
                self._heads[key] = head
        if head is None:
            return None
        if stamp != self._stamp:
            if _YEAR.fullmatch(stamp) is None:
                return None
            self._stamp, self._at_s = stamp, _year_s(stamp)
        return Frame(
            text[end:].rstrip("\r"),
            head.process,
            head.level,
            self._at_s,
            "year" if self._at_s is not None else None,
            "vllm",
        )

    def _engine_frame(self, text: str) -> Frame | None:
        procs = _PROCS.match(text)
        at = procs.end() if procs is not None else 0
        head = _HEAD.match(text, at)
        if head is not None:
            process = _process(procs.group()) if procs is not None else None
            return self._vllm(text, head, process)
        if text.startswith("["):
            found = _SGLANG.match(text)
            if found is not None:
                tags = found[2].strip() or None
                message = text[found.end() :]
                level = None
                loud = _UVICORN.match(message)
                if loud is not None:
                    level, message = loud[1], message[loud.end() :]
                at_s = self._dated(found[1])
                return Frame(message, tags, level, at_s, "unix", "sglang")
        if text[:1].isdigit():
            return self._numbered(text)
        if procs is not None:
            return self._bare(text)
        return None

    def _vllm(self, text: str, head: re.Match[str], process: str | None) -> Frame:
        if head[2] != self._stamp:
            self._stamp, self._at_s = head[2], _year_s(head[2])
        return Frame(
            text[head.end() :].rstrip("\r"),
            process,
            head[1],
            self._at_s,
            "year" if self._at_s is not None else None,
            "vllm",
        )

    def _numbered(self, text: str) -> Frame | None:
        found = _LLAMA.match(text)
        if found is not None:
            minutes, secs, millis, micros = (int(found[i]) for i in range(1, 5))
            at_s = minutes * 60 + secs + millis / 1e3 + micros / 1e6
            level = _LEVELS[found[5]]
            message = text[found.end() :]
            return Frame(message, None, level, at_s, "start", "llamacpp")
        found = _FLASHINFER.match(text)
        if found is not None:
            return Frame(text[found.end() :], None, found[2], None, None, None)
        return None

    def _searched(self, text: str) -> Frame:
        """A frame behind VLLM_LOGGING_PREFIX, which may be any text."""
        head = _HEAD.search(text, 0, 300)
        if head is None:
            return self._bare(text)
        before = text[: head.start()]
        process = _process(before) if "pid=" in before else None
        return self._vllm(text, head, process)

    def _bare(self, text: str) -> Frame:
        process = None
        procs = _PROCS.match(text)
        if procs is not None:
            process = _process(procs.group())
            text = text[procs.end() :]
        loud = _UVICORN.match(text)
        if loud is not None:
            return Frame(text[loud.end() :], process, loud[1])
        return Frame(text.rstrip("\r"), process)

    def _json(self, text: str) -> Frame:
        record = _record(text)
        if not isinstance(record, dict):
            return self._bare(text)
        inner = record.get("log")
        if isinstance(inner, str) and "stream" in record:  # docker's json-file
            inner = inner.rstrip("\n")
            if inner.startswith("{") and '"log"' in inner[:12]:
                return self._bare(inner)
            return self.read(inner)
        message = record.get("message")
        if message is None:
            message = next((record[k] for k in _MESSAGES if k in record), None)
        if not isinstance(message, str):
            return self._bare(text)
        own = "processName" in record and message[:1] not in ("(", "[", "\x1b")
        framed = None if own else self._collected(message)
        return framed or self._said(record, message)

    def _collected(self, message: str) -> Frame | None:
        """Read a line that the engine framed and a collector of logs wrapped."""
        text = _ANSI.sub("", message) if "\x1b" in message else message
        if " [" in text[:200] or text[:1] == "[":
            framed = self._engine_frame(text)
            if framed is not None:
                return framed
        if text[:1] != "(" and ":" not in text[4:9]:
            return None
        bare = self._bare(text)
        return None if bare.process is None and bare.level is None else bare

    def _said(self, record: dict[str, object], message: str) -> Frame:
        level = record.get("levelname", record.get("level"))
        stamp = record.get("asctime", record.get("timestamp"))
        process = record.get("processName", record.get("process_name"))
        if stamp != self._json_stamp:  # most lines share it with the one before
            self._json_stamp, self._json_at = stamp, self._json_clock(stamp)
        at_s, clock = self._json_at
        return Frame(
            message,
            process if isinstance(process, str) else None,
            level.upper() if isinstance(level, str) else None,
            at_s,
            clock,
        )

    def _json_clock(self, stamp: object) -> tuple[float | None, str | None]:
        if not isinstance(stamp, str):
            return None, None
        if re.match(r"\d\d-\d\d \d\d:\d\d:\d\d", stamp):
            at_s = _year_s(stamp[:14])
            return at_s, "year" if at_s is not None else None
        at_s = self._dated(stamp[:19].replace("T", " "))
        return at_s, "unix" if at_s is not None else None

    def _dated(self, stamp: str) -> float | None:
        if stamp != self._stamp:
            self._stamp, self._at_s = stamp, _unix_s(stamp)
        return self._at_s


def _record(text: str) -> object:
    """Decode a line of a JSON log; None: it is none.

    The standard library, a third as fast, takes what the fast decoder does not: NaN,
    and halves of characters.
    """
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        pass
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def vllm_head(text: str, at: int) -> Head | None:
    """Read what stands before a message, where it is a plain frame of vLLM.

    Args:
        text: All that stands before the message.
        at: Where its stamp begins.

    Returns:
        None where a prefix or a colour stands there too.
    """
    if "\x1b" in text or "[1;" in text or "[0;" in text or text.startswith("[rank"):
        return None
    procs = _PROCS.match(text)
    head = _HEAD.match(text, procs.end() if procs is not None else 0)
    if head is None or head.end() != len(text) or head.start(2) != at or "\n" in text:
        return None
    return Head(_process(procs.group()) if procs is not None else None, head[1])


def _process(prefix: str) -> str | None:
    found = _PROC.findall(prefix)
    if not found:
        return None
    name, rank, pid, ip = found[-1]
    if rank:
        return f"{name} rank={rank}"
    if name in _SHARED_NAMES:
        return f"{name} pid={pid}" + (f" ip={ip}" if ip else "")
    return str(name)


def _clock_s(text: str) -> float | None:
    try:
        hours, minutes, secs = int(text[:2]), int(text[3:5]), int(text[6:8])
    except ValueError:
        return None
    return hours * 3600.0 + minutes * 60.0 + secs


def _year_s(stamp: str) -> float | None:
    month, day = int(stamp[:2]), int(stamp[3:5])
    clock = _clock_s(stamp[6:14])
    if not (1 <= month <= 12 and 1 <= day <= 31) or clock is None:
        return None
    return (_DAYS_BEFORE[month - 1] + day - 1) * 86400.0 + clock


def _unix_s(stamp: str) -> float | None:
    """Seconds since 1970 of a local stamp read as UTC (days from civil dates)."""
    try:
        year, month, day = int(stamp[:4]), int(stamp[5:7]), int(stamp[8:10])
    except ValueError:
        return None
    clock = _clock_s(stamp[11:19])
    if not (1 <= month <= 12 and 1 <= day <= 31) or clock is None:
        return None
    year -= month <= 2
    era_year = year % 400
    day_of_year = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
    days = era_year * 365 + era_year // 4 - era_year // 100 + day_of_year
    return (year // 400 * 146097 + days - 719468) * 86400.0 + clock
