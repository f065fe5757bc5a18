"""``import.toml``: which foreign files make up a run.

A strict reader: every unknown key is named, with the known one it resembles.
"""

import difflib
import tomllib
import types
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

import msgspec

from stepscope.errors import RecipeError
from stepscope.importers.files import damaged
from stepscope.importers.impossible import impossible
from stepscope.run.published import Claim, TelemetryMeans


class RunTable(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``[run]``: what served. ``server_command`` is a file, a line, or its words."""

    engine: str
    name: str | None = None
    session: str | None = None
    engine_version: str | None = None
    server_command: str | tuple[str, ...] | None = None
    model: str | None = None
    model_config: str | None = None
    gpu: str | None = None
    n_gpus: int | None = None
    tensor_parallel: int = 1
    data_parallel: int = 1
    pipeline_parallel: int = 1
    expert_parallel: bool = False
    usd_per_gpu_hour: float | None = None


class LogTable(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``[log]``: the server's log, plain or gzip."""

    file: str


class TelemetryTable(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True
):
    """``[telemetry]``: samples. ``utc_offset_minutes`` is for ``nvidia-smi`` stamps."""

    file: str
    format: str = "csv"
    utc_offset_minutes: int | None = None


class SummaryTable(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True
):
    """``[cell.summary]``: figures of a cell as they were published, without a file.

    Latencies map ``mean``, ``median``, ``p90`` and so on to milliseconds.
    """

    n_completed: int
    n_failed: int = 0
    duration_s: float | None = None
    output_tokens: int | None = None
    ttft_ms: dict[str, float] = {}
    tpot_ms: dict[str, float] = {}
    itl_ms: dict[str, float] = {}
    e2el_ms: dict[str, float] = {}


class CellTable(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``[[cell]]``: one client command. Stamps are Unix seconds of the command.

    Either ``results`` names its files or ``summary`` holds its figures.
    """

    name: str
    configuration: str
    results: tuple[str, ...] = ()
    summary: SummaryTable | None = None
    telemetry: TelemetryMeans | None = None
    format: str = "vllm-bench"
    concurrency: int | None = None
    n_prompts: int | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    warm_up: bool = False
    repeat: int | None = None
    command_started_at: Decimal | int | None = None
    command_ended_at: Decimal | int | None = None
    metrics_before: str | None = None
    metrics_after: str | None = None


class TraceTable(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``[[trace]]``: a kernel timeline."""

    file: str
    concurrency: int | None = None
    rank: int | None = None
    cell: str | None = None


class ImportSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A whole ``import.toml``: one server start.

    ``include`` names further ones, which become launches of the same run.
    """

    run: RunTable
    log: LogTable | None = None
    telemetry: TelemetryTable | None = None
    cell: tuple[CellTable, ...] = ()
    trace: tuple[TraceTable, ...] = ()
    claim: tuple[Claim, ...] = ()
    include: tuple[str, ...] = ()


def read_spec(path: Path) -> ImportSpec:
    """Read an ``import.toml``.

    Raises:
        ArchiveError: It is no TOML.
        RecipeError: A key is unknown, missing or of the wrong kind; ``also`` holds
            all further unknown keys and impossible numbers.
    """
    try:
        raw = tomllib.loads(path.read_text("utf-8"), parse_float=Decimal)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise damaged(path, f"is no TOML ({error})") from error
    unknown = tuple(_unknown(path, raw, ImportSpec, "")) + tuple(
        RecipeError(f"{path}: {key}", found, expected)
        for key, found, expected in impossible(raw)
    )
    if unknown:
        first, *rest = unknown
        raise RecipeError(
            first.where, first.found, first.expected, first.do, also=tuple(rest)
        )
    try:
        spec = msgspec.convert(raw, ImportSpec)
    except msgspec.ValidationError as error:
        what, _, where = str(error).partition(" - at `$.")
        raise RecipeError(
            f"{path}: {where.rstrip('`') or 'top level'}", what
        ) from error
    _check_sums(path, spec)
    _check_claims(path, spec)
    for kind, names in (
        ("cell", [cell.name for cell in spec.cell]),
        ("claim", [claim.id for claim in spec.claim]),
    ):
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise RecipeError(
                f"{path}: {kind}", f"two {kind}s are named {twice!r}", "one name each"
            )
    return spec


def _check_claims(path: Path, spec: ImportSpec) -> None:
    """Refuse a claim that says nothing, or two things at once."""
    for number, claim in enumerate(spec.claim):
        said = [
            key
            for key in ("quantity", "hypothesis", "effect_pct", "reading", "considered")
            if getattr(claim, key) not in (None, ())
        ]
        if len(said) != 1:
            raise RecipeError(
                f"{path}: claim[{number}]",
                f"has {' and '.join(said) or 'nothing to check'}",
                "one of quantity, hypothesis, effect_pct, reading, considered",
            )
        pairs = (("quantity", "value"), ("hypothesis", "status"))
        for key, beside in pairs:
            if getattr(claim, key) is not None and getattr(claim, beside) is None:
                raise RecipeError(
                    f"{path}: claim[{number}].{key}",
                    f"has no {beside}",
                    f"{beside} too",
                )


def _check_sums(path: Path, spec: ImportSpec) -> None:
    """Refuse a summary of more requests than were sent."""
    for number, cell in enumerate(spec.cell):
        if cell.summary is None or cell.n_prompts is None:
            continue
        n = cell.summary.n_completed + cell.summary.n_failed
        if n > cell.n_prompts:
            raise RecipeError(
                f"{path}: cell[{number}].summary",
                f"{n} requests completed or failed, of {cell.n_prompts} that were sent",
                "no more than n_prompts",
            )


def _unknown(
    path: Path, raw: Any, table: type[msgspec.Struct], at: str
) -> Iterator[RecipeError]:
    """Yield an error for each key that ``table`` does not have, deepest last."""
    if not isinstance(raw, dict):
        return
    hints = get_type_hints(table)
    for key, value in raw.items():
        where = f"{at}{key}"
        if key not in hints:
            close = difflib.get_close_matches(key, hints, n=1)
            yield RecipeError(
                f"{path}: {where}",
                "unknown key",
                f"did you mean {close[0]!r}?"
                if close
                else f"known: {', '.join(hints)}",
            )
            continue
        inner = _inner(hints[key])
        if inner is None:
            continue
        if isinstance(value, list):
            for number, item in enumerate(value):
                yield from _unknown(path, item, inner, f"{where}[{number}].")
        else:
            yield from _unknown(path, value, inner, f"{where}.")


def _inner(hint: Any) -> type[msgspec.Struct] | None:
    """Return the table that a field holds, one or many; None for a plain value."""
    candidates = (
        get_args(hint) if get_origin(hint) in (tuple, types.UnionType) else (hint,)
    )
    for candidate in candidates:
        if isinstance(candidate, type) and issubclass(candidate, msgspec.Struct):
            return candidate
    return None
