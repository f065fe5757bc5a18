"""How many experts a step reads."""

from collections.abc import Sequence

from stepscope.errors import RecipeError


def coverage(
    n_tokens: float, n_experts: int, per_token: int, shares: Sequence[float] = ()
) -> float:
    """Return the expected part of a layer's experts that a step reads.

    1 - (1 - k/E)^B; with measured shares the mean over experts of 1 - (1 - k s)^B.

    Source: each of B tokens picks k of E experts; an expert is missed by all of them
        with probability (1 - k/E)^B.
    Assumes: tokens choose independently, and uniformly where no shares are given.
        Real routing is skewed, so it reads less than this: the figure is no floor in
        that direction, and a measured histogram is better.

    Args:
        n_tokens: Tokens that the whole expert group routes in one step.
        n_experts: Routed experts of a layer.
        per_token: Experts that one token uses.
        shares: Part of all routed tokens that went to each expert; any positive
            scale. Empty: uniform.

    Returns:
        Between 0 and 1.

    Raises:
        RecipeError: The histogram has another length, or is not positive.
    """
    if n_tokens < 0:
        raise RecipeError("batch", f"{n_tokens}", "0 or more")
    if not shares:
        return 1.0 - _miss(per_token / n_experts, n_tokens)
    total = float(sum(shares))
    if len(shares) != n_experts or total <= 0 or min(shares) < 0:
        raise RecipeError(
            "routing histogram",
            f"{len(shares)} figures, sum {total:g}",
            f"{n_experts} figures of 0 or more, one an expert",
        )
    hits = (1.0 - _miss(min(1.0, per_token * s / total), n_tokens) for s in shares)
    return sum(hits) / n_experts


def _miss(probability: float, n_tokens: float) -> float:
    if n_tokens == 0:
        return 1.0
    return float((1.0 - probability) ** n_tokens)
