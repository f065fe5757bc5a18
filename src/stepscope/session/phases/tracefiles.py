"""The files that a profiler writes: which are new, whole, and of which rank."""

import gzip
import re
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from stepscope.session.context import Context
from stepscope.units import NS_PER_MS, NS_PER_S, ns

#: How long after the profiler was stopped a first file, or the next rank's, may come.
_FIRST_NS = 60 * NS_PER_S
_POLL_NS = 250 * NS_PER_MS
_PIECE_BYTES = 1 << 22
_RANK = re.compile(r"rank[-_]?(\d+)", re.IGNORECASE)
_TP = re.compile(r"\bTP-(\d+)", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """What a profiler left.

    Attributes:
        traces: Rank and path of each timeline that is whole, by rank; rank None: it
            holds those of several.
        others: Further files.
        n_ranks: Ranks that the timelines hold together.
        why: What is wrong with one of them; None: nothing.
        hint: What to do about it; None: nothing is known.
        note: What else a reader must know, with nothing wrong.
    """

    traces: tuple[tuple[int | None, Path], ...] = ()
    others: tuple[Path, ...] = ()
    n_ranks: int = 0
    why: str | None = None
    hint: str | None = None
    note: str | None = None


def written(
    context: Context,
    folder: Path,
    before: frozenset[Path],
    n_ranks: int,
) -> Written:
    """Wait until the timelines of all ranks are whole, or no more come.

    Args:
        context: The session.
        folder: Where the server writes.
        before: What lay there before the profiler was started.
        n_ranks: Timelines that are expected.
    """
    clock = context.clock
    asked = context.recipe.tracing
    until = clock.now_ns() + ns(asked.stop_timeout_s if asked is not None else 0.0)
    last_change = clock.now_ns()
    seen: dict[Path, int] = {}
    while True:
        sizes = {p: p.stat().st_size for p in _new(folder, before)}
        if sizes != seen:
            last_change, seen = clock.now_ns(), sizes
        elif len(_timelines(seen)) >= n_ranks and all(map(is_whole, _timelines(seen))):
            break
        now = clock.now_ns()
        still = now - last_change > _FIRST_NS
        if still or now > until or context.halt.asked.is_set():
            break
        clock.sleep_until(now + _POLL_NS)
    timelines = _timelines(seen)
    torn = [p for p in timelines if not is_whole(p)]
    whole = [p for p in timelines if p not in torn]
    why = None
    if torn:
        why = f"{torn[0].name} was not written to its end"
    return Written(
        traces=tuple(zip(ranks_of([p.name for p in whole]), whole, strict=True)),
        others=tuple(p for p in seen if p not in whole),
        n_ranks=len(whole),
        why=why,
    )


def ranks_of(names: Sequence[str]) -> list[int]:
    """Return the rank that each name tells; where names do not tell, their order."""
    for form in (_RANK, _TP):
        hits = [form.search(name) for name in names]
        ranks = [int(hit[1]) for hit in hits if hit]
        if len(set(ranks)) == len(names):
            return ranks
    return list(range(len(names)))


def is_whole(path: Path) -> bool:
    """Tell whether a timeline was written to its end.

    A gzip file is whole when it unpacks to its checksum; JSON when its last character
    closes it.
    """
    last = b""
    try:
        if path.suffix == ".gz":
            with gzip.open(path, "rb") as stream:
                while piece := stream.read(_PIECE_BYTES):
                    last = piece.rstrip()[-1:] or last
        else:
            with path.open("rb") as file:
                file.seek(max(path.stat().st_size - 64, 0))
                last = file.read().rstrip()[-1:]
    except (EOFError, OSError, zlib.error):
        return False
    return last in (b"}", b"]")


def _new(folder: Path, before: frozenset[Path]) -> list[Path]:
    return sorted(p for p in folder.iterdir() if p.is_file() and p not in before)


def _timelines(paths: Sequence[Path] | dict[Path, int]) -> list[Path]:
    return [p for p in paths if p.name.endswith((".json", ".json.gz"))]
