"""Workers as processes of this machine."""

import contextlib
import signal
import subprocess
import sys
import tempfile
from types import TracebackType
from typing import IO, Self

from stepscope.errors import SessionError
from stepscope.load.crew import Crew, Hand
from stepscope.load.messages import Job, ToWorker, message
from stepscope.run.client import ClientNode

_END_TIMEOUT_S = 5.0
_START_DELAY_NS = 20_000_000


class Process:
    """A worker's process; the end of its pipe tells it to end.

    Attributes:
        words: What it says.
    """

    def __init__(self, job: Job) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  # closed in end()
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "stepscope.load.worker"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                bufsize=0,
            )
        except OSError as error:
            self._errors.close()
            raise SessionError("client", f"no worker could be started: {error}") from (
                error
            )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._ears: IO[bytes] = self._process.stdin
        self.words: IO[bytes] = self._process.stdout
        self.tell(job)

    def tell(self, order: ToWorker) -> None:
        """Say something to it."""
        with contextlib.suppress(OSError):
            data = memoryview(message(order))
            while data:
                data = data[self._ears.write(data) or 0 :]

    def ending(self) -> str | None:
        """Return how it ended, once its words have; None: as it should."""
        self._wait()
        code = self._process.returncode
        if not code:
            return None
        if code < 0:
            return f"was killed ({signal.Signals(-code).name})"
        self._errors.seek(0)
        lines = self._errors.read().decode("utf-8", "replace").strip().splitlines()
        return f"ended with {code}: {lines[-1] if lines else 'it said nothing'}"

    def _wait(self) -> None:
        try:
            self._process.wait(_END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def let_go(self) -> None:
        """Close its ears, which tells it to end."""
        with contextlib.suppress(OSError):
            self._ears.close()

    def end(self) -> None:
        """Wait until it has ended; kill it when it does not."""
        self._wait()
        self._errors.close()


class LocalPool:
    """This machine's processes.

    Attributes:
        n_workers: Client processes.
        start_delay_ns: From the word to go to the common start.
    """

    start_delay_ns = _START_DELAY_NS

    def __init__(self, n_workers: int) -> None:
        self.n_workers = n_workers

    def __enter__(self) -> Self:
        """There is nothing to prepare."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """There is nothing to give back."""

    def hire(self, job: Job) -> Hand:
        """Start a worker with its job."""
        return Process(job)

    def nodes(self, crew: Crew) -> tuple[ClientNode, ...]:
        """Return nothing: there is one node, and all is said of it elsewhere."""
        return ()
