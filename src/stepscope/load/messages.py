"""What the parent and its workers say to each other: frames of msgpack on pipes."""

from collections.abc import Iterator
from typing import Any

import msgspec

from stepscope.load.spec import LoadProgress, LoadSpec
from stepscope.run.frames import frame, payloads

_HEAD_BYTES = len(frame(b""))


class TextPlan(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How text prompts reach their length.

    Attributes:
        words: Words to draw from.
        n_words: Words of each prompt.
        exact: True when the server's tokenizer confirmed the length.
        n_tokens: Tokens that ``n_words`` make; None: as many as the spec asks for.
        words_per_token: Further words for each further token.
    """

    words: tuple[str, ...]
    n_words: int
    exact: bool
    n_tokens: int | None = None
    words_per_token: float = 1.0


class Job(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Parent to worker, first: what to do.

    ``ahead_ns``: the worker's monotonic clock minus the parent's. What passes between
    the two, and what is written down, is on the parent's.
    """

    spec: LoadSpec
    worker: int
    n_workers: int
    journal_dir: str
    cpus: tuple[int, ...]
    text: TextPlan | None
    items_path: str | None = None
    ahead_ns: int = 0


class Go(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Parent to worker: start at this instant."""

    at_ns: int


class Stop(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Parent to worker: cancel what is in flight and end."""


class Ready(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Worker to parent: prompts are built, connections are open.

    ``trouble``: failure kind and detail of a connection that could not be opened.
    """

    n_connected: int
    trouble: tuple[str, str] | None


class Progress(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Worker to parent, now and then."""

    progress: LoadProgress


class Tally(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Worker to parent, last: what its health is computed from.

    Attributes:
        loop: ``uvloop`` or ``asyncio``.
        n_ok: Requests that succeeded.
        n_failed: Requests that failed.
        n_reads: Socket reads that brought bytes.
        n_unstamped: Those without a usable kernel stamp.
        n_merged: Those that held more than one content chunk.
        n_late_merged: Merged ones that had waited in the client for more than a
            millisecond: these the client may have merged itself.
        delays: ``Spread`` of stamp delays, as bytes.
        late_sends: ``Spread`` of send lateness, as bytes.
        busy_ns: Time in which the event loop was not asleep.
        cpu_ns: CPU time of the process during the cell.
        wall_ns: Length of the cell for this worker.
        n_slots: Slots of the worker.
        held_ns: Integral of requests in flight while requests were left to send.
        blocked_ns: The same of slots that waited for the server to let them connect.
        asked_ns: The same of all its slots.
        chunks_by_second: Content chunks by second of the monotonic clock.
        n_chunks: Content chunks of successful requests.
        output_tokens: Output tokens of successful requests.
        tpot_sum_ns: Sum of TPOT over ``n_tpot`` successful requests.
        n_tpot: Requests that have a TPOT.
        offered_ns: In an open loop, from the start to when the last was due.
        achieved_ns: The same to when the last that was due was sent.
        capped: A full client held requests back that were due.
        waited_ns: Time in which the process waited for a core; None: not known.
        clock_step_ns: Largest step of the wall clock against the monotonic one.
    """

    loop: str
    n_ok: int
    n_failed: int
    n_reads: int
    n_unstamped: int
    n_merged: int
    n_late_merged: int
    delays: bytes
    late_sends: bytes
    busy_ns: int
    cpu_ns: int
    wall_ns: int
    n_slots: int = 1
    held_ns: int
    blocked_ns: int
    asked_ns: int
    chunks_by_second: dict[int, int]
    n_chunks: int
    output_tokens: int
    tpot_sum_ns: float
    n_tpot: int
    clock_step_ns: int
    waited_ns: int | None = None
    offered_ns: int | None = None
    achieved_ns: int | None = None
    capped: bool = False


ToWorker = Job | Go | Stop
ToParent = Ready | Progress | Tally


class FrameReader:
    """Cuts the bytes of a pipe into messages; a pipe is read in any portions."""

    def __init__(self, kind: Any) -> None:
        self._decoder = msgspec.msgpack.Decoder(kind)
        self._rest = b""

    def feed(self, data: bytes) -> Iterator[Any]:
        """Yield the messages that ``data`` completes."""
        self._rest += data
        for payload in payloads(self._rest):
            self._rest = self._rest[_HEAD_BYTES + len(payload) :]
            yield self._decoder.decode(payload)


def message(value: ToWorker | ToParent) -> bytes:
    """Return ``value`` as one frame."""
    return frame(msgspec.msgpack.encode(value))
