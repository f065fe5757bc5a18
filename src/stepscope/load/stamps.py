"""When bytes arrived: the kernel's own stamp, on the monotonic clock.

The kernel stamps a segment when it takes it from the network, so the stamp does not
depend on how busy this process is. It stamps on CLOCK_REALTIME; both clocks are slewed
together, so their distance changes only when somebody sets the time, and that is
watched.
"""

import contextlib
import socket
import struct

from stepscope.clock import Clock
from stepscope.units import NS_PER_S

#: Linux, <asm-generic/socket.h>; the socket module does not name it.
SO_TIMESTAMPNS = 35
#: Asked about with each read; looking it up in its module takes as long as asking.
_SOL_SOCKET = socket.SOL_SOCKET
#: Room for one control message of 16 bytes and its header.
ANCILLARY_BYTES = 64

#: A larger change between two readings of both clocks is a step: readings err by
#: microseconds, and slewing moves both clocks alike.
_STEP_NS = 1_000_000

#: Which no stamp is of.
_NO_SECOND = -1

_unpack = struct.Struct("@qq").unpack


class Stamper:
    """Turns kernel stamps into monotonic instants.

    It keeps one stamped socket open for its whole life: the kernel turns stamping on
    when the first such socket appears, somewhat later, and off with the last.

    Attributes:
        offset_ns: Monotonic minus wall clock.
        step_ns: The largest step of the wall clock seen so far; 0: none.
    """

    __slots__ = (
        "_clock",
        "_keeper",
        "_second",
        "_second_at_ns",
        "offset_ns",
        "step_ns",
    )

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._keeper: socket.socket | None = None
        keeper = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        if stamp_socket(keeper):
            self._keeper = keeper
        else:
            keeper.close()
        self.step_ns = 0
        self.offset_ns = self._read_offset()
        self._second, self._second_at_ns = _NO_SECOND, 0

    def _read_offset(self) -> int:
        anchor = self._clock.wall_anchor()
        return anchor.monotonic_ns - anchor.unix_ns

    def arrival_ns(self, ancillary: list[tuple[int, int, bytes]]) -> int | None:
        """Return the monotonic instant in a read's ancillary data; None: no stamp."""
        for level, kind, data in ancillary:
            if kind == SO_TIMESTAMPNS and level == _SOL_SOCKET:
                second, nanoseconds = _unpack(data)
                if second != self._second:  # once a second, not once a token
                    self._second = second
                    self._second_at_ns = second * NS_PER_S + self.offset_ns
                at_ns: int = self._second_at_ns + nanoseconds
                return at_ns
        return None

    def watch(self) -> None:
        """Compare both clocks again; take over and remember a step."""
        offset = self._read_offset()
        step = offset - self.offset_ns
        if abs(step) > _STEP_NS:
            self.offset_ns = offset
            self._second = _NO_SECOND
            if abs(step) > abs(self.step_ns):
                self.step_ns = step

    def close(self) -> None:
        """Let the kernel turn stamping off."""
        if self._keeper is not None:
            self._keeper.close()


def stamp_socket(sock: socket.socket) -> bool:
    """Ask for receive stamps on ``sock``; False where the system has none."""
    with contextlib.suppress(OSError):
        sock.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        return True
    return False
