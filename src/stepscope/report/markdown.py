"""The report as Markdown: short, for a pull request."""

import re
from collections.abc import Iterable, Sequence

from stepscope.analysis.records import Analysis
from stepscope.board.records import Board, BoardEntry
from stepscope.report import content
from stepscope.report.cells import UNKNOWN, Column, shown
from stepscope.report.inert import clipped, fit
from stepscope.report.nexts import Next, what_next
from stepscope.report.tested import tested
from stepscope.run.run import Run

#: The first line of every Markdown file that we write.
OURS = "<!-- stepscope report -->"

_ACTIVE = re.compile(r"([\\`*_\[\]<>|#~!@])")
#: A name of a configuration or cell in a table; a claim in a list.
_MOST_NAME, _MOST_CLAIM = 60, 400
_N_FINDINGS = 8
_N_NEXT = 5
_N_TESTED = 24
_COLUMNS = (
    "concurrency", "request_rate", "output_tokens_per_s", "tpot_ms.mean",
    "tpot_ms.p99", "ttft_ms.median", "ttft_ms.p99", "telemetry.power_w",
    "usd_per_million_output_tokens",
)  # fmt: skip


def text(value: object, most: int = _MOST_CLAIM) -> str:
    """Return a value as inert Markdown on one line."""
    line = " ".join(clipped(fit(str(value)), most).split())
    # An address would become a link by itself.
    line = line.replace("://", ":\u200b//").replace("www.", "www\u200b.")
    return _ACTIVE.sub(r"\\\1", line)


def markdown(
    run: Run, analysis: Analysis, board: Board, pictures: Sequence[str] = ()
) -> str:
    """Return the report as Markdown.

    It holds what a reviewer needs; the page has every cell, finding and figure.

    Args:
        run: The run.
        analysis: Its figures.
        board: Its verdict.
        pictures: Relative paths of pictures to show under the verdict.

    Returns:
        GitHub-flavoured Markdown; nothing of the run in it is HTML or a link out.
    """
    lines = [OURS, f"## {text(run.id, _MOST_NAME)}", ""]
    for sentence in board.sentences:
        lines += [text(sentence), ""]
    if not run.complete:
        lines += ["This run was cut short.", ""]
    for picture in pictures:
        lines += [f"![{text(picture)}]({picture})", ""]
    lines += ["### Sweep", "", *_sweep(analysis)]
    lines += ["### Hypotheses", "", *_board(board, analysis)]
    if analysis.comparisons:
        lines += ["### Changes tested", "", *_tested(analysis)]
    lines += ["### Solid", ""]
    lines += [f"- {text(claim)}" for claim in board.solid] or ["None yet."]
    lines += ["", "### Not solid", ""]
    lines += _not_solid(board, analysis) or ["No known hole."]
    lines += ["", "### What to run next", "", *_next(what_next(run, analysis, board))]
    lines += ["", "### Errors and warnings", "", *_findings(run, analysis, board)]
    return "\n".join(lines) + "\n"


def _sweep(analysis: Analysis) -> list[str]:
    """Return the measured cells; warm-ups and captures are counted."""
    cells = [c for c in analysis.cells if not c.warm_up and c.capture is None]
    known = content.columns_of(cells)
    columns = [c for c in known if c.field in _COLUMNS]
    rows = [
        [row.name, *row.values, f"{row.state} {row.reason}".strip()]
        for row in content.summary_rows(cells, columns)
    ]
    out = _table(["cell", *(_header(c) for c in columns), "state"], rows)
    rest = len(analysis.cells) - len(cells)
    if rest:
        out += [f"{rest} warm-up and traced cells are on the page.", ""]
    return out


def _header(column: Column) -> str:
    return f"{column.header} ({column.unit})" if column.unit else column.header


def _board(board: Board, analysis: Analysis) -> list[str]:
    """Return one row a hypothesis: where it has which status."""
    rows = []
    for name, _, entries in content.board_rows(board):
        told = [e for e in entries if not content.only_void(e, analysis)]
        asks = dict.fromkeys(
            e.would_decide
            for e in told
            if e.would_decide and e.status in ("standing", "untestable")
        )
        rows.append(
            [
                name,
                *(
                    _where([e for e in told if e.status == status])
                    for status in ("supported", "ruled-out", "standing", "untestable")
                ),
                clipped(next(iter(asks), "") or UNKNOWN, 120),
            ]
        )
    return _table(
        ["hypothesis", "supported", "ruled out", "standing", "untestable", "decides"],
        rows,
    )


def _where(entries: Sequence[BoardEntry]) -> str:
    """Return configurations with their concurrencies, shares where there are some."""
    places: dict[str, list[str]] = {}
    for entry in entries:
        at = content.scope(entry)
        if entry.share_of_step_pct is not None:
            at += f" ({content.share(entry)})"
        places.setdefault(entry.scope.configuration, []).append(at)
    told = [f"{clipped(name, 30)} {', '.join(at)}" for name, at in places.items()]
    if len(told) > 3:
        told = [*told[:2], f"{len(told) - 2} more configurations"]
    return "; ".join(told) or UNKNOWN


def _not_solid(board: Board, analysis: Analysis) -> list[str]:
    """Return claims with a hole, those with the same hole together.

    Comparisons have a table of their own.
    """
    heads = tuple(f"{c.b} against {c.a}:" for c in analysis.comparisons)
    holes: dict[tuple[str, str], list[str]] = {}
    for hole in board.not_solid:
        if not hole.claim.startswith(heads or ("\0",)):
            key = (hole.why, hole.what_would_settle_it)
            holes.setdefault(key, []).append(hole.claim)
    return [
        f"- {'; '.join(text(claim, 120) for claim in claims)}: {text(why, 220)}."
        f" {text(settles)}"
        for (why, settles), claims in holes.items()
    ]


def _tested(analysis: Analysis) -> list[str]:
    rows = tested(analysis)
    out = _table(
        ["B over A", "concurrency", "metric", "%", "95 % interval", "verdict"],
        [
            [f"{t.b} over {t.a}", t.at, t.metric, t.delta, t.interval, t.verdict]
            for t in rows[:_N_TESTED]
        ],
    )
    rest = len(rows) - _N_TESTED
    return [*out, f"{rest} more rows are on the page.", ""] if rest > 0 else out


def _next(plan: Next) -> list[str]:
    if plan.refused:
        return [f"No plan: {text(plan.refused)}"]
    rows = [
        [m.title, m.alone, m.usd, "; ".join(m.decides) or UNKNOWN]
        for m in plan.measurements[:_N_NEXT]
    ]
    lines = [text(plan.head), ""] if plan.head else []
    if rows:
        lines += _table(["measurement", "minutes alone", "USD", "decides"], rows)
    lines += [text(remark) for remark in plan.remarks]
    return lines or ["Nothing is open."]


def _findings(run: Run, analysis: Analysis, board: Board) -> list[str]:
    every = content.findings(run, analysis, board)
    grave = [f for f in every if f.severity != "info"]
    lines = [
        f"- {f.severity} {f.code}{' ' + text(f.cell, _MOST_NAME) if f.cell else ''}:"
        f" {text(f.message)}"
        for f in grave[:_N_FINDINGS]
    ]
    rest = len(every) - min(len(grave), _N_FINDINGS)
    if rest:
        lines += ["", f"{rest} more findings are on the page."]
    return lines or ["None."]


def _table(headers: Sequence[str], rows: Iterable[Sequence[object]]) -> list[str]:
    lines = [
        "| " + " | ".join(headers) + " |",
        "|" + " --- |" * len(headers),
    ]
    lines += [
        "| " + " | ".join(text(shown(v), 240) for v in row) + " |" for row in rows
    ]
    return [*lines, ""]
