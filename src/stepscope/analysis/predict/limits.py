"""How many sequences a server can hold: what KV memory and its own limit allow."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from stepscope.analysis.boot.records import BootResult
from stepscope.run.run import Launch, Run

#: Flags that bound the sequences of one step, as engines spell them.
_BATCH_FLAGS = ("max-num-seqs", "parallel", "np", "max-running-requests", "slots")


@dataclass(frozen=True, slots=True)
class Limit:
    """What holds requests back above ``sequences``, over all ranks."""

    kind: Literal["kv", "batch"]
    sequences: float
    why: str


def flag_value(command: Sequence[str], *names: str) -> str | None:
    """Return the value of the last of these long flags in a command."""
    found = None
    for i, word in enumerate(command):
        name, equals, value = word.partition("=")
        if name.lstrip("-") not in names or not name.startswith("-"):
            continue
        if equals:
            found = value
        elif i + 1 < len(command):
            found = command[i + 1]
    return found


def batch_limit(run: Run, launch: Launch | None) -> Limit | None:
    """Return the server's own bound on sequences in a step; None: none is told."""
    if launch is None:
        return None
    text = flag_value(launch.command, *_BATCH_FLAGS)
    if text is None and launch.log is not None:
        value = launch.log.resolved.get("max_num_seqs")
        text = None if value is None else str(value)
    if text is None or not text.isdigit() or int(text) < 1:
        return None
    n = int(text) * max(run.layout.dp, 1)
    return Limit("batch", float(n), f"the server takes at most {n} sequences at once")


def kv_tokens(boots: Sequence[BootResult], launch: Launch | None) -> float | None:
    """Return the KV tokens of one rank that the launch's ledger tells."""
    if launch is None:
        return None
    for boot in boots:
        value = boot.ledger.get("kv_tokens")
        if boot.launch == launch.name and isinstance(value, int | float) and value > 0:
            return float(value)
    return None


def kv_limit(
    tokens: float | None, dp: int, tokens_each: int | None, *, told: bool
) -> Limit | None:
    """Return the sequences whose prompt and whole answer fit the KV tokens.

    Assumes: all sequences reach their full length together, as those of a closed
        loop in lockstep do; ``tokens`` is of one data-parallel rank, ``told`` by the
        server's ledger or else reckoned.
    """
    if tokens is None or not tokens_each:
        return None
    n = int(tokens * dp // tokens_each)
    return Limit(
        "kv",
        float(max(n, 1)),
        f"KV memory {'holds' if told else 'would hold about'} {tokens * dp:,.0f}"
        f" tokens: {n:,} sequences of"
        f" {tokens_each:,} tokens, prompt and answer",
    )
