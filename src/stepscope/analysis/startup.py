"""What a start costs, in seconds and money, and when a slower start has paid off."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Literal

import msgspec

from stepscope.analysis.boot.document import log_document
from stepscope.analysis.boot.records import (
    BootResult,
    BreakEven,
    StartupCost,
    StartupPhase,
)
from stepscope.analysis.compare.records import Comparison
from stepscope.run.run import Launch, Run
from stepscope.run.serverlog import BootVerdict, Phase, counted
from stepscope.units import seconds

_RATE = "output_tokens_per_s"
_S_PER_HOUR = 3600.0


def boot_results(run: Run) -> tuple[BootResult, ...]:
    """Return each launch: how it came up, what its phases took and cost."""
    repeated = {x.retry_of: x.name for x in run.launches if x.retry_of is not None}
    # A server that runs already was started by nobody here.
    coldness = _coldness(() if run.engine == "url" else run.launches)
    per_s = None if run.cost is None else run.cost.usd_per_hour / _S_PER_HOUR
    return tuple(
        _boot(
            launch, repeated.get(launch.name), coldness.get(launch.name), per_s or None
        )
        for launch in run.launches
    )


def _coldness(launches: Sequence[Launch]) -> dict[str, bool | None]:
    """True for the first start of a configuration in a session, False for later ones.

    None where it is not known: imported launches, the first start that came up after
    others had failed half-way, and a start under a profiler, which is slower.
    """
    found: dict[str, bool | None] = {}
    ready: dict[tuple[str, str], bool] = {}
    for launch in launches:
        key = (launch.session, launch.configuration)
        if launch.started_at_ns is None:
            found[launch.name] = None
            continue
        known = ready.get(key)
        found[launch.name] = True if known is None else (False if known else None)
        if launch.wrapper:
            found[launch.name] = None
        ready[key] = bool(known) or launch.ready
    return found


def _boot(
    launch: Launch, repeated: str | None, cold: bool | None, usd_per_s: float | None
) -> BootResult:
    began, end = launch.started_at_ns, launch.ready_at_ns
    took = seconds(end - began) if began is not None and end is not None else None
    spent = took
    if not launch.ready and began is not None and launch.stopped_at_ns is not None:
        spent = seconds(launch.stopped_at_ns - began)
    usd = spent * usd_per_s if spent is not None and usd_per_s is not None else None
    result = BootResult(
        launch=launch.name,
        ready=launch.ready,
        seconds_to_ready=took,
        phases=(),
        ledger={},
        verdict={},
        log_path=launch.log_path,
        configuration=launch.configuration,
        session=launch.session,
        cold=cold,
        startup_usd=usd,
        retry_of=launch.retry_of,
        retried_by=repeated,
        applied_fixes=launch.applied_fixes,
    )
    if launch.log is None:
        return result
    code = None if launch.ready else launch.exit_code
    document = log_document(counted(launch.log, launch.oom_kills), exit_code=code)
    named = _covered_s(document.phases)
    return msgspec.structs.replace(
        result,
        phases=tuple(_priced(phase, usd_per_s) for phase in document.phases),
        ledger=msgspec.to_builtins(document.ledger),
        verdict=msgspec.to_builtins(_with_failure(document.verdict, launch)),
        unnamed_s=max(took - named, 0.0) if took is not None and named else None,
    )


def _with_failure(verdict: BootVerdict, launch: Launch) -> BootVerdict:
    """Let what the session saw speak where the log says nothing."""
    if verdict.cause == "unknown" and launch.kernel_lines:
        said = "; ".join(line[:200] for line in launch.kernel_lines[:3])
        verdict = msgspec.structs.replace(
            verdict, why=f"{verdict.why} The kernel logged meanwhile: {said}"
        )
    if launch.ready or launch.failure is None or verdict.outcome != "unfinished":
        return verdict
    late = launch.failure.startswith("not ready after")
    return msgspec.structs.replace(
        verdict,
        outcome="failed",
        cause="ready-timeout" if late else "unknown",
        why=f"The log does not say why. {launch.failure}",
    )


def _priced(phase: Phase, usd_per_s: float | None) -> dict[str, object]:
    told: dict[str, object] = msgspec.to_builtins(phase)
    known = phase.seconds is not None and usd_per_s is not None
    told["usd"] = (phase.seconds or 0.0) * (usd_per_s or 0.0) if known else None
    return told


def _covered_s(phases: Sequence[Phase]) -> float:
    """Return the seconds in which at least one phase ran; overlaps count once."""
    spans = sorted(
        (p.ends_at_s - p.seconds, p.ends_at_s)
        for p in phases
        if p.seconds is not None and p.ends_at_s is not None
    )
    covered, reached = 0.0, float("-inf")
    for begin, end in spans:
        covered += max(0.0, end - max(begin, reached))
        reached = max(reached, end)
    return covered


def startup_costs(boots: Sequence[BootResult], run: Run) -> tuple[StartupCost, ...]:
    """Return for each configuration and session what a cold and a warm start take."""
    groups: dict[tuple[str, str], list[BootResult]] = defaultdict(list)
    for boot in boots:
        if boot.ready and boot.seconds_to_ready is not None:
            groups[(boot.session or "", boot.configuration or "")].append(boot)
    hour = None if run.cost is None else run.cost.usd_per_hour or None
    found = []
    for (session, configuration), group in groups.items():
        cold = [b for b in group if b.cold is True]
        warm = [b for b in group if b.cold is False]
        cold_s, warm_s = _seconds(cold), _seconds(warm)
        found.append(
            StartupCost(
                configuration=configuration,
                session=session,
                cold_s=cold_s,
                warm_s=warm_s,
                n_warm=len(warm),
                cold_usd=_usd(cold_s, hour),
                warm_usd=_usd(warm_s, hour),
                phases=tuple(_phases(cold, warm)),
            )
        )
    return tuple(found)


def _seconds(boots: Sequence[BootResult]) -> float | None:
    values = [b.seconds_to_ready for b in boots if b.seconds_to_ready is not None]
    return median(values) if values else None


def _usd(took_s: float | None, hour: float | None) -> float | None:
    return None if took_s is None or hour is None else took_s / _S_PER_HOUR * hour


def _phases(
    cold: Sequence[BootResult], warm: Sequence[BootResult]
) -> list[StartupPhase]:
    names = dict.fromkeys(str(p["name"]) for b in (*cold, *warm) for p in b.phases)
    return [
        StartupPhase(
            name=name,
            cold_s=_phase_s(cold, name),
            warm_s=_phase_s(warm, name),
            overlaps=_overlaps((*cold, *warm), name),
        )
        for name in names
    ]


def _phase_s(boots: Sequence[BootResult], name: str) -> float | None:
    found = [p.get("seconds") for b in boots for p in b.phases if p["name"] == name]
    values = [float(v) for v in found if isinstance(v, int | float)]
    return median(values) if values else None


def _overlaps(boots: Sequence[BootResult], name: str) -> tuple[str, ...]:
    found: dict[str, None] = {}
    for boot in boots:
        for phase in boot.phases:
            others = phase.get("overlaps")
            if phase["name"] == name and isinstance(others, list | tuple):
                found.update(dict.fromkeys(str(o) for o in others))
    return tuple(found)


def break_evens(
    costs: Sequence[StartupCost], comparisons: Sequence[Comparison]
) -> tuple[BreakEven, ...]:
    """Return after how many hours B has produced more tokens than A.

    Both are started at the same instant. A produces ``a (t - s_a)`` tokens, B
    ``a (1 + d) (t - s_b)``; they are level at ``t = s_b + (s_b - s_a) / d``.

    Source: that sum. The interval is that of d alone.
    Assumes: the load is there at once and all the time; B's gain d is the one measured
        at that concurrency; starts take what they took here. Says nothing where the
        difference is not established.
    """
    by_name: Mapping[tuple[str, str], StartupCost] = {
        (c.session, c.configuration): c for c in costs
    }
    found = []
    for row in comparisons:
        if row.metric != _RATE or row.anchor is not None:
            continue
        session = row.session if row.session is not None else _only(costs)
        a = by_name.get((session or "", row.a))
        b = by_name.get((session or "", row.b))
        if a is not None and b is not None:
            found.append(_break_even(row, a, b))
    return tuple(found)


def _only(costs: Sequence[StartupCost]) -> str | None:
    sessions = {c.session for c in costs}
    return sessions.pop() if len(sessions) == 1 else None


def _break_even(row: Comparison, a: StartupCost, b: StartupCost) -> BreakEven:
    kind: Literal["cold", "warm"] = "warm"
    a_s, b_s = a.warm_s, b.warm_s
    if a_s is None or b_s is None:
        kind, a_s, b_s = "cold", a.cold_s, b.cold_s
    told = BreakEven(
        a=row.a,
        b=row.b,
        concurrency=row.concurrency,
        verdict="undetermined",
        a_startup_s=a_s,
        b_startup_s=b_s,
        startup=kind if a_s is not None and b_s is not None else None,
    )
    set_to = msgspec.structs.replace
    if a_s is None or b_s is None:
        return set_to(told, why="no start of both of one kind, cold or warm, is known")
    if row.verdict not in ("faster", "slower") or not row.delta_pct:
        why = "no difference of throughput is established at this concurrency"
        return set_to(told, why=why)
    gain, slower_start = row.delta_pct / 100, b_s - a_s
    if row.verdict == "faster" and slower_start <= 0:
        return set_to(told, verdict="at-once", why="it starts no later and runs faster")
    if row.verdict == "slower" and slower_start >= 0:
        return set_to(told, verdict="never", why="it starts no sooner and runs slower")
    at_s = b_s + slower_start / gain
    verdict = "after" if row.verdict == "faster" else "until"
    ends = None
    if row.ci95_pct is not None and row.ci95_pct[0] * row.ci95_pct[1] > 0:
        low, high = sorted(b_s + slower_start / (g / 100) for g in row.ci95_pct)
        ends = (low / _S_PER_HOUR, high / _S_PER_HOUR)
    ahead = "ahead from then on" if verdict == "after" else "ahead up to then"
    return set_to(
        told,
        verdict=verdict,
        hours=at_s / _S_PER_HOUR,
        ci95_hours=ends,
        why=f"{row.b} starts {abs(slower_start):.0f} s"
        f" {'later' if slower_start > 0 else 'sooner'} ({kind} starts) and produces"
        f" {row.delta_pct:+.1f} % tokens/s: it is {ahead}",
    )
