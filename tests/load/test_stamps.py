import socket
import struct

from stepscope.clock import ManualClock, SystemClock, WallAnchor
from stepscope.load.stamps import SO_TIMESTAMPNS, Stamper


class SteppingClock(ManualClock):
    """A manual clock whose wall time can be set."""

    step_ns = 0

    def wall_anchor(self) -> WallAnchor:
        anchor = super().wall_anchor()
        return WallAnchor(
            monotonic_ns=anchor.monotonic_ns,
            unix_ns=anchor.unix_ns + self.step_ns,
            error_ns=0,
        )


def stamp(unix_ns: int) -> list[tuple[int, int, bytes]]:
    data = struct.pack("@qq", *divmod(unix_ns, 1_000_000_000))
    return [(socket.SOL_SOCKET, SO_TIMESTAMPNS, data)]


def test_a_kernel_stamp_becomes_a_monotonic_instant() -> None:
    clock = ManualClock(at_ns=5_000, unix_ns=1_800_000_000_123_456_789)
    stamper = Stamper(clock)
    assert stamper.arrival_ns(stamp(1_800_000_000_123_456_790)) == 5_001
    assert stamper.arrival_ns([]) is None
    assert stamper.arrival_ns([(socket.SOL_SOCKET, 1, b"")]) is None
    stamper.close()


def test_a_step_of_the_wall_clock_is_followed_and_remembered() -> None:
    clock = SteppingClock(at_ns=0, unix_ns=10**18)
    stamper = Stamper(clock)
    clock.step_ns = 500_000
    stamper.watch()
    assert stamper.step_ns == 0  # readings err by microseconds; this is no step
    clock.step_ns = 2_000_000_000
    stamper.watch()
    assert stamper.step_ns == -2_000_000_000
    assert stamper.arrival_ns(stamp(10**18 + 2_000_000_007)) == 7
    stamper.close()


def test_a_step_is_followed_within_the_second_that_was_read_before() -> None:
    clock = SteppingClock(at_ns=0, unix_ns=10**18)
    stamper = Stamper(clock)
    assert stamper.arrival_ns(stamp(10**18 + 5)) == 5
    assert stamper.arrival_ns(stamp(10**18 + 10**9 + 6)) == 10**9 + 6
    assert stamper.arrival_ns(stamp(10**18 + 7)) == 7
    clock.step_ns = 2_000_000
    stamper.watch()
    assert stamper.arrival_ns(stamp(10**18 + 2_000_007)) == 7
    stamper.close()


def test_the_kernel_stamps_what_a_socket_receives() -> None:
    clock = SystemClock()
    stamper = Stamper(clock)
    listener = socket.create_server(("127.0.0.1", 0))
    sender = socket.create_connection(listener.getsockname())
    receiver, _ = listener.accept()
    receiver.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
    stamps: list[tuple[int, int, int]] = []
    until = clock.now_ns() + 10_000_000_000
    # The kernel turns stamping on a little later.
    while len(stamps) < 20 and clock.now_ns() < until:
        before = clock.now_ns()
        sender.sendall(b"x")
        _, ancillary, _, _ = receiver.recvmsg(1, 64)
        at = stamper.arrival_ns(ancillary)
        if at is not None:
            stamps.append((before, at, clock.now_ns()))
    for sock in (sender, receiver, listener):
        sock.close()
    stamper.close()
    assert stamps
    slack_ns = 1_000_000  # the offset's own error, when the reads were interrupted
    assert all(b - slack_ns <= at <= a + slack_ns for b, at, a in stamps)
