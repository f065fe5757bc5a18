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
        self._name = b""

    def climbs(self, line: int, raw: bytes) -> bool:
        """True: one more state of the bar of the last line, kept; False: ask ``holds``.

        It tells nothing that ``holds`` would not, at a fourth of the price.
        """
        name = self._name
        before = self.climbing.get(name)
        if before is None or not raw.startswith(name) or len(raw) > _MAX_BYTES:
            return False
        at = raw.find(b"%", len(name))
        if at < 0 or not raw.startswith(_AFTER, at):
            return False
        digits = raw[len(name) : at].strip(b" ")
        if not digits.isdigit() or len(digits) > 3 or b"\r" in raw:
            return False
        done = int(digits)
        if done < before:
            return False
        self.climbing[name] = done
        self._held[name] = line, raw
        return True

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
        self.climbing[name], self._name = done, name
        if before is None or done < before:
            return False
        self._held[name] = line, raw
        return True

    @property
    def idle(self) -> bool:
        """True while no bar climbs and none is held back."""
        return not self.climbing and not self._held

    def taken(self) -> list[tuple[int, bytes]]:
        """Give up what is held, in the order of the log."""
        held = sorted(self._held.values())
        self._held = {}
        return held


def bar_name(raw: bytes) -> bytes | None:
    """Return what stands before the percent of a bar's state; None: it may be none."""
    at = raw.find(b"%")
    if at < 1 or not raw.startswith(_AFTER, at) or not raw[at - 1 : at].isdigit():
        return None
    return raw[:at].rstrip(_NUMBER)
