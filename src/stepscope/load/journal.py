"""Reading back what the workers wrote."""

from pathlib import Path

import msgspec

from stepscope.run.frames import payloads
from stepscope.run.requests import Request


def journals(journal_dir: Path, kind: str = "requests") -> list[Path]:
    """Return the journals of a cell, of ``requests`` or of ``texts``."""
    return sorted(journal_dir.glob(f"{kind}-*.journal"))


def read_requests(journal_dir: Path) -> tuple[Request, ...]:
    """Return every request that ended, in order of sending.

    A frame that a kill cut short, and what follows it, is left out.
    """
    decode = msgspec.msgpack.Decoder(Request).decode
    found = [
        decode(payload)
        for path in journals(journal_dir)
        for payload in payloads(path.read_bytes())
    ]
    return tuple(sorted(found, key=lambda r: (r.sent_at_ns, r.index)))


def read_texts(journal_dir: Path) -> dict[int, str]:
    """Return the text of each answer by request index."""
    decode = msgspec.msgpack.Decoder(tuple[int, str]).decode
    return dict(
        decode(payload)
        for path in journals(journal_dir, "texts")
        for payload in payloads(path.read_bytes())
    )
