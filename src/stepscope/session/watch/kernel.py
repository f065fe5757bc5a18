"""What the kernel logged while a server ran: kills for want of memory, GPU errors."""

import os
import re
from pathlib import Path

_KMSG = Path("/dev/kmsg")
#: Longest record that the kernel hands out.
_RECORD_BYTES = 8192
_MOST_LINES = 100
_TELLING = re.compile(
    r"out of memory|oom-kill|oom_reaper|killed process|NVRM: Xid|segfault at"
    r"|general protection|hardware error|blocked for more than|I/O error",
    re.IGNORECASE,
)


class KernelLog:
    """The kernel's log from now on.

    Where it may not be read (a container without the right, another system) it stays
    silent: ``readable`` tells silence from that.
    """

    def __init__(self, path: Path = _KMSG) -> None:
        try:
            self._fd: int | None = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
            os.lseek(self._fd, 0, os.SEEK_END)
        except OSError:
            self._fd = None

    @property
    def readable(self) -> bool:
        """Whether anything could have been seen."""
        return self._fd is not None

    def close(self) -> tuple[str, ...]:
        """Return the telling lines since it was opened, oldest first, and close it."""
        if self._fd is None:
            return ()
        fd, self._fd = self._fd, None
        try:
            return _telling(fd)
        finally:
            os.close(fd)


def _telling(fd: int) -> tuple[str, ...]:
    found: list[str] = []
    while len(found) < _MOST_LINES:
        try:
            record = os.read(fd, _RECORD_BYTES)
        except BrokenPipeError:
            continue  # Records were overwritten before they were read: go on.
        except OSError:
            break
        if not record:
            break
        # "priority,sequence,microseconds,flags;text", further lines begin with a blank.
        text = record.partition(b";")[2].partition(b"\n")[0].decode("utf-8", "replace")
        if _TELLING.search(text):
            found.append(text)
    return tuple(found)
