"""Events of a torch profiler trace to columns, a block at a time.

A block is decoded by msgspec into typed records that hold only what is needed, and
each field becomes one numpy column of the block; no event is looked at twice in
Python. Stamps are taken as float64 where that is exact to the nanosecond, else from
their digits.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from stepscope.timeline.chunks import Chunks
from stepscope.timeline.columns import I64, KERNEL, MEMCPY, MEMSET, STEP_MARK

_KINDS = {
    "kernel": KERNEL,
    "Kernel": KERNEL,
    "gpu": KERNEL,
    "gpu_memcpy": MEMCPY,
    "Memcpy": MEMCPY,
    "gpu_memset": MEMSET,
    "Memset": MEMSET,
}
_CALLS = frozenset({"cuda_runtime", "cuda_driver", "hip_runtime", "Runtime"})
_SPANS = frozenset({"user_annotation", "cpu_op"})
#: A decimal of microseconds below 2**43 has its nearest float64 within half a
#: nanosecond, so rounding a thousand times it gives the digits back. Above, it does
#: not: an epoch in microseconds is 2**50.
_EXACT_US = float(1 << 43)
_LARGEST = (1 << 62) - 1
#: What an event without a stamp decodes to.
_NO_STAMP = -float(1 << 51)


class _Args(msgspec.Struct, gc=False):
    stream: int | str | None = None
    correlation: int | str | None = None
    device: int | str | None = None
    node: int | str | None = msgspec.field(default=None, name="graph node id")


class _Event(msgspec.Struct, gc=False):
    ph: str = "X"
    cat: str = ""
    name: str = ""
    ts: float = _NO_STAMP
    dur: float | None = None
    pid: int | str = 0
    tid: int | str = 0
    args: _Args | None = None


class _Exact(_Event, gc=False):
    """The same with the digits of the stamp."""

    ts: msgspec.Raw = msgspec.field(default_factory=msgspec.Raw)  # type: ignore[assignment]  # msgspec allows it

    def digits(self) -> bytes:
        """Return the stamp as it was written; empty where there is none."""
        return bytes(self.ts)


class _Interned(dict[Any, int]):
    """Numbers in the order in which their keys are first asked for."""

    def __missing__(self, key: object) -> int:
        self[key] = number = len(self)
        return number


class _TooLateError(Exception):
    """A stamp is too large for float64 to hold its nanoseconds."""


@dataclass(slots=True)
class Sink:
    """All rows of a file: device operations, host calls, host spans, step marks.

    ``labels`` are the names of processes; ``n_bad`` counts device records whose
    stamps are zero or run backwards; ``digits`` is set once a stamp was too late for
    float64.
    """

    names: dict[Any, int] = field(default_factory=_Interned)
    threads: dict[Any, int] = field(default_factory=_Interned)
    labels: dict[Any, int] = field(default_factory=lambda: _Interned({0: 0}))
    ops: Chunks = field(default_factory=Chunks)
    calls: Chunks = field(default_factory=Chunks)
    spans: Chunks = field(default_factory=Chunks)
    marks: Chunks = field(default_factory=Chunks)
    n_bad: int = 0
    fractional: bool = False
    digits: bool = False

    def take(self, piece: bytes) -> bool:
        """Decode a JSON list of events and append what is wanted of it.

        Returns:
            False, with nothing appended, if it is no JSON.
        """
        try:
            if not self.digits:
                try:
                    self._rows(_EVENTS.decode(piece))
                except _TooLateError:
                    self.digits = True
            if self.digits:
                self._rows(_EXACTS.decode(piece))
        except ValueError:
            # msgspec stops at the first odd event and does not look further.
            try:
                self._rows(_one_by_one(piece))
            except msgspec.DecodeError:
                return False
        return True

    def _rows(self, events: Sequence[_Event]) -> None:
        ops: list[_Event] = []
        calls: list[_Event] = []
        spans: list[_Event] = []
        marks: list[_Event] = []
        group_of = {
            **dict.fromkeys(_KINDS, ops),
            **dict.fromkeys(_CALLS, calls),
            **dict.fromkeys(_SPANS, spans),
            "gpu_user_annotation": marks,
        }
        for event in events:
            group = group_of.get(event.cat)
            if group is None or event.ph != "X":
                continue
            # Where digits are read, one that has none fails there.
            if self.digits or event.ts != _NO_STAMP:
                group.append(event)
        ops = [e for e in ops if e.dur is not None]
        marks = [e for e in marks if e.name.startswith(STEP_MARK)]
        # All stamps first: one that is too late for float64 must leave nothing.
        stamps = [_stamps(group) for group in (ops, calls, spans, marks)]
        self._ops(ops, *stamps[0])
        self._calls(calls, *stamps[1])
        self._spans(spans, *stamps[2])
        if marks:
            self.marks.add(**self._host(marks, *stamps[3]))

    def _see(self, start: I64, lasted: I64) -> None:
        if not self.fractional:
            self.fractional = bool((start % 1000).any() or (lasted % 1000).any())

    def _numbers(self, known: dict[Any, int], keys: list[Any]) -> npt.NDArray[np.int32]:
        return np.array(list(map(known.__getitem__, keys)), dtype=np.int32)

    def _threads(self, tids: list[int | str]) -> npt.NDArray[np.int32]:
        # Blocks of one thread are the rule, and counting is cheaper than looking up.
        if tids and tids.count(tids[0]) == len(tids):
            return np.full(len(tids), self.threads[tids[0]], dtype=np.int32)
        return self._numbers(self.threads, tids)

    def _ops(self, events: list[_Event], start: I64, lasted: I64) -> None:
        if not events:
            return
        self._see(start, lasted)
        none = _Args()
        args = [e.args or none for e in events]
        good = (lasted >= 0) & ((start != 0) | (lasted != 0))
        n_bad = int((~good).sum())
        rows: dict[str, npt.NDArray[Any]] = {
            "start": start,
            "end": start + lasted,
            "stream": _integers([a.stream for a in args], 0).astype(np.int32),
            "correlation": _integers([a.correlation for a in args], -1),
            "node": _integers([a.node for a in args], -1),
            "name": self._numbers(self.names, [e.name for e in events]),
            "kind": np.array([_KINDS[e.cat] for e in events], dtype=np.int8),
            "device": _devices(events, [a.device for a in args]),
            "label": self._labels(events),
        }
        if n_bad:
            self.n_bad += n_bad
            rows = {name: column[good] for name, column in rows.items()}
        self.ops.add(**rows)

    def _labels(self, events: list[_Event]) -> npt.NDArray[np.int16]:
        if str not in set(map(type, [e.pid for e in events])):
            return np.zeros(len(events), dtype=np.int16)
        named = [_process(e.pid) for e in events]
        return self._numbers(self.labels, named).astype(np.int16)

    def _host(
        self, events: list[_Event], start: I64, lasted: I64
    ) -> dict[str, npt.NDArray[Any]]:
        self._see(start, lasted)
        return {
            "start": start,
            "end": start + np.maximum(lasted, 0),
            "name": self._numbers(self.names, [e.name for e in events]),
            "thread": self._threads([e.tid for e in events]),
            "label": self._labels(events),
        }

    def _calls(self, events: list[_Event], start: I64, lasted: I64) -> None:
        if events:
            ids = [None if e.args is None else e.args.correlation for e in events]
            self.calls.add(
                **self._host(events, start, lasted),
                correlation=_integers(ids, -1),
                process=_integers([e.pid for e in events], 0),
            )

    def _spans(self, events: list[_Event], start: I64, lasted: I64) -> None:
        if events:
            cats = [e.cat for e in events]
            note = np.zeros(len(cats), dtype=np.int8)
            if "user_annotation" in cats:
                note[:] = [cat == "user_annotation" for cat in cats]
            self.spans.add(**self._host(events, start, lasted), note=note)


_EVENTS = msgspec.json.Decoder(list[_Event])
_EXACTS = msgspec.json.Decoder(list[_Exact])


def _one_by_one(piece: bytes) -> list[_Event]:
    """Decode a block that holds an event of an odd shape: such events are dropped."""
    events: list[_Event] = []
    for raw in msgspec.json.decode(piece, type=list[msgspec.Raw]):
        try:
            event = msgspec.json.decode(raw, type=_Exact)
            _digits_ns(event.digits())
        except (msgspec.ValidationError, ValueError):
            continue
        events.append(event)
    return events


def _stamps(events: list[_Event]) -> tuple[I64, I64]:
    """Return start and length in nanoseconds.

    Raises:
        _TooLateError: A start is beyond what float64 holds exactly.
    """
    if not events:
        none = np.empty(0, dtype=np.int64)
        return none, none
    lasted = np.array([e.dur or 0.0 for e in events], dtype=np.float64)
    if isinstance(events[0], _Exact):
        start = _all_digits_ns([e.ts for e in events])  # type: ignore[misc]  # they are _Exact
    else:
        stamps = np.array([e.ts for e in events], dtype=np.float64)
        if float(np.abs(stamps).max()) >= _EXACT_US:
            raise _TooLateError
        start = np.rint(stamps * 1000).astype(np.int64)
    return start, np.rint(np.clip(lasted, -_EXACT_US, _EXACT_US) * 1000).astype(
        np.int64
    )


def _devices(
    events: list[_Event], named: list[int | str | None]
) -> npt.NDArray[np.int32]:
    """Return the device that each event names, or that its process id stands for."""
    if {type(d) for d in named} != {int}:
        named = [
            d if isinstance(d, int) else _number(e.pid)
            for d, e in zip(named, events, strict=True)
        ]
    return _integers(named, 0).astype(np.int32)


def _all_digits_ns(stamps: list[msgspec.Raw]) -> I64:
    """Return many stamps at once where all have their point at one place."""
    table, at = _digit_table(stamps)
    columns = np.ascontiguousarray(table.T)
    # Stamps of one block begin alike: those digits are read once.
    differ = np.flatnonzero((columns != columns[:, :1]).any(axis=1)).tolist()
    first = bytes(table[0])
    plain = (
        0 < at <= 16
        and at not in differ
        and (first[:at] + first[at + 1 :]).isdigit()
        and (at < 16 or columns[0].max() < ord("4"))
        and all(int(columns[k].min()) >= ord("0") for k in differ)
        and all(int(columns[k].max()) <= ord("9") for k in differ)
    )
    if not plain:
        return np.array([_digits_ns(bytes(stamp)) for stamp in stamps], dtype=np.int64)
    found = np.full(len(stamps), _digits_ns(first), dtype=np.int64)
    for k in differ:
        weight = 10 ** (at + 2 - k + (k > at))
        more = columns[k].astype(np.int64)
        more -= first[k]
        more *= weight
        found += more
    return found


def _digit_table(stamps: list[msgspec.Raw]) -> tuple[npt.NDArray[np.uint8], int]:
    """Return the characters of stamps up to the third decimal, and where the point is.

    A place that is no point says that the stamps are not all written alike.
    """
    joined = b",".join(stamps) + b","
    width = joined.index(b",") + 1
    at = joined.find(b".", 0, width)
    if width * len(stamps) == len(joined) and 0 < at < width - 4:
        table = np.frombuffer(joined, dtype=np.uint8).reshape(len(stamps), width)
        if (table[:, -1] == ord(",")).all():
            return table[:, : at + 4], at
    texts = [bytes(stamp) for stamp in stamps]
    widest = max(map(len, texts)) + 4
    table = np.array(texts, dtype=f"S{widest}").view(np.uint8).reshape(-1, widest)
    at = int((table[0] == ord(".")).argmax())
    table = table[:, : at + 4]
    # Zeros that close a decimal are often not written; the text then ends early.
    table[:, at + 1 :][table[:, at + 1 :] == 0] = ord("0")
    return table, at


def _digits_ns(text: bytes) -> int:
    """Return microseconds written as digits in whole nanoseconds, exactly.

    Raises:
        ValueError: No number, or none that a trace can hold.
    """
    text = text.strip(b'"')
    whole, dot, part = text.partition(b".")
    if b"e" in text or b"E" in text:
        wide = float(text) * 1000
        found = round(wide) if math.isfinite(wide) else _LARGEST + 1
    elif not dot:
        found = int(whole) * 1000
    else:
        sign = -1 if whole.startswith(b"-") else 1
        found = int(whole) * 1000 + sign * int((part + b"000")[:3])
    if abs(found) > _LARGEST:
        raise ValueError("out of range")
    return found


def _integers(values: list[int | str | None], absent: int) -> I64:
    """Return whole numbers as int64; what is none, or none that fits, is ``absent``."""
    if values.count(None) == len(values):
        return np.full(len(values), absent, dtype=np.int64)
    try:
        return np.array(values, dtype=np.int64)
    except (TypeError, ValueError, OverflowError):
        return np.array(
            [
                v if isinstance(v, int) and abs(v) <= _LARGEST else absent
                for v in values
            ],
            dtype=np.int64,
        )


def _number(pid: int | str) -> int:
    """Return the device that a process id names: 0, or the digits at its end."""
    if isinstance(pid, int):
        return pid if 0 <= pid < 1 << 30 else 0
    tail = pid.rpartition("] ")[2]
    return int(tail) if tail.isdigit() and len(tail) < 9 else 0


def _process(pid: int | str) -> int | str:
    """Return what a merged file wrote before a process id: ``[TP00]``; else 0."""
    if isinstance(pid, str) and pid.startswith("[") and "]" in pid:
        return pid[: pid.index("]") + 1]
    return 0
