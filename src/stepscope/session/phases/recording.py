"""The recording of a timeline beside the load that is traced."""

import threading

from stepscope.load.spec import LoadProgress
from stepscope.session.context import Context
from stepscope.session.phases.switches import Switch
from stepscope.session.server import Server
from stepscope.units import seconds

_POLL_S = 0.05


class Recorder:
    """Switches a profiler on and off, from a thread of its own.

    Attributes:
        began: The profiler was started.
        why: What went wrong; None: nothing.
        load_ended: To be set when the load has ended.
    """

    def __init__(
        self, context: Context, switch: Switch, lead_ns: int, window_ns: int
    ) -> None:
        """Prepare a recording.

        Args:
            context: The session.
            switch: What is switched.
            lead_ns: From the first request in flight to the start.
            window_ns: How long to record.
        """
        self._context, self._switch = context, switch
        self._lead_s, self._window_s = seconds(lead_ns), seconds(window_ns)
        self.began = False
        self.why: str | None = None
        self.load_ended = threading.Event()
        self._in_flight = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def begin(self) -> None:
        """Wait for the load from now on."""
        self._thread.start()

    def hear(self, progress: LoadProgress) -> None:
        """Take the load's progress, and pass it on."""
        if progress.n_sent:
            self._in_flight.set()
        self._context.observer.progress(progress)

    def joined(self, server: Server) -> bool:
        """Wait for the end of the recording; False where it will not come."""
        while self._thread.is_alive():
            self._thread.join(_POLL_S)
            if self._context.halt.asked.is_set() or server.exit_code() is not None:
                return False
        return True

    def _run(self) -> None:
        while not self._in_flight.wait(_POLL_S):
            if self.load_ended.is_set():
                self.why = "the load ended before it was in flight"
                return
        if self.load_ended.wait(self._lead_s):
            self.why = "the load ended before the profiler was to start"
            return
        self.why = self._switch.start()
        if self.why is not None:
            return
        self.began = True
        if self.load_ended.wait(self._window_s):
            self.why = "the load ended while it was recorded"
        self.why = self._switch.stop() or self.why
