"""Tracebacks and error lines to failures, per process, in the order of the log."""

import re
from dataclasses import dataclass, field

from stepscope.parse.log.oom_figures import in_gib, oom_numbers
from stepscope.parse.log.signatures import (
    COLLATERAL,
    KERNEL_KILL,
    KERNEL_OTHER,
    KERNEL_RSS,
    MEMORY_EVENTS,
    SIGNATURES,
    WRAPPER,
)
from stepscope.parse.log.state import MAX_TEXT, Here, State
from stepscope.run.serverlog import Failure

_TRACEBACK = "Traceback (most recent call last)"
_EXCEPTION = re.compile(r"([A-Za-z_][\w.]*)(?:: (.*))?$")
_TYPED = re.compile(r"((?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Failed))(?:: |$)")
_IN = re.compile(r'  File "([^"]*)", line \d+, in (\S+)')
_PROCESS = re.compile(r"Process ([\w.-]+):$")
_CHAINED = re.compile(r"(?:During handling of|The above exception was)")
#: One cheap look at lines that no logger wrote.
_LOUD = re.compile(
    r"rror|xception|out of memory|[Kk]illed|died|Bus error|oom|OOM|NV_ERR|NCCL WARN|"
    r"No space left|unable to|failed|fatal|Segmentation|Aborted|bad_alloc|"
    r"requires|terminate called|[Ff]atal|Timed out|exited with code|SIG[A-Z]|"
    r"[Ee]xit ?code|terminated with|atchdog|not supported|only support|"
    r"no kernel image|custom code|"
    r"not enough|assert|couldn't bind",
)
#: An engine that repeats what its worker raised.
_QUOTED = re.compile(r"Worker failed with error '(.*)', please check")
#: What some reports of another failure say of its reason.
_TELLING = re.compile(r"not enough GPU memory|: failed to open ")
MAX_FRAMES = 80
#: A traceback that has not ended after so many lines never will.
MAX_TRACEBACK_LINES = 400

#: An exception's own words may go on for so many lines.
MAX_WORDS_LINES = 12

#: Signatures whose match is trusted on any line, not only on an exception's.
_STRONG = frozenset(
    {
        "sampler-oom",
        "no-kv-memory",
        "kv-smaller-than-context",
        "free-memory-below-request",
        "memory-race",
        "mamba-blocks",
        "gpu-oom",
        "kv-alloc",
        "compute-alloc",
        "host-alloc",
        "shm-exhausted",
        "port-in-use",
        "ready-timeout",
        "toolchain",
        "nccl-system-error",
        "collective-timeout",
        "host-oom",
        "illegal-access",
        "bad-argument",
        "model-not-found",
        "unbalanced-memory",
        "killed",
    }
)


def role(process: str | None) -> str:
    """Return what kind of process a name belongs to."""
    if process is None:
        return "other"
    lowered = process.lower()
    if "worker" in lowered or re.search(r"\b(?:TP|PP|EP|DP)\d", process):
        return "worker"
    if "enginecore" in lowered or "scheduler" in lowered or "engine" in lowered:
        return "engine"
    if "api" in lowered or "main" in lowered or "frontend" in lowered:
        return "api"
    return "other"


@dataclass(slots=True)
class _Open:
    """A traceback that is being printed."""

    frames: list[str] = field(default_factory=list)
    line: int = 0


class FailureReader:
    """Watches every line that is not the normal talk of an engine."""

    def __init__(self) -> None:
        self._open: dict[str | None, _Open] = {}
        self._owner: str | None = None
        #: The last line at which a traceback may be going on.
        self.until = -1
        #: The last line on which an exception's words may go on.
        self._words_until = -1

    def busy(self, line: int) -> bool:
        """True while a traceback may be going on at a line."""
        return line <= self.until

    def read(self, state: State, here: Here) -> bool:
        """Take one line; say whether it can have meant something."""
        frame = here.frame
        text = frame.text
        who = frame.process
        if who is None and frame.level is None:
            who = self._owner
        if _TRACEBACK in text:
            state.tracebacks += 1
            self._begin(state, here, who)
            return True
        opened = self._open.get(who)
        if opened is not None and self._continues(state, here, who, opened):
            return True
        level = frame.level
        if level in ("INFO", "DEBUG"):
            return False
        if level is not None and level != "WARNING":
            self._report(state, here, who, frames=(), exception=None)
            return True
        named = _PROCESS.match(text) if frame.at_s is None or level is None else None
        if named is not None:
            self._owner = named[1]
        elif _LOUD.search(text) is None:
            return False
        else:
            self._loose(state, here, who)
        return True

    def _begin(self, state: State, here: Here, who: str | None) -> None:
        if here.frame.process is not None and here.frame.level is None:
            # SGLang prints the head in a frame and the rest bare.
            self._owner = here.frame.process
        self.until = here.line + MAX_TRACEBACK_LINES
        if len(self._open) > 1024:
            self._open.clear()
        self._open[who] = _Open(line=here.line)
        before = here.text.split(_TRACEBACK, 1)[0].strip()
        if before and WRAPPER.search(before):
            self._report(state, here, who, frames=(), exception=None)

    def _continues(
        self, state: State, here: Here, who: str | None, opened: _Open
    ) -> bool:
        text = here.text
        if text.startswith("  "):
            found = _IN.match(text)
            if found is not None and len(opened.frames) < MAX_FRAMES:
                module = found[1].rsplit("/", 1)[-1].removesuffix(".py")
                opened.frames.append(f"{module}.{found[2]}")
            return True
        if not text.strip():
            return True
        if _CHAINED.match(text):
            return True
        hit = _EXCEPTION.match(text)
        if hit is None or here.frame.level in ("INFO", "DEBUG"):
            if here.line - opened.line > MAX_TRACEBACK_LINES:
                del self._open[who]
            return False
        del self._open[who]
        if who == self._owner:
            self._owner = None
        frames = tuple(opened.frames)
        self._words_until = here.line + MAX_WORDS_LINES
        self._report(state, here, who, frames=frames, exception=hit[1])
        return True

    def _loose(self, state: State, here: Here, who: str | None) -> None:
        """A line outside any traceback that no logger called an error."""
        text = here.text
        if _kernel(state, here) or text.startswith(("    ", "Ignore import error")):
            return
        if "OOM detected, falling back" in text:
            state.event(here, "autotune", code="autotune-oom")
            return
        if "Ignoring this choice" in text:
            return
        typed = _TYPED.match(text)
        if typed is not None:
            self._report(state, here, who, frames=(), exception=typed[1])
            return
        if WRAPPER.search(text):
            self._report(state, here, who, frames=(), exception=None)
            return
        if here.frame.level == "WARNING":
            return
        signature, match = classify(text, exception=None)
        if signature in _STRONG or (
            signature == "unsupported-arch"
            and (here.line <= self._words_until or (match and match["image"]))
        ):
            self._report(state, here, who, frames=(), exception=None)

    def _report(
        self,
        state: State,
        here: Here,
        who: str | None,
        *,
        frames: tuple[str, ...],
        exception: str | None,
    ) -> None:
        text = here.text
        if exception is None:
            typed = _TYPED.match(text)
            exception = typed[1] if typed is not None else None
            if _kernel(state, here):
                return
        signature, match = classify(text, exception)
        told = _QUOTED.search(text) if signature == "wrapper" else None
        if told is not None and frames and classify(told[1], None)[0] in _STRONG:
            # It speaks for another process, whose own words may be missing.
            signature, match = classify(told[1], None)
        else:
            told = None
        if signature == "gpu-oom" and "OOM detected, falling back" in text:
            state.event(here, "autotune", code="autotune-oom")
            return
        if "Ignoring this choice" in text:
            return  # The compiler tries several kernels and drops those that fail.
        numbers, names = _named(match)
        if signature in ("gpu-oom", "host-alloc", "kv-alloc", "sampler-oom"):
            numbers.update(oom_numbers(text))
        if signature == "memory-race":
            in_gib(numbers)
        facts = state.process(who)
        stage = facts.stage
        if who is None or told is not None or role(who) in ("api", "other"):
            facts, stage = state.anyone, state.anyone.stage
        if stage == "load_weights" and facts.flags.get("weights_loaded"):
            stage = "profile"
        state.fail(
            Failure(
                line=here.line,
                signature=signature,
                text=text[:MAX_TEXT],
                process=who,
                role="worker"
                if frames and who is None and _in_worker(frames)
                else role(who),
                at_s=here.frame.at_s,
                stage=stage,
                exception=exception,
                frames=frames,
                numbers=numbers,
                names=names,
                is_quoted=told is not None,
                after_ready=state.ready_line is not None,
                after_shutdown=state.shutdown_line is not None,
            )
        )
        state.event(here, "error", numbers, code=signature)


def _in_worker(frames: tuple[str, ...]) -> bool:
    """A bare traceback names its process by the functions in it."""
    return any(
        f.startswith(("gpu_worker.", "worker_base.", "scheduler.")) for f in frames
    )


def classify(text: str, exception: str | None) -> tuple[str, re.Match[str] | None]:
    """Return the signature of a text and the match that found it."""
    if WRAPPER.search(text):
        killed = SIGNATURES[-1][1].search(text)
        if killed is not None and (killed["n_exit_code"] or killed["n_exit_code2"]):
            return "killed", killed
        for name, pattern in SIGNATURES[:-1]:
            hit = pattern.search(text) if _TELLING.search(text) else None
            if hit is not None:
                return name, hit
        return "wrapper", None
    for name, pattern in SIGNATURES:
        hit = pattern.search(text)
        if hit is not None:
            if name == "killed" and exception is not None and "died" not in text:
                continue
            return name, hit
    if COLLATERAL.search(text):
        return "collateral", None
    return ("exception" if exception is not None else "error"), None


def _named(
    match: re.Match[str] | None,
) -> tuple[dict[str, float], dict[str, str]]:
    numbers: dict[str, float] = {}
    names: dict[str, str] = {}
    if match is None:
        return numbers, names
    for key, value in match.groupdict().items():
        if not value:
            continue
        if key.startswith("n_"):
            try:
                numbers[key[2:].rstrip("23")] = float(value.rstrip("."))
            except ValueError:
                continue
        else:
            names[key.rstrip("23")] = value[:200]
    return numbers, names


def _kernel(state: State, here: Here) -> bool:
    """A line of the kernel log or of a control group's counters."""
    text = here.text
    killed = KERNEL_KILL.search(text)
    other = KERNEL_OTHER.search(text) if killed is None else None
    events = MEMORY_EVENTS.match(text.strip())
    if events is not None and int(events["n_kills"]) == 0:
        state.marks.setdefault("oom_kills", 0.0)
        return True
    hit = killed or other or events
    if hit is None:
        return False
    numbers, names = _named(hit)
    for kind, kib in KERNEL_RSS.findall(text):
        numbers[f"{kind}_rss_gib"] = round(int(kib) / (1 << 20), 3)
    state.fail(
        Failure(
            line=here.line,
            signature="kernel-oom-kill",
            text=text[:MAX_TEXT],
            process=names.get("name"),
            role="kernel",
            stage=state.anyone.stage,
            numbers=numbers,
            names=names,
            after_ready=state.ready_line is not None,
            after_shutdown=state.shutdown_line is not None,
        )
    )
    return True
