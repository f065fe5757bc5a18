"""Flags to the parallel layout that they ask for."""

from collections.abc import Mapping

from stepscope.recipe.records import Layout

Flags = Mapping[str, str | int | float | bool | None]


def vllm_layout(flags: Flags) -> Layout:
    """Return vLLM's layout.

    Experts spread over all tensor- and data-parallel ranks of a pipeline stage, or
    are sharded like every other weight.
    Source: vLLM's expert-parallel deployment guide, EP = TP x DP.
    """
    tp = _degree(flags, "tensor-parallel-size")
    dp = _degree(flags, "data-parallel-size")
    spread = flags.get("enable-expert-parallel") is True
    return Layout(
        tp=tp,
        dp=dp,
        pp=_degree(flags, "pipeline-parallel-size"),
        ep=tp * dp if spread else 1,
    )


def sglang_layout(flags: Flags) -> Layout:
    """Return SGLang's layout in vLLM's terms.

    With data-parallel attention SGLang's ``tp-size`` counts all ranks, so that
    attention is sharded over ``tp-size / dp-size``; without it each replica has
    ``tp-size`` ranks.
    Source: SGLang's server arguments (dp-size, enable-dp-attention, ep-size; the
    all-to-all back ends set ep-size to tp-size).
    """
    tp = _degree(flags, "tp-size", "tensor-parallel-size", "tp")
    dp = _degree(flags, "dp-size", "data-parallel-size", "dp")
    ep = _degree(flags, "ep-size", "expert-parallel-size", "ep")
    if flags.get("moe-a2a-backend") not in (None, False, "none"):
        ep = tp
    shared = flags.get("enable-dp-attention") is True
    return Layout(
        tp=max(tp // dp, 1) if shared else tp,
        dp=dp,
        pp=_degree(flags, "pp-size", "pipeline-parallel-size", "pp"),
        ep=ep,
    )


def whole_layout(flags: Flags) -> Layout:
    """Return the layout of an engine that keeps the model in one piece."""
    return Layout()


def _degree(flags: Flags, *names: str) -> int:
    for name in names:
        value = flags.get(name)
        if isinstance(value, str) and value.isascii() and value.isdigit():
            value = int(value)
        if isinstance(value, int) and not isinstance(value, bool):
            return max(value, 1)
    return 1
