"""Kernel receive stamps: when bytes arrived, however late we read them.

Linux stamps a TCP segment on arrival (SO_TIMESTAMPNS) and hands the stamp over with
the bytes. It does not depend on the client's load, so it is what a latency is made
of; the difference to the moment of reading is the client's own delay.
"""

import socket
import struct
import sys

from stepscope.clock import Clock

#: SO_TIMESTAMPNS of asm-generic/socket.h; Python has no name for it.
_SO_TIMESTAMPNS = 35
_TIMESPEC = struct.Struct("qq")
ANCILLARY_BYTES = 64

AncillaryData = list[tuple[int, int, bytes]]


def ask_for_stamps(sock: socket.socket) -> bool:
    """Ask the kernel to stamp what arrives; return False where it can not."""
    if not sys.platform.startswith("linux"):
        return False
    try:
        sock.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
    except OSError:
        return False
    return True


def realtime_ns(ancillary: AncillaryData) -> int | None:
    """Return the kernel's stamp on CLOCK_REALTIME, or None where there is none."""
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == _SO_TIMESTAMPNS and len(data) >= 16:
            seconds, nanoseconds = _TIMESPEC.unpack_from(data)
            return int(seconds) * 1_000_000_000 + int(nanoseconds)
    return None


class RealtimeOffset:
    """CLOCK_REALTIME minus CLOCK_MONOTONIC, at the start and again at the end."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.at_start_ns = self._read()

    def _read(self) -> int:
        anchor = self._clock.wall_anchor()
        return anchor.unix_ns - anchor.monotonic_ns

    def drift_ns(self) -> int:
        """Return by how much the wall clock moved against the monotonic one."""
        return self._read() - self.at_start_ns
