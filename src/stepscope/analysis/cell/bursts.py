"""Answers that arrive whole: then no time between tokens was seen."""

from collections.abc import Iterator

import numpy as np

from stepscope.analysis.cell.columns import Columns
from stepscope.analysis.cell.latency import NO_STATS, stats
from stepscope.analysis.cell.measured import Measured
from stepscope.analysis.cell.saying import about
from stepscope.analysis.records import Stats
from stepscope.findings import Finding
from stepscope.units import NS_PER_MS

#: No engine takes a step in less: launching one kernel takes a quarter of it.
LEAST_TPOT_MS = 0.02
#: Shorter answers may lie in one piece for a good reason: two tokens, merged.
_TOKENS = 8


def in_one_piece(rows: Columns) -> bool:
    """Return whether the answers came whole, so that TPOT says nothing of a step.

    Assumes: half of the answers or more have eight tokens. Not seen: a proxy that
    holds back parts of an answer; its TPOT is about right, its gaps are not.
    """
    values, long = rows.tpot_ns(), rows.tokens[rows.counted] >= _TOKENS
    if not values.size or 2 * int(long.sum()) < values.size:
        return False
    return bool(np.median(values[long]) < LEAST_TPOT_MS * NS_PER_MS)


def tpot_stats(rows: Columns) -> Stats:
    """Return the distribution of TPOT, ms; none where answers came whole."""
    return NO_STATS if in_one_piece(rows) else stats(rows.tpot_ns())


def whole_answers(m: Measured) -> Iterator[Finding]:
    """Tell that no time of a token is known, rather than print one near zero."""
    if not in_one_piece(m.columns):
        return
    median_ns = float(np.median(m.columns.tpot_ns()))
    yield about(
        m,
        "answers-in-one-piece",
        "the first and the last content of an answer arrived together (median"
        f" {median_ns / 1000:.2g} microseconds a token, and no engine takes a step in"
        f" less than {1000 * LEAST_TPOT_MS:g}): TTFT is the time of the whole answer,"
        " and TPOT is not known",
        "Something holds the stream back: turn off buffering in the proxy between"
        " (nginx: proxy_buffering off), or measure at the server itself.",
        severity="error",
    )
