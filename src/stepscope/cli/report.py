"""``stepscope report``: write the page, and its Markdown and pictures."""

import os
from pathlib import Path
from urllib.parse import quote

import click

from stepscope.cli.output import write_whole
from stepscope.errors import RecipeError

_FORMATS = ("html", "md", "png")
#: Every page that we write holds it, so that we know our own again.
_OURS = {
    "html": b'name="generator" content="stepscope"',
    "md": b"<!-- stepscope report -->",
}


@click.command(name="report", short_help="Write the page.")
@click.argument("run", type=click.Path(path_type=Path))
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    help="The page. Default: report.html in the run's directory.",
)
@click.option(
    "--format",
    "formats",
    default="html",
    metavar="html,md,png",
    help="What to write; png also writes each figure as SVG. Default: html.",
)
def report(run: Path, output: Path | None, formats: str) -> None:
    """Write the page of RUN: a run directory, or anything that import accepts.

    The page is one file that works offline. Markdown goes beside it with the ending
    .md, pictures into a folder beside it with the ending .figures.
    """
    wanted = _wanted(formats)
    from stepscope.analysis.analyze import analyze
    from stepscope.board.judge import judge
    from stepscope.importers.open import open_any

    opened = open_any(run)
    page = output or _default(run, opened.id)
    _refuse_foreign(page, wanted)
    analysis = analyze(opened)
    board = judge(opened, analysis)
    written: list[Path] = []
    pictures: list[str] = []
    if "png" in wanted:
        from stepscope.report.page import figures
        from stepscope.report.svg import png, standalone

        folder = page.with_suffix(".figures")
        folder.mkdir(parents=True, exist_ok=True)
        for figure in figures(opened, analysis):
            (folder / f"{figure.name}.svg").write_text(standalone(figure), "utf-8")
            (folder / f"{figure.name}.png").write_bytes(png(figure))
            if not figure.name.startswith("telemetry"):
                pictures.append(f"{folder.name}/{figure.name}.png")
        written.append(folder)
    if "md" in wanted:
        from stepscope.report.markdown import markdown

        beside = page.with_suffix(".md")
        write_whole(beside, markdown(opened, analysis, board, pictures))
        written.append(beside)
    if "html" in wanted:
        from stepscope.cli.trace_page import pictures_of
        from stepscope.report.page import html

        text = html(
            opened,
            analysis,
            board,
            home=_home(run, page),
            pictures=pictures_of(opened),
        )
        write_whole(page, text)
        written.append(page)
    for path in written:
        click.echo(path)


def _wanted(formats: str) -> tuple[str, ...]:
    wanted = tuple(part.strip() for part in formats.split(",") if part.strip())
    unknown = [part for part in wanted if part not in _FORMATS]
    if unknown or not wanted:
        raise RecipeError(
            "--format",
            f"{formats!r}",
            f"expected one or more of {', '.join(_FORMATS)}",
            "Separate them by commas",
        )
    return wanted


def _default(run: Path, name: str) -> Path:
    """Return where the page goes: into a run's directory, else to the work folder."""
    if run.is_dir() and (run / "run.json").exists():
        return run / "report.html"
    return Path(f"{name}.html")


def _home(run: Path, page: Path) -> str | None:
    """Return how the page's links get to the run's directory; None: an import."""
    if not (run.is_dir() and (run / "run.json").exists()):
        return None
    way = os.path.relpath(run.resolve(), page.resolve().parent)
    return "" if way == "." else quote(Path(way).as_posix())


def _is_ours(path: Path, mark: bytes) -> bool:
    """Tell whether a report wrote a file; a device or a folder is never ours."""
    if not path.is_file():
        return False
    with path.open("rb") as stream:
        return mark in stream.read(4096)


def _refuse_foreign(page: Path, wanted: tuple[str, ...]) -> None:
    """Refuse to overwrite a file that no report wrote, and a folder that is none."""
    if not page.parent.is_dir():
        raise RecipeError(
            str(page),
            "its folder does not exist",
            "expected a folder to write into",
            "Create it, or name another with -o",
        )
    for kind, mark in _OURS.items():
        path = page if kind == "html" else page.with_suffix(f".{kind}")
        if kind in wanted and path.exists() and not _is_ours(path, mark):
            raise RecipeError(
                str(path),
                "a file that stepscope did not write is in the way",
                "expected no file, or an earlier report",
                "Move it away, or name another with -o",
            )
