"""Progress bars that print a state a line: of a climb, only its ends are read."""

_NUMBER = b"0123456789 "
_MAX_BYTES = 400
_AFTER = (b"% |", b"%|", b"% Completed |", b"% Completed|")


class Bars:
    """The last state of each bar that is climbing, by what stands before its percent.

    The first state of a climb is read at once: where a bar began counts too. A climb
    ends with any other line.
    """

    def __init__(self) -> None:
        self.climbing: dict[bytes, int] = {}
        self._held: dict[bytes, tuple[int, bytes]] = {}

    def holds(self, line: int, raw: bytes) -> bool | None:
        """True: one more state of a bar, kept; False: its first; None: no bar."""
        at = raw.find(b"%")
        if at < 1 or len(raw) > _MAX_BYTES or not raw.startswith(_AFTER, at):
            return None
        name = raw[:at].rstrip(_NUMBER)
        digits = raw[len(name) : at].strip()
        if not digits.isdigit() or len(digits) > 3 or b"\r" in raw:
            return None
        done, before = int(digits), self.climbing.get(name)
        self.climbing[name] = done
        if before is None or done < before:
            return False
        self._held[name] = line, raw
        return True

    def taken(self) -> list[tuple[int, bytes]]:
        """Give up what is held, in the order of the log."""
        held = sorted(self._held.values())
        self._held = {}
        return held
