"""What the page and the terminal say of each launch."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from stepscope.analysis.records import Analysis, BootResult
from stepscope.report.cells import shown
from stepscope.report.content import anchor, path_link
from stepscope.run.run import Launch, Run


@dataclass(frozen=True, slots=True)
class Boot:
    """What is told of one launch; texts, ready to be placed."""

    launch: str
    anchor: str
    ready: bool
    seconds: str
    phases: tuple[tuple[str, str], ...]
    ledger: tuple[tuple[str, str, str], ...]
    outcome: str
    cause: str
    why: str
    fixes: tuple[str, ...]
    wrong_readings: tuple[str, ...]
    failure: str
    log: str | None
    log_link: str | None


def boots(run: Run, analysis: Analysis) -> list[Boot]:
    """Return, for each launch, its phases, memory ledger and verdict."""
    launches = {launch.name: launch for launch in run.launches}
    return [_boot(launches.get(boot.launch), boot) for boot in analysis.boot]


def _boot(launch: Launch | None, boot: BootResult) -> Boot:
    verdict = boot.verdict
    failure = launch.failure if launch is not None else None
    return Boot(
        launch=boot.launch,
        anchor=anchor("launch", boot.launch),
        ready=boot.ready,
        seconds=shown(boot.seconds_to_ready),
        phases=tuple(
            (str(p.get("name")), shown(_float(p.get("seconds")))) for p in boot.phases
        ),
        ledger=tuple(_ledger(boot.ledger)),
        outcome=shown(verdict.get("outcome")),
        cause=str(verdict.get("cause") or ""),
        why=str(verdict.get("why") or ""),
        fixes=tuple(_fix(f) for f in _list(verdict.get("fixes"))),
        wrong_readings=tuple(str(w) for w in _list(verdict.get("wrong_readings"))),
        failure=failure or "",
        log=boot.log_path,
        log_link=path_link(boot.log_path),
    )


def _list(value: object) -> Sequence[object]:
    return value if isinstance(value, (list, tuple)) else ()


def _float(value: object) -> float | None:
    return float(value) if isinstance(value, (int, float)) else None


def _ledger(ledger: Mapping[str, object]) -> list[tuple[str, str, str]]:
    """Return (name, value, unit) rows of what the log told of memory."""
    rows = []
    for name, value in ledger.items():
        if value is None:
            continue
        unit = "GiB" if name.endswith("_gib") else ""
        if isinstance(value, (str, bool, int, float)):
            label = name.removesuffix("_gib").replace("_", " ")
            rows.append((label, shown(value), unit))
    return rows


def _fix(fix: object) -> str:
    parts: dict[str, object] = {
        name: fix.get(name) if isinstance(fix, Mapping) else getattr(fix, name, None)
        for name in ("flag", "direction", "value", "effect", "confidence")
    }
    text = f"{parts['direction']} {parts['flag']}"
    if parts["value"] is not None:
        text += f" to {parts['value']}"
    return f"{text}: {parts['effect']} (confidence: {parts['confidence']})"
