"""Do configurations still answer the same? Greedy answers, letter by letter."""

from collections.abc import Iterator, Sequence
from itertools import combinations, product

from stepscope.analysis.compare.table import Start, Table
from stepscope.findings import Finding
from stepscope.run.run import Answer

#: A difference in the first tokens is early: rounding alone needs longer to tip a
#: choice between two tokens that are not nearly alike.
EARLY_TOKENS = 16


def first_difference(x: Answer, y: Answer) -> int | None:
    """Return the number of tokens of ``x`` before its text leaves that of ``y``.

    None: the texts are the same. A token is a piece of the stream; a server that
    merges pieces makes the number smaller than it is.
    """
    one, other = x.text, y.text
    if one == other:
        return None
    at = next(
        (i for i, (c, d) in enumerate(zip(one, other, strict=False)) if c != d),
        min(len(one), len(other)),
    )
    n, end = 0, 0
    for piece in x.pieces:
        end += len(piece)
        if end > at:
            break
        n += 1
    return n


def answer_findings(of: Table, a: str, bs: Sequence[str]) -> list[Finding]:
    """Return where configurations answer otherwise, beyond what launches do anyway.

    Source: for each question the earliest difference between launches of the two
        configurations, against the earliest between launches of one of them.
    Assumes: the same prompts, greedy decoding. Equal text does not prove equal
        arithmetic; different text does not prove worse answers.
    """
    found = []
    for b in bs:
        mine, other = (
            [
                s
                for s in of.starts
                if s.arm == arm and any(x.pieces for x in s.launch.answers)
            ]
            for arm in (a, b)
        )
        if not mine or not other:
            continue
        across = _earliest(product(mine, other))
        pairs = [*combinations(mine, 2), *combinations(other, 2)]
        within = _earliest(iter(pairs))
        differing = {
            question: at
            for question, at in across.items()
            if at is not None and not _anyway(within.get(question), at)
        }
        if differing:
            found.append(_finding(a, b, across, differing, len(pairs)))
    return found


def _anyway(within: int | None, at: int) -> bool:
    """Tell whether launches of one configuration part as early."""
    return within is not None and within <= at


def _earliest(pairs: Iterator[tuple[Start, Start]]) -> dict[int, int | None]:
    """Return for each question the earliest difference; None: there is none."""
    found: dict[int, int | None] = {}
    for one, other in pairs:
        replies = {x.question: x for x in other.launch.answers if x.pieces}
        for x in one.launch.answers:
            if x.question not in replies or not x.pieces:
                continue
            at = first_difference(x, replies[x.question])
            seen = found.setdefault(x.question, None)
            if at is not None and (seen is None or at < seen):
                found[x.question] = at
    return found


def _finding(
    a: str,
    b: str,
    across: dict[int, int | None],
    differing: dict[int, int],
    n_pairs: int,
) -> Finding:
    n_early = sum(at < EARLY_TOKENS for at in differing.values())
    where = ", ".join(str(at) for at in sorted(differing.values()))
    reference = (
        f"launches of one configuration agree for longer ({n_pairs} pairs)"
        if n_pairs
        else "no configuration was started twice, so how much answers differ by"
        " themselves is not known"
    )
    return Finding(
        code="outputs-differ",
        severity="warning" if 2 * n_early >= len(across) else "info",
        message=f"{b} answers {len(differing)} of {len(across)} greedy questions"
        f" otherwise than {a}, from token {where} on; {reference}. Batching and the"
        " choice of kernels alone can do that, so it proves no loss of quality",
        hint=f"Evaluate the answers of {b} before you trade them for its speed.",
    )
