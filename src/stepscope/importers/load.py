"""Any foreign result to a run: looks at what a path holds and calls its reader."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import msgspec

from stepscope.errors import ArchiveError, RecipeError
from stepscope.importers.bare import is_sweep, natural, read_files, read_sweep
from stepscope.importers.boot import is_boot, read_boot
from stepscope.importers.files import existing, read_bytes
from stepscope.importers.foreign import Foreign
from stepscope.importers.import_toml import read_import
from stepscope.importers.merge import merged
from stepscope.importers.results import is_result, refuse_known
from stepscope.importers.spec import read_spec
from stepscope.run.run import Run

_READS = (
    "an import.toml, a vllm bench serve JSON, a vllm bench sweep folder, an SGLang"
    " jsonl, or a folder with server.log"
)


def load_foreign(path: Path | Sequence[Path]) -> Run:
    """Return the run that foreign results make.

    Args:
        path: One path or several; several become one run with a launch each. A path
            is an ``import.toml`` or the folder that holds one, a client's result file
            or a folder of them, a ``vllm bench sweep`` folder, or a folder with a
            server's log.

    Raises:
        RecipeError: A path does not exist, or an ``import.toml`` is wrong.
        ArchiveError: A file is damaged, or nothing known is there.
        RefusedError: The form is known and not read.
    """
    return read_foreign(path).run


def read_foreign(path: Path | Sequence[Path]) -> Foreign:
    """Return the run and where its raw bytes lie; see ``load_foreign``."""
    paths = [path] if isinstance(path, Path) else list(path)
    if not paths:
        raise RecipeError("import", "no path was given", _READS)
    foreigns = [_read(one) for one in paths]
    return foreigns[0] if len(foreigns) == 1 else merged(foreigns)


def _read(path: Path) -> Foreign:
    existing(path)
    if path.is_file():
        if path.suffix == ".toml":
            return _imported(path)
        return read_files([path], path.parent)
    if (path / "import.toml").is_file():
        return _imported(path / "import.toml")
    if is_sweep(path):
        return read_sweep(path)
    if is_boot(path):
        return read_boot(path)
    results = [f for f in sorted(path.iterdir(), key=natural) if is_result(f)]
    if results:
        return read_files(results, path)
    for file in sorted(path.glob("*.json*")):
        refuse_known(file, read_bytes(file))
    n_files = sum(1 for _ in path.iterdir())
    raise ArchiveError(
        str(path),
        f"holds {n_files} files, none of a known form" if n_files else "is empty",
        _READS,
        "Check the path",
    )


def _imported(path: Path) -> Foreign:
    """Read an ``import.toml`` and those that it includes, as one run of its name."""
    first = read_import(path)
    names = read_spec(path).include
    if not names:
        return first
    parts, seen = [first], {path.resolve()}
    for number, name in enumerate(names):
        key = f"{path}: include[{number}]"
        other = existing(path.parent / name, key)
        if other.resolve() in seen:
            raise RecipeError(key, f"{name} again", "each start once")
        seen.add(other.resolve())
        if read_spec(other).include:
            raise RecipeError(key, f"{name} includes others", "one level of includes")
        parts.append(read_import(other))
    whole = merged(parts)
    return replace(whole, run=msgspec.structs.replace(whole.run, id=first.run.id))
