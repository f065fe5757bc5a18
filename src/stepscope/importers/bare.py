"""Client results without an ``import.toml``: single files, and sweep folders.

Nothing says when these clients ran, so the run's timeline is the clients' own clock
and nothing lies beside the requests.
"""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from stepscope.findings import Finding
from stepscope.importers.files import damaged, read_bytes
from stepscope.importers.foreign import Foreign
from stepscope.importers.results import (
    cell_of,
    read_results,
    read_summary_list,
    result_findings,
)
from stepscope.parse.vllm_bench import BenchResult
from stepscope.recipe.records import Workload
from stepscope.run.run import Cell, Launch, Run, Timeline

_RUN = re.compile(r"run=(?P<number>\d+)(?P<failed>\.failure)?\.json(?:\.gz)?")
_COMBINATION = re.compile(r"(?:SERVE-(?P<serve>.*?))?-?(?:BENCH-(?P<bench>.*))?")


class _Failure(msgspec.Struct, kw_only=True):
    """What a sweep writes where a benchmark, or a whole server, failed."""

    error_type: str = "error"
    error: str = ""


def read_files(paths: Iterable[Path], root: Path) -> Foreign:
    """Read result files as the cells of one launch, in the order given.

    Args:
        paths: At least one file.
        root: The folder that names the run where there are several.
    """
    files = tuple(paths)
    cells: list[Cell] = []
    findings: list[Finding] = []
    engine, model = "vllm", None
    for path in files:
        stem = path.name.removesuffix(".gz").rsplit(".", 1)[0]
        results = read_results(path)
        for number, result in enumerate(results):
            name = stem if len(results) == 1 else f"{stem}-{number}"
            cells.append(cell_of(name, "imported", "imported-l0", [result], path))
            findings += result_findings(name, result)
            model = model or result.model
            if (result.backend or "").startswith("sglang"):
                engine = "sglang"
    name = files[0].name if len(files) == 1 else root.resolve().name
    head = _head(name, engine, model)
    return _foreign(head, root, files, _repeated(cells), findings)


def read_sweep(folder: Path) -> Foreign:
    """Read a ``vllm bench sweep`` folder, or one experiment of it.

    Every server combination becomes a configuration with one launch; a benchmark that
    failed becomes a failed cell, a server that did not start a launch that was not
    ready.
    """
    files = sorted((p for p in folder.rglob("*.json*") if p.is_file()), key=natural)
    cells: list[Cell] = []
    findings: list[Finding] = []
    failures: dict[str, str] = {}
    used: list[Path] = []
    names: dict[str, Path] = {}
    model = None
    for path in files:
        serve, bench = _combination(path, folder)
        if path.name.startswith("SERVE-") and "failure" in path.name:
            failures[_serve_name(path.name)] = _why(path)
            used.append(path)
            continue
        prefix = _free("-".join(part for part in (serve, bench) if part), path, names)
        for cell, result in _sweep_cells(path, prefix, serve):
            cells.append(cell)
            used.append(path)
            if result is not None:
                findings += result_findings(cell.name, result)
                model = model or result.model
    head = _head(folder.resolve().name, "vllm", model)
    foreign = _foreign(head, folder, dict.fromkeys(used), _repeated(cells), findings)
    return _with_failed_launches(foreign, failures)


def _sweep_cells(
    path: Path, prefix: str, serve: str
) -> Iterator[tuple[Cell, BenchResult | None]]:
    """Yield the cells of one file of a sweep, with what was read of them."""
    hit = _RUN.fullmatch(path.name)
    launch = f"{serve}-l0"
    if hit and hit["failed"]:
        tried_again = path.with_name(f"run={hit['number']}.json").exists()
        if not tried_again:
            yield _failed(path, f"{prefix}-run{hit['number']}", serve), None
    elif hit or path.name == "warmup.json":
        name = f"{prefix}-run{hit['number']}" if hit else f"{prefix}-warmup"
        result = read_results(path)[0]
        cell = cell_of(name, serve, launch, [result], path)
        yield msgspec.structs.replace(cell, warm_up=hit is None), result
    elif path.name == "summary.json" and not any(path.parent.glob("run=*.json*")):
        for number, result in enumerate(read_summary_list(path)):
            name = f"{prefix}-run{number}"
            yield cell_of(name, serve, launch, [result], path), result


def _free(prefix: str, path: Path, taken: dict[str, Path]) -> str:
    """Return a prefix of cell names that only the files beside ``path`` use."""
    candidate, number = prefix, 1
    while taken.setdefault(candidate, path.parent) != path.parent:
        number += 1
        candidate = f"{prefix}-{number}"
    return candidate


def is_sweep(folder: Path) -> bool:
    """Tell whether a folder is a sweep's, at any of its levels."""
    return any(
        next(folder.glob(f"{depth}{pattern}"), None) is not None
        for depth in ("", "*/", "*/*/")
        for pattern in ("run=*.json", "SERVE-*failure.json")
    )


def natural(path: Path) -> tuple[object, ...]:
    """Order ``run=10`` behind ``run=9``."""
    pieces = re.split(r"(\d+)", str(path))
    return tuple((not p.isdigit(), int(p) if p.isdigit() else p) for p in pieces)


def _combination(path: Path, folder: Path) -> tuple[str, str]:
    """Return the names of server and benchmark that a folder's name holds.

    vLLM joins ``SERVE-``, the server's name, ``BENCH-`` and the benchmark's with
    dashes, and leaves out the parts that have no parameters.
    """
    name = path.parent.name if path.parent != folder else folder.resolve().name
    if not name.startswith(("SERVE-", "BENCH-")):
        return "default", ""
    hit = _COMBINATION.fullmatch(name)
    assert hit is not None
    return (hit["serve"] or "").strip("-") or "default", (hit["bench"] or "").strip("-")


def _serve_name(file_name: str) -> str:
    inner = file_name.removeprefix("SERVE-").split("failure.json")[0]
    return inner.strip("-") or "default"


def _why(path: Path) -> str:
    try:
        failure = msgspec.json.decode(read_bytes(path), type=_Failure)
    except msgspec.DecodeError as error:
        raise damaged(path, f"is no JSON ({error})") from error
    return f"{failure.error_type}: {failure.error}".splitlines()[0][:300]


def _failed(path: Path, name: str, serve: str) -> Cell:
    return Cell(
        name=name,
        configuration=serve,
        launch=f"{serve}-l0",
        workload=Workload(concurrency=None, n_prompts=0),
        status="failed",
        source="vllm-bench",
        raw_path=str(path.resolve()),
        failure=_why(path),
    )


def _repeated(cells: list[Cell]) -> tuple[Cell, ...]:
    """Return the cells with repeats counted over equal workload points."""
    seen: dict[object, int] = {}
    out = []
    for cell in cells:
        point = (cell.configuration, cell.workload, cell.warm_up)
        number = seen.get(point, 0)
        seen[point] = number + 1
        out.append(msgspec.structs.replace(cell, repeat=number))
    return tuple(out)


def _foreign(
    head: Run,
    root: Path,
    files: Iterable[Path],
    cells: tuple[Cell, ...],
    findings: list[Finding],
) -> Foreign:
    """Return ``head`` with its cells, and a launch for each configuration."""
    configurations = dict.fromkeys(cell.configuration for cell in cells)
    run = msgspec.structs.replace(
        head,
        launches=tuple(
            Launch(name=f"{name}-l0", configuration=name, ready=True)
            for name in configurations
        ),
        cells=cells,
        findings=tuple(findings),
    )
    return Foreign(run=run, root=root, files=tuple(files))


def _head(name: str, engine: str, model: str | None) -> Run:
    return Run(id=name, engine=engine, model=model, timeline=Timeline(kind="monotonic"))


def _with_failed_launches(foreign: Foreign, failures: dict[str, str]) -> Foreign:
    launches = {launch.name: launch for launch in foreign.run.launches}
    for serve, why in failures.items():
        name = f"{serve}-l0"
        old = launches.get(name, Launch(name=name, configuration=serve))
        launches[name] = msgspec.structs.replace(old, failure=why)
    run = msgspec.structs.replace(foreign.run, launches=tuple(launches.values()))
    return Foreign(run=run, root=foreign.root, files=foreign.files)
