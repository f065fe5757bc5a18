"""What the page and the terminal say of each launch."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from stepscope.analysis.boot.records import BootResult, BreakEven
from stepscope.analysis.records import Analysis
from stepscope.report.cells import shown
from stepscope.run.run import Launch, Run


@dataclass(frozen=True, slots=True)
class Boot:
    """What is told of one launch; texts, ready to be placed.

    ``phases`` are name, seconds and what ran at the same time.
    """

    launch: str
    ready: bool
    seconds: str
    phases: tuple[tuple[str, str, str], ...]
    ledger: tuple[tuple[str, str, str], ...]
    outcome: str
    cause: str
    why: str
    fixes: tuple[str, ...]
    wrong_readings: tuple[str, ...]
    failure: str
    log: str | None
    note: str = ""


def boots(run: Run, analysis: Analysis) -> list[Boot]:
    """Return, for each launch, its phases, memory ledger and verdict."""
    launches = {launch.name: launch for launch in run.launches}
    return [_boot(launches.get(boot.launch), boot) for boot in analysis.boot]


def _boot(launch: Launch | None, boot: BootResult) -> Boot:
    verdict = boot.verdict
    failure = launch.failure if launch is not None else None
    return Boot(
        launch=boot.launch,
        ready=boot.ready,
        seconds=shown(boot.seconds_to_ready),
        phases=tuple(
            (
                str(p.get("name")),
                _seconds(_float(p.get("seconds"))),
                ", ".join(str(x) for x in _list(p.get("overlaps"))),
            )
            for p in boot.phases
        ),
        ledger=tuple(_ledger(boot.ledger)),
        outcome=shown(verdict.get("outcome")),
        cause=str(verdict.get("cause") or ""),
        why=str(verdict.get("why") or ""),
        fixes=tuple(_fix(f) for f in _list(verdict.get("fixes"))),
        wrong_readings=tuple(str(w) for w in _list(verdict.get("wrong_readings"))),
        failure=failure or "",
        log=boot.log_path,
        note=" ".join(_notes(boot)),
    )


def _notes(boot: BootResult) -> list[str]:
    """Return what is to be said of a start beside its phases, in sentences."""
    kinds = {True: "The first start", False: "A later start", None: "A start"}
    told = []
    if boot.startup_usd is not None:
        told.append(f"{kinds[boot.cold]} for {boot.startup_usd:.2f} USD.")
    elif boot.cold is not None:
        told.append(f"{kinds[boot.cold]}.")
    if boot.unnamed_s is not None and boot.unnamed_s >= 1:
        told.append(
            f"{shown(boot.unnamed_s)} s of it are in no phase that the log tells."
        )
    if boot.retry_of is not None:
        told.append(f"It repeats {boot.retry_of}, which failed.")
    if boot.applied_fixes:
        changes = ", ".join(
            f"--{f.flag} {f.value} instead of"
            f" {'the default' if f.before is None else f.before}"
            for f in boot.applied_fixes
        )
        told.append(f"Changed so that it boots, not to make it faster: {changes}.")
    if boot.retried_by is not None:
        told.append(f"It was tried again as {boot.retried_by}.")
    return told


def startup_lines(analysis: Analysis) -> list[str]:
    """Return what the starts take and when a slower one has paid off, a line each.

    They are called first and later, not cold and warm: what an earlier run left in the
    caches of the machine is not known here.
    """
    lines = []
    for cost in analysis.startup:
        parts = [
            f"{kind} {shown(took)} s" + (f" ({usd:.2f} USD)" if usd is not None else "")
            for kind, took, usd in (
                ("first", cost.cold_s, cost.cold_usd),
                ("later", cost.warm_s, cost.warm_usd),
            )
            if took is not None
        ]
        if parts:
            lines.append(f"{cost.configuration}, to start: {', '.join(parts)}")
    lines += [line for row in analysis.break_even if (line := _break_even(row))]
    return lines


def _break_even(row: BreakEven) -> str | None:
    """Return a break-even in words; None where no difference is established."""
    if row.verdict == "undetermined":
        return None
    head = f"{row.b} against {row.a} at concurrency {row.concurrency}: {row.why}"
    if row.hours is None:
        return head
    text = f"{head}, {row.hours:.2f} hours after both are started"
    if row.ci95_hours is not None:
        text += f" (95 %: {row.ci95_hours[0]:.2f} to {row.ci95_hours[1]:.2f})"
    return text


def _list(value: object) -> Sequence[object]:
    return value if isinstance(value, (list, tuple)) else ()


def _float(value: object) -> float | None:
    return float(value) if isinstance(value, (int, float)) else None


def _seconds(took: float | None) -> str:
    """Return a phase's length: below a millisecond no log's clock tells one.

    Two stamps of whole seconds that are the same are less than one apart.
    """
    if took == 0:
        return "below 1"
    return "below 0.001" if took is not None and 0 < took < 0.001 else shown(took)


#: Ledger items whose key does not say it to a reader.
_LEDGER = {
    "device_gib": "the GPU's memory",
    "utilization": "share requested",
    "non_torch_gib": "outside torch",
    "graph_estimate_applied": "graph estimate was taken off",
    "graph_actual_gib": "graphs, as captured",
    "kv_gib": "KV cache",
    "kv_tokens": "tokens in the KV cache",
    "max_concurrency": "longest requests that fit",
    "peak_logged_gib": "activation peak, as logged",
    "peak_contains_estimate": "that peak holds the graph estimate",
    "device_inferred": "the GPU's memory is computed, not logged",
    "unaccounted_name": "what is unaccounted",
}


def _ledger(ledger: Mapping[str, object]) -> list[tuple[str, str, str]]:
    """Return (name, value, unit) rows of what the log told of memory.

    Nothing where it told no amount: a remark on an empty ledger is no table.
    """
    rows = []
    amounts = False
    for name, value in ledger.items():
        if value is None or (name == "device_inferred" and value is False):
            continue
        unit = "GiB" if name.endswith("_gib") else ""
        if isinstance(value, (str, bool, int, float)):
            label = _LEDGER.get(name, name.removesuffix("_gib").replace("_", " "))
            rows.append((label, shown(value), unit))
            amounts = amounts or not isinstance(value, (str, bool))
    return rows if amounts else []


def _fix(fix: object) -> str:
    parts: dict[str, object] = {
        name: fix.get(name) if isinstance(fix, Mapping) else getattr(fix, name, None)
        for name in ("flag", "direction", "value", "effect", "confidence")
    }
    text = f"{parts['direction']} {parts['flag']}"
    if parts["value"] is not None:
        text += f" to {parts['value']}"
    return f"{text}: {parts['effect']} (confidence: {parts['confidence']})"
