"""Drive one cell: start the workers, let them start together, merge what they say."""

import os
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from stepscope.clock import Clock
from stepscope.errors import SessionError
from stepscope.findings import Finding
from stepscope.load.ask import vocabulary_size
from stepscope.load.crew import Crew
from stepscope.load.datasets.choose import chosen
from stepscope.load.datasets.handover import hand_over
from stepscope.load.health import client_health
from stepscope.load.journal import Recorded, Stamps, journals
from stepscope.load.local import LocalPool
from stepscope.load.messages import Go, Job, Stop, Tally, TextPlan
from stepscope.load.prompts import WORDED, request_head, server_of, uses_token_ids
from stepscope.load.spec import LoadProgress, LoadResult, LoadSpec, parse_cpus
from stepscope.load.text import Lengths, text_plan
from stepscope.run.client import ClientNode
from stepscope.units import ms

if TYPE_CHECKING:
    from stepscope.load.pool_ray import RayPool

#: One process keeps its stamps and its merging below 1 % up to this rate.
_TOKENS_PER_S_PER_PROCESS = 50_000
#: What a stream brings at most on current engines, where nobody said more.
_TOKENS_PER_S_PER_STREAM = 50
_MAX_PROCESSES = 16
_LISTEN_S = 0.05


def drive(
    spec: LoadSpec,
    journal_dir: Path,
    *,
    clock: Clock,
    on_progress: Callable[[LoadProgress], None] | None = None,
    stop: threading.Event | None = None,
) -> LoadResult:
    """Send a cell's load and return when its last request has ended.

    Every ended request, failed ones too, is a frame in
    ``journal_dir/requests-<worker>.journal`` as soon as it ends.

    Args:
        spec: The load.
        journal_dir: An existing directory without journals.
        clock: The machine's clock; workers read the same one.
        on_progress: Called about ten times a second.
        stop: When set, what is in flight is recorded as ``cancelled`` and it ends.

    Raises:
        RecipeError: The spec is wrong.
        SessionError: The server can not be reached at all, or no client can be
            started; nothing was measured.
    """
    spec.check()
    request_head(spec)
    _check_empty(journal_dir)
    stop = stop or threading.Event()
    called_at_ns = clock.now_ns()
    spec, text = _worded(spec)
    items, notes = _items(spec, journal_dir)
    with (
        _pool(spec, journal_dir, clock) as pool,
        Crew(_jobs(spec, journal_dir, text, items, pool.n_workers), pool.hire) as crew,
    ):
        while not crew.ready and not stop.is_set():
            crew.listen(_LISTEN_S)
        if items is not None:
            items.unlink(missing_ok=True)
        if not stop.is_set():
            _check_reached(spec, crew)
        started_at_ns = clock.now_ns() + pool.start_delay_ns
        crew.tell(Stop() if stop.is_set() else Go(at_ns=started_at_ns))
        told = stop.is_set()
        while crew.working:
            crew.listen(_LISTEN_S)
            if stop.is_set() and not told:
                told = True
                crew.tell(Stop())
            if on_progress is not None:
                on_progress(crew.progress)
        ended_at_ns = clock.now_ns()
        nodes = pool.nodes(crew)
    result = _result(journal_dir, crew, nodes, (started_at_ns, ended_at_ns), told=told)
    return msgspec.structs.replace(
        result,
        prepare_ns=started_at_ns - called_at_ns,
        findings=(*notes, *clock_note(nodes), *result.findings),
    )


def _check_empty(journal_dir: Path) -> None:
    if journals(journal_dir):
        raise SessionError(
            str(journal_dir),
            "journals of an earlier cell",
            "an empty directory",
            "Move them away: two cells in one journal can not be told apart",
        )


def _worded(spec: LoadSpec) -> tuple[LoadSpec, TextPlan | None]:
    """Ask the server what prompts are drawn from: token ids, or words."""
    text: TextPlan | None = None
    if uses_token_ids(spec) and spec.vocab_size is None:
        size = vocabulary_size(server_of(spec))
        spec = msgspec.structs.replace(spec, vocab_size=size)
    elif not uses_token_ids(spec) and spec.source.name not in WORDED:
        text = text_plan(spec)
    return spec, text


def _pool(spec: LoadSpec, journal_dir: Path, clock: Clock) -> "LocalPool | RayPool":
    """Return where the workers run."""
    if spec.workers == "local":
        return LocalPool(n_processes(spec))
    from stepscope.load.pool_ray import RayPool

    return RayPool(spec, journal_dir, clock)


def _items(
    spec: LoadSpec, journal_dir: Path
) -> tuple[Path | None, tuple[Finding, ...]]:
    """Choose the entries of a file; None: prompts are random."""
    if spec.source.name == "random":
        return None, ()
    length = Lengths(spec)
    path = hand_over(journal_dir, chosen(spec, length))
    if not length.guessed:
        return path, ()
    note = Finding(
        code="lengths-estimated",
        severity="info",
        message="the server lends no tokenizer: lengths of answers and of what was"
        " left out of the file are guessed at four bytes a token",
        hint="Give the length of answers, or a file that has output_tokens.",
    )
    return path, (note,)


def n_processes(spec: LoadSpec) -> int:
    """Return how many workers a cell gets: its own number, or one per 50k tokens/s.

    The guess leaves the server at least half of the CPUs that it may share with us.
    """
    if spec.processes is not None:
        return min(spec.processes, spec.n_slots)
    rate = spec.expected_tokens_per_s or _guessed_tokens_per_s(spec)
    wanted = -(-rate // _TOKENS_PER_S_PER_PROCESS)
    given = parse_cpus(spec.cpus)
    room = len(given) if given else len(os.sched_getaffinity(0)) // 2
    return int(max(1, min(wanted, room, _MAX_PROCESSES, spec.n_slots)))


def _guessed_tokens_per_s(spec: LoadSpec) -> float:
    arrivals = spec.arrivals
    most = spec.n_slots * _TOKENS_PER_S_PER_STREAM
    if arrivals is None or spec.output_tokens is None:
        return most
    rate = max(arrivals.rate or 0.0, arrivals.end_rps or 0.0)
    return min(most, rate * spec.output_tokens) if rate else most


def _jobs(
    spec: LoadSpec,
    journal_dir: Path,
    text: TextPlan | None,
    items: Path | None,
    n: int,
) -> list[Job]:
    cpus = parse_cpus(spec.cpus)
    return [
        Job(
            spec=spec,
            worker=worker,
            n_workers=n,
            journal_dir=str(journal_dir),
            # A CPU each where there are enough, so that none is moved in mid-burst.
            cpus=(cpus[worker],) if len(cpus) >= n else cpus,
            text=text,
            items_path=None if items is None else str(items),
        )
        for worker in range(n)
    ]


def _check_reached(spec: LoadSpec, crew: Crew) -> None:
    """Raise when no connection could be opened before the start."""
    if crew.n_connected or not crew.working:
        return
    for kind, detail in crew.troubles:
        raise SessionError(
            spec.base_url,
            f"no connection ({kind}: {detail})",
            "a server that listens",
            "Check the address, and that the server is up",
        )


def _result(
    journal_dir: Path,
    crew: Crew,
    nodes: tuple[ClientNode, ...],
    span_ns: tuple[int, int],
    *,
    told: bool,
) -> LoadResult:
    tallies = crew.tallies
    if not tallies and not journals(journal_dir):
        raise SessionError("client", crew.losses[0])
    n_ok, n_failed = sum(t.n_ok for t in tallies), sum(t.n_failed for t in tallies)
    if crew.losses:  # a lost worker's count is its journal
        ended = Counter(s.failure is None for s in Recorded(journal_dir, Stamps))
        n_ok, n_failed = ended[True], ended[False]
    return LoadResult(
        started_at_ns=span_ns[0],
        ended_at_ns=span_ns[1],
        health=msgspec.structs.replace(
            client_health(tallies, crew.n_workers, crew.losses), nodes=nodes
        ),
        n_ok=n_ok,
        n_failed=n_failed,
        lost_workers=len(crew.losses),
        stopped=told,
        findings=_findings(tallies, crew.losses),
    )


def _findings(tallies: Sequence[Tally], losses: Sequence[str]) -> tuple[Finding, ...]:
    found = [
        Finding(
            code="client-worker-lost",
            severity="error",
            message=f"{loss}; the requests in its hands are unknown",
            hint="Run the cell again.",
        )
        for loss in losses
    ]
    step_ns = max((t.clock_step_ns for t in tallies), key=abs, default=0)
    if step_ns:
        found.append(
            Finding(
                code="clock-step",
                severity="error",
                message=f"the wall clock stepped by {ms(step_ns):.1f} ms during the"
                " cell; kernel stamps around the step are wrong by as much",
                hint="Stop what sets the time (chronyd -q, ntpdate) and run it again.",
                voids=True,
            )
        )
    return tuple(found)


def clock_note(nodes: Sequence[ClientNode]) -> tuple[Finding, ...]:
    """Say how far the clocks of other machines can be trusted together."""
    if not nodes:
        return ()
    known = [n.clock_error_ms for n in nodes if n.clock_error_ms is not None]
    lost = [n.name for n in nodes if n.clock_error_ms is None]
    bound = f"to {max(known):.3f} ms each" if known else "before the cell alone"
    end = f"; lost before they were read again: {', '.join(lost)}" if lost else ""
    where = f"{len(nodes)} machines, their clocks"
    if len(nodes) == 1:
        where = "one machine, its clock"
    return (
        Finding(
            code="clocks-aligned",
            severity="info",
            message=f"the load came from {where} aligned {bound} by round trips before"
            f" and after the cell{end}. Latencies are of one clock each and carry none"
            " of this",
            hint="Instants of two machines differ give or take twice as much.",
        ),
    )
