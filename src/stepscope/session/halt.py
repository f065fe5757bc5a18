"""How a person ends a session: asked once it ends cleanly, asked twice at once."""

import threading
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Halt:
    """Two events, since a signal handler may do nothing longer than set one.

    Attributes:
        asked: The session is to stop: requests are cancelled, the server is asked to
            end, the archive is closed.
        hurry: The server is to be killed without being asked.
    """

    asked: threading.Event = field(default_factory=threading.Event)
    hurry: threading.Event = field(default_factory=threading.Event)

    def ask(self) -> None:
        """Ask once, or once more."""
        if self.asked.is_set():
            self.hurry.set()
        self.asked.set()
