"""What a session tells while it runs. The command line shows it; tests record it."""

from typing import Protocol

from stepscope.load.spec import LoadProgress


class Observer(Protocol):
    """Hears of phases and progress. Must not block."""

    def phase(self, name: str, detail: str) -> None:
        """A phase begins: ``preflight``, ``boot``, ``probe``, ``warm-up``..."""
        ...

    def cell(self, name: str, number: int, total: int, n_requests: int) -> None:
        """A cell begins: the ``number``-th of ``total`` of the whole run."""
        ...

    def progress(self, progress: LoadProgress) -> None:
        """About five times a second inside a cell."""
        ...

    def note(self, severity: str, text: str) -> None:
        """Something that a person should see now."""
        ...
