"""The report as Markdown, for a pull request."""

import re
from collections.abc import Iterable, Sequence

from stepscope.analysis.records import Analysis
from stepscope.board.records import Board
from stepscope.report import content
from stepscope.report.cells import shown
from stepscope.run.run import Run

#: The first line of every Markdown file that we write.
OURS = "<!-- stepscope report -->"

_ACTIVE = re.compile(r"([\\`*_\[\]<>|#~!@])")


def text(value: object) -> str:
    """Return a value as inert Markdown on one line."""
    return _ACTIVE.sub(r"\\\1", " ".join(str(value).split()))


def markdown(
    run: Run, analysis: Analysis, board: Board, pictures: Sequence[str] = ()
) -> str:
    """Return the report as Markdown.

    Args:
        run: The run.
        analysis: Its figures.
        board: Its verdict.
        pictures: Relative paths of pictures to show under the verdict.

    Returns:
        GitHub-flavoured Markdown; nothing of the run in it is HTML or a link out.
    """
    lines = [OURS, f"# {text(run.id)}", ""]
    for sentence in board.sentences:
        lines += [text(sentence), ""]
    for picture in pictures:
        lines += [f"![{text(picture)}]({picture})", ""]
    headers = ["cell", *(_header(h, u) for h, u in content.summary_headers()), "state"]
    rows = [
        [row.name, *row.values, f"{row.state} {row.reason}".strip()]
        for row in content.summary_rows(analysis.cells)
    ]
    lines += ["## Cells", "", *_table(headers, rows)]
    lines += ["## Hypotheses", "", *_board(board)]
    lines += ["## Solid", ""]
    lines += [f"- {text(claim)}" for claim in board.solid] or ["None yet."]
    lines += ["", "## Not solid", ""]
    lines += [
        f"- {text(hole.claim)}: {text(hole.why)} {text(hole.what_would_settle_it)}"
        for hole in board.not_solid
    ] or ["No known hole."]
    lines += ["", "## Findings", ""]
    lines += [
        f"- {f.severity} {f.code}{' ' + text(f.cell) if f.cell else ''}:"
        f" {text(f.message)} {text(f.hint)}".rstrip()
        for f in content.findings(run, analysis, board)
    ] or ["None."]
    return "\n".join(lines) + "\n"


def _header(header: str, unit: str) -> str:
    return f"{header} ({unit})" if unit else header


def _board(board: Board) -> list[str]:
    rows = []
    for name, _, entries in content.board_rows(board):
        for entry in entries:
            evidence = "; ".join(
                f"{e.quantity} {shown(e.value)} {e.unit} ({e.source})"
                for e in entry.evidence
            )
            rows.append(
                [
                    name,
                    entry.scope.configuration,
                    content.scope(entry),
                    entry.status,
                    content.share(entry),
                    evidence or "none",
                    entry.would_decide or "",
                ]
            )
    headers = ["hypothesis", "configuration", "concurrency", "status", "share of step"]
    return _table([*headers, "evidence", "what would decide it"], rows)


def _table(headers: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    lines = [
        "| " + " | ".join(headers) + " |",
        "|" + " --- |" * len(headers),
    ]
    lines += ["| " + " | ".join(text(v) for v in row) + " |" for row in rows]
    return [*lines, ""]
