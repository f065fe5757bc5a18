"""What a server's own counters say of speculative decoding during a cell.

A step that verifies drafts gives several tokens at once, which come as one event. So
the gaps between events are gaps between steps; TPOT, which divides by tokens, is
smaller by the tokens that a step gives.

Source: vLLM's ``vllm:spec_decode_*`` counters, named as its client names what it makes
of them. Assumes: no other load during the cell, since the counters are the server's.
"""

from typing import Any

import msgspec

from stepscope.run.samples import MetricsSnapshot

_PREFIX = "vllm:spec_decode_num_"


class Drafts(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The counters at one moment.

    Attributes:
        n_drafts: Times that tokens were drafted for a sequence: its steps.
        n_draft_tokens: Tokens that were drafted.
        n_accepted_tokens: Those that were kept.
        accepted_by_position: The same by position in the draft.
    """

    n_drafts: float
    n_draft_tokens: float
    n_accepted_tokens: float
    accepted_by_position: dict[int, float]


def drafts(metrics: MetricsSnapshot | None) -> Drafts | None:
    """Return the counters of a server; None where it does not speculate."""
    sums: dict[str, float] = {}
    by_position: dict[int, float] = {}
    counters = () if metrics is None else metrics.values
    for value in counters:
        if not value.name.startswith(_PREFIX):
            continue
        name = value.name.removeprefix(_PREFIX).removesuffix("_total")
        if name == "accepted_tokens_per_pos":
            at = int(value.labels.get("position", "0"))
            by_position[at] = by_position.get(at, 0.0) + value.value
        else:
            sums[name] = sums.get(name, 0.0) + value.value
    if not sums and not by_position:
        return None
    return Drafts(
        n_drafts=sums.get("drafts", 0.0),
        n_draft_tokens=sums.get("draft_tokens", 0.0),
        n_accepted_tokens=sums.get("accepted_tokens", 0.0),
        accepted_by_position=by_position,
    )


def speculation(before: Drafts | None, after: Drafts | None) -> dict[str, Any]:
    """Return vLLM's fields about speculation; empty where there was none.

    ``spec_decode_acceptance_rate`` is in percent; ``spec_decode_acceptance_length`` is
    the tokens that a step gives a sequence: 1 + accepted / drafts.
    """
    if before is None or after is None:
        return {}
    n = after.n_drafts - before.n_drafts
    drafted = after.n_draft_tokens - before.n_draft_tokens
    kept = after.n_accepted_tokens - before.n_accepted_tokens
    if n <= 0 or drafted <= 0 or kept < 0:
        return {}  # a restart in between, or nothing was drafted
    positions = sorted(after.accepted_by_position)
    return {
        "spec_decode_acceptance_rate": 100 * kept / drafted,
        "spec_decode_acceptance_length": 1 + kept / n,
        "spec_decode_num_drafts": int(n),
        "spec_decode_draft_tokens": int(drafted),
        "spec_decode_accepted_tokens": int(kept),
        "spec_decode_per_position_acceptance_rates": [
            (after.accepted_by_position[p] - before.accepted_by_position.get(p, 0.0))
            / n
            for p in positions
        ],
    }
