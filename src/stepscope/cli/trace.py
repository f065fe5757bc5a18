"""``stepscope trace``: a decode step's budget from kernel timelines."""

import math
import sys
from pathlib import Path

import click
import msgspec

from stepscope.cli.output import write_whole
from stepscope.errors import RecipeError


@click.command(short_help="A decode step's budget from kernel timelines.")
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write a page that works offline.",
)
@click.option(
    "--perfetto",
    "export",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write a few steps as .json.gz for ui.perfetto.dev.",
)
@click.option(
    "--steps",
    "n_steps",
    default=1,
    type=click.IntRange(min=1),
    help="How many steps --perfetto writes, around the median one. Default: 1.",
)
@click.option(
    "--untraced-step-ms",
    type=click.FloatRange(min=0, min_open=True),
    help="Step time of the same cell with the profiler off, to hold the trace against.",
)
@click.option(
    "--each",
    is_flag=True,
    help="FILES are captures of their own, such as one a concurrency, not ranks.",
)
@click.option("--no-cache", is_flag=True, help="Read the files, whatever was kept.")
def trace(
    files: tuple[Path, ...],
    *,
    as_json: bool,
    output: Path | None,
    export: Path | None,
    n_steps: int,
    untraced_step_ms: float | None,
    each: bool,
    no_cache: bool,
) -> None:
    """Read FILES (torch profiler JSON, nsys SQLite), one a rank, same capture."""
    from stepscope.timeline.analyze import analyze_traces
    from stepscope.timeline.cache import cache_folder
    from stepscope.timeline.load import load_traces

    _check(
        files,
        as_json=as_json,
        each=each,
        export=export,
        output=output,
        untraced_step_ms=untraced_step_ms,
    )
    cache = None if no_cache else cache_folder()
    captures = [(_stem(path), [path]) for path in files]
    if not each:
        captures = [(_label(files), list(files))]
    loaded = [(label, load_traces(paths, cache=cache)) for label, paths in captures]
    results = [
        (label, traces, analyze_traces(traces, untraced_step_ms))
        for label, traces in loaded
    ]
    if export is not None:
        from stepscope.timeline.perfetto import perfetto_of

        write_whole(export, perfetto_of(loaded[0][1], n_steps))
        print(export, file=sys.stderr)
    if output is not None:
        from stepscope.cli.trace_page import page_of

        write_whole(output, page_of(results))
        print(output, file=sys.stderr)
    if as_json:
        sys.stdout.buffer.write(msgspec.json.encode(results[0][2]) + b"\n")
        return
    from stepscope.cli.trace_table import print_result

    for label, _, result in results:
        print_result(msgspec.to_builtins(result), label if each else None)


def _label(files: tuple[Path, ...]) -> str:
    return _stem(files[0]) if len(files) == 1 else f"{len(files)} files"


def _stem(path: Path) -> str:
    """Return a file's name without its endings: ``decode_c8`` of a traced run."""
    for ending in (".gz", ".json", ".trace", ".pt", ".sqlite"):
        path = path.with_suffix("") if path.suffix == ending else path
    return path.name


def _check(
    files: tuple[Path, ...],
    *,
    as_json: bool,
    each: bool,
    export: Path | None,
    output: Path | None,
    untraced_step_ms: float | None,
) -> None:
    """Refuse what can not be meant, before anything is read."""
    if each and len(files) > 1 and (as_json or export):
        raise RecipeError(
            "--each",
            "several captures",
            "expected one for --json and --perfetto",
            "Call it once a capture",
        )
    if len({path.resolve() for path in files}) < len(files):
        raise RecipeError(
            "trace", "a file is given twice", "expected one file a rank, each once"
        )
    if untraced_step_ms is not None and not math.isfinite(untraced_step_ms):
        found = f"{untraced_step_ms}"
        raise RecipeError("--untraced-step-ms", found, "expected milliseconds")
    for path in (export, output):
        if path is None:
            continue
        if not path.parent.is_dir():
            raise RecipeError(
                str(path),
                "its folder does not exist",
                "expected a folder to write into",
                "Create it, or name another",
            )
        if any(path.exists() and path.samefile(f) for f in files if f.exists()):
            raise RecipeError(
                str(path), "is one of the traces", "expected another file", ""
            )
