"""Scaling, done once on the way out. Inside: integer nanoseconds and bytes."""

NS_PER_MS = 1_000_000
NS_PER_S = 1_000_000_000
BYTES_PER_MIB = 1 << 20
BYTES_PER_GIB = 1 << 30


def ms(ns: float) -> float:
    """Scale nanoseconds to milliseconds."""
    return ns / NS_PER_MS


def seconds(ns: float) -> float:
    """Scale nanoseconds to seconds."""
    return ns / NS_PER_S


def ns(seconds_: float) -> int:
    """Scale seconds to whole nanoseconds, to the nearest."""
    return round(seconds_ * NS_PER_S)


def gib(n_bytes: float) -> float:
    """Scale bytes to GiB (2**30)."""
    return n_bytes / BYTES_PER_GIB
