"""What has been read of a log so far: plain facts, in bounded memory."""

from dataclasses import dataclass, field

from stepscope.parse.log.frame import Frame
from stepscope.run.serverlog import Failure, InertFlag, LogEvent, Phase, Suggestion

Value = str | int | float | bool | None

#: Start-up phases in their order; a process's stage only moves forward.
STAGES = (
    "spawn",
    "load_weights",
    "compile",
    "profile",
    "graph_profile",
    "kv_alloc",
    "kernel_warmup",
    "graph_capture",
    "sampler_warmup",
    "ready",
)
RANK = {name: rank for rank, name in enumerate(STAGES)}

#: Events kept of each kind. Runs of normal size stay far below; beyond the cap every
#: second kept event goes and only every second new one is kept, again and again.
EVENT_CAPS = {"iteration": 200_000, "stats": 100_000}
EVENT_CAP = 10_000
MAX_FAILURES = 2_000
MAX_TEXT = 2_000


@dataclass(slots=True)
class ProcessFacts:
    """What one process has said."""

    stage: str = "spawn"
    figures: dict[str, float] = field(default_factory=dict)
    flags: dict[str, bool] = field(default_factory=dict)
    last_work_line: int = 0
    kv_line: int | None = None
    kv_at_s: float | None = None


@dataclass(slots=True)
class PassFacts:
    """One pass of graph capture over all processes that took part in it."""

    bars: dict[str, int] = field(default_factory=dict)
    seconds: float | None = None
    gib: float | None = None
    line: int | None = None
    done: bool = False


@dataclass(slots=True)
class Kept:
    """The events of one kind: how many there were, and those that are kept."""

    cap: int
    n: int = 0
    stride: int = 1
    events: list[LogEvent] = field(default_factory=list)

    def thinned(self) -> bool:
        """Count an event and say True when it would not be kept."""
        if self.stride == 1 or not (self.n + 1) % self.stride:
            return False
        self.n += 1
        return True


@dataclass(slots=True)
class Here:
    """The line at hand."""

    line: int
    frame: Frame

    @property
    def text(self) -> str:
        """The message."""
        return self.frame.text


class State:
    """Everything collected. One per start of the server."""

    def __init__(self) -> None:
        self.engine: str | None = None
        self.version: str | None = None
        self.clock: str | None = None
        self.resolved: dict[str, Value] = {}
        self.resolved_lines: dict[str, int] = {}
        self.args: dict[str, Value] = {}
        self.args_line: int | None = None
        self.phases: dict[str, Phase] = {}
        self.processes: dict[str, ProcessFacts] = {}
        self.anyone = ProcessFacts()
        self.passes: dict[str, PassFacts] = {}
        self.open_bars: dict[str, int] = {}
        self.events: dict[str, Kept] = {}
        self.is_thinned = False
        self.failures: list[Failure] = []
        self.n_failures = 0
        self.suggestions: list[Suggestion] = []
        self.inert: dict[str, InertFlag] = {}
        self.marks: dict[str, float] = {}
        self.stage_line: int | None = None
        self.first_at_s: float | None = None
        self.last_at_s: float | None = None
        self.last_progress_at_s: float | None = None
        self.last_progress_line = 0
        self.ready_line: int | None = None
        self.ready_at_s: float | None = None
        self.shutdown_line: int | None = None
        self.n_stall_hints = 0
        self.shards: tuple[int, int, float | None] | None = None
        self.pinned: dict[str, float] = {}
        self.pinned_shared_gib = 0.0
        self.figures: dict[str, float] = {}
        self.tracebacks = 0
        self.n_requests = 0
        self.boot_line = 1

    def process(self, name: str | None) -> ProcessFacts:
        """Return the facts of a process; of nobody in particular for None."""
        if name is None:
            return self.anyone
        facts = self.processes.get(name)
        if facts is None:
            if len(self.processes) >= 4096:
                return self.anyone
            facts = self.processes[name] = ProcessFacts()
        return facts

    def resolve(self, here: Here, name: str, value: Value) -> None:
        """Note a resolved setting; a later, different line wins."""
        if name in self.resolved and self.resolved[name] == value:
            return
        self.resolved[name] = value
        self.resolved_lines[name] = here.line

    def figure(self, here: Here, name: str, value: float) -> None:
        """Note a figure of the ledger of the line's process."""
        self.process(here.frame.process).figures[name] = value

    def advance(self, here: Here, stage: str) -> None:
        """Move the line's process, and the whole boot, to a stage."""
        facts = self.process(here.frame.process)
        for each in (facts, self.anyone):
            if RANK[stage] > RANK[each.stage]:
                each.stage = stage
                if each is self.anyone:
                    self.stage_line = here.line
        self.progress(here)

    def progress(self, here: Here) -> None:
        """Note that the start-up went on at this line."""
        self.process(here.frame.process).last_work_line = here.line
        self.last_progress_line = here.line
        if self.last_at_s is not None:
            self.last_progress_at_s = self.last_at_s
        self.n_stall_hints = 0

    def phase(self, here: Here, name: str, seconds: float | None) -> None:
        """Note a phase's length; over the ranks the longest counts.

        A difference of stamps below 0 (a clock that was set back, a new year) says
        nothing.
        """
        if seconds is not None and seconds < 0:
            seconds = None
        known = self.phases.get(name)
        if (
            known is not None
            and known.seconds is not None
            and (seconds is None or known.seconds >= seconds)
        ):
            return
        self.phases[name] = Phase(
            name=name,
            seconds=seconds,
            process=here.frame.process,
            line=here.line,
            ends_at_s=self.last_at_s,
        )

    def thinned(self, kind: str) -> bool:
        """Count a line of this kind and say True when it would not be kept."""
        return self.is_thinned and kind in self.events and self.events[kind].thinned()

    def event(
        self,
        here: Here,
        kind: str,
        numbers: dict[str, float] | None = None,
        code: str | None = None,
    ) -> None:
        """Keep an event of the line at hand."""
        at_s = here.frame.at_s
        self.keep(
            LogEvent(
                kind=kind,
                line=here.line,
                text=here.text[:MAX_TEXT],
                at_s=at_s if at_s is not None else self.last_at_s,
                process=here.frame.process,
                numbers=numbers or {},
                code=code,
            )
        )

    def keep(self, event: LogEvent) -> None:
        """Keep an event, thinned out once its kind has reached its cap."""
        kept = self.events.get(event.kind)
        if kept is None:
            cap = EVENT_CAPS.get(event.kind, EVENT_CAP)
            kept = self.events[event.kind] = Kept(cap)
        kept.n += 1
        if kept.stride > 1 and kept.n % kept.stride:
            return
        kept.events.append(event)
        if len(kept.events) >= kept.cap:
            del kept.events[1::2]
            kept.stride *= 2
            self.is_thinned = True

    def fail(self, failure: Failure) -> None:
        """Keep a failure. The first ones matter: late ones beyond a cap are counted."""
        self.n_failures += 1
        if len(self.failures) < MAX_FAILURES:
            self.failures.append(failure)

    def suggest(self, here: Here, flag: str, value: float | str, purpose: str) -> None:
        """Note a setting that the engine proposed, once."""
        if any(s.flag == flag and s.purpose == purpose for s in self.suggestions):
            return
        self.suggestions.append(
            Suggestion(
                flag=flag,
                value=value,
                line=here.line,
                purpose=purpose,
                text=here.text[:MAX_TEXT],
            )
        )

    def is_inert(self, here: Here, flag: str, why: str) -> None:
        """Note a flag that does nothing."""
        self.inert.setdefault(flag, InertFlag(flag=flag, why=why, line=here.line))

    def stamp(self, frame: Frame) -> None:
        """Take the line's time."""
        at_s = frame.at_s
        if at_s is None:
            return
        if self.clock is None:
            self.clock = frame.clock
        elif frame.clock != self.clock:
            return
        if self.first_at_s is None:
            self.first_at_s = at_s
        self.last_at_s = at_s
