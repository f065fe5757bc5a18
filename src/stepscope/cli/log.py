"""``stepscope log``: what a server log says, verdict first."""

import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import click
import msgspec
from rich.console import Console
from rich.table import Table

from stepscope.analysis.boot.document import LogDocument, log_document
from stepscope.analysis.boot.explain import ledger_rows
from stepscope.errors import ArchiveError, RecipeError
from stepscope.findings import Finding
from stepscope.parse.serverlog import LogReader
from stepscope.run.serverlog import BootVerdict, ServerLog

_PIECE = 1 << 22
_ENGINES = {"auto": None, "vllm": "vllm", "sglang": "sglang", "llamacpp": "llamacpp"}


@click.command("log")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
@click.option(
    "--engine",
    type=click.Choice(list(_ENGINES)),
    default="auto",
    show_default=True,
    help="Who wrote it; auto: the log is asked.",
)
@click.option(
    "--exit-code",
    type=int,
    default=None,
    help="Of the server's process; negative or above 128 for a signal. Default: not"
    " known.",
)
def log(file: Path, *, as_json: bool, engine: str, exit_code: int | None) -> None:
    """Read a server log: settings, memory ledger, phases, boot verdict.

    FILE may be gzip-compressed. Kernel messages and a control group's memory.events
    may be appended to it; they decide between a crash and a kill.
    """
    parsed = read_log(file, _ENGINES[engine])
    document = log_document(parsed, exit_code=exit_code)
    if as_json:
        click.echo(msgspec.json.encode(document).decode())
        return
    print_log(Console(highlight=False, soft_wrap=True), document)


def read_log(file: Path, engine: str | None = None) -> ServerLog:
    """Parse a file piece by piece.

    Raises:
        RecipeError: The path does not exist or is no file.
        ArchiveError: It cannot be read or its compression is damaged.
    """
    if not file.exists():
        raise RecipeError(
            str(file), "no such file", "expected the path of a server log"
        )
    if file.is_dir():
        raise RecipeError(
            str(file), "is a folder", "expected a server log", "Name the file inside it"
        )
    reader = LogReader(engine)
    cut: list[Finding] = []
    try:
        for piece in _pieces(file, cut):
            reader.feed(piece)
    except (OSError, zlib.error) as error:
        raise ArchiveError(
            str(file),
            f"cannot be read ({error})",
            "expected a log or a whole gzip file",
        ) from error
    parsed = reader.close()
    return msgspec.structs.replace(parsed, findings=(*parsed.findings, *cut))


def _pieces(file: Path, cut: list[Finding]) -> Iterator[bytes]:
    with file.open("rb") as raw:
        packed = raw.read(2) == b"\x1f\x8b"
        raw.seek(0)
        if not packed:
            while piece := raw.read(_PIECE):
                yield piece
            return
        yield from _unpacked(raw, cut)


def _unpacked(raw: BinaryIO, cut: list[Finding]) -> Iterator[bytes]:
    """Unpack gzip members; a file that was cut gives all that lies before the cut."""
    unpacker = zlib.decompressobj(wbits=31)
    begun = False
    while packed := raw.read(_PIECE >> 4):
        while packed:
            yield unpacker.decompress(packed, _PIECE)
            begun = True
            packed = unpacker.unconsumed_tail
            if unpacker.eof:
                packed = unpacker.unused_data.lstrip(b"\0")
                unpacker = zlib.decompressobj(wbits=31)
                begun = False
    if begun:
        cut.append(
            Finding(
                code="log-cut",
                severity="warning",
                message="the gzip file ends before its end: what the log says after"
                " that point is unknown, a failure included",
                hint="Fetch the whole file.",
            )
        )


def print_log(console: Console, document: LogDocument) -> None:
    """Print a log's document for people."""
    name = " ".join(x for x in (document.engine, document.version) if x)
    console.print(f"[bold]{name or 'unknown engine'}[/], {document.n_lines:,} lines")
    _print_verdict(console, document.verdict)
    _print_ledger(console, document)
    _print_boot(console, document)
    _print_settings(console, document)
    for suggestion in document.suggestions:
        word = {True: "sound", False: "not sound", None: "unchecked"}[suggestion.sound]
        console.print(
            f"line {suggestion.line}: the engine suggests {suggestion.flag}"
            f" {suggestion.value}: {word}; {suggestion.why}",
            markup=False,
        )
    for finding in document.findings:
        console.print(f"{finding.severity}: {finding.message}. {finding.hint}".strip(),
                      markup=False)  # fmt: skip


def _print_verdict(console: Console, verdict: BootVerdict) -> None:
    colour = {"ready": "green", "failed": "red"}.get(verdict.outcome, "yellow")
    console.print(f"\n[bold {colour}]{verdict.outcome}[/]", end="")
    if verdict.cause is not None:
        console.print(f": [bold]{verdict.cause}[/]", end="")
    where = []
    if verdict.root_line is not None:
        where.append(f"line {verdict.root_line}")
    if verdict.process is not None:
        where.append(verdict.process)
    console.print(f" ({', '.join(where)})" if where else "", markup=False)
    console.print(verdict.why, markup=False)
    for fix in verdict.fixes:
        value = "" if fix.value is None else f" {fix.value}"
        console.print(
            f"  {fix.direction} {fix.flag}{value}  [{fix.confidence}] {fix.effect}",
            markup=False,
        )
    for wrong in verdict.wrong_readings:
        console.print(f"  not: {wrong}", markup=False)


def _print_ledger(console: Console, document: LogDocument) -> None:
    ledger = document.ledger
    rows = ledger_rows(ledger)
    if not rows:
        return
    table = Table(title="memory of one GPU, GiB", title_justify="left", box=None)
    table.add_column("")
    table.add_column("GiB", justify="right")
    for row in rows:
        table.add_row(row.name, f"{row.gib:.2f}")
    whole = ledger.requested_gib
    name = "requested"
    if ledger.free_at_end_gib is not None:
        whole, name = ledger.free_at_start_gib, "free at the start"
    if whole is not None:
        share = f" ({ledger.utilization:g} of {ledger.device_gib:g})" if (
            name == "requested" and ledger.utilization and ledger.device_gib
        ) else ""  # fmt: skip
        table.add_row(f"= {name}{share}", f"{whole:.2f}", style="bold")
    if ledger.graph_actual_gib is not None and ledger.free_at_end_gib is None:
        table.add_row("graphs, as captured", f"{ledger.graph_actual_gib:.2f}")
    console.print()
    console.print(table)
    console.print(document.kv.text, markup=False)


def _print_boot(console: Console, document: LogDocument) -> None:
    if document.phases:
        console.print("\nphases")
    for phase in document.phases:
        seconds = "?" if phase.seconds is None else f"{phase.seconds:.1f}"
        # Two stamps of whole seconds that are the same say only this.
        seconds = "< 1" if phase.seconds == 0 else seconds
        overlaps = f"  overlaps {', '.join(phase.overlaps)}" if phase.overlaps else ""
        console.print(
            f"  {phase.name:<14}{seconds:>9} s  line {phase.line}  "
            f"{phase.process or ''}{overlaps}".rstrip(),
            markup=False,
        )
    for one in document.capture_passes:
        seconds = "?" if one.seconds is None else f"{one.seconds:.0f}"
        gib = "?" if one.gib is None else f"{one.gib:.2f}"
        console.print(
            f"  {one.purpose} capture: {one.n_graphs or '?'} graphs"
            f" ({', '.join(one.modes)}), {seconds} s, {gib} GiB",
            markup=False,
        )


def _print_settings(console: Console, document: LogDocument) -> None:
    if document.resolved:
        console.print("\nresolved settings")
    for name, value in document.resolved.items():
        line = document.resolved_lines.get(name)
        console.print(f"  {name:<30}{str(value)[:60]:<62}line {line or '?'}",
                      markup=False)  # fmt: skip
    for flag in document.inert_flags:
        console.print(f"  inert: {flag.flag}: {flag.why}", markup=False)
