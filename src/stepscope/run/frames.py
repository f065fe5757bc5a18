"""The journal's frames: what survives a kill.

A journal is a file of frames, appended one ``write`` each:
``length u32 LE | crc32 u32 LE | payload`` where the payload is one msgpack value.
A file that ends in mid-frame was cut by a kill: everything before it is good.
"""

import struct
import zlib
from collections.abc import Iterator

_HEAD = struct.Struct("<II")


def frame(payload: bytes) -> bytes:
    """Return ``payload`` with its length and checksum in front."""
    return _HEAD.pack(len(payload), zlib.crc32(payload)) + payload


def payloads(data: bytes | memoryview) -> Iterator[bytes]:
    """Yield the payloads of all whole, undamaged frames from the start.

    Stops at the first frame that is cut or whose checksum is wrong: what follows
    can not be trusted to begin at a frame.
    """
    view = memoryview(data)
    at = 0
    while at + _HEAD.size <= len(view):
        length, crc = _HEAD.unpack_from(view, at)
        body = bytes(view[at + _HEAD.size : at + _HEAD.size + length])
        if len(body) < length or zlib.crc32(body) != crc:
            return
        yield body
        at += _HEAD.size + length
