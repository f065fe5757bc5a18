"""What a cause's page of the doctor returns, and the flags of each engine."""

import re
from dataclasses import dataclass, field

from stepscope.run.serverlog import Fix, ServerLog

#: The engine's flag for the share of GPU memory, and for its other limits.
FLAGS = {
    "vllm": {
        "share": "--gpu-memory-utilization",
        "seqs": "--max-num-seqs",
        "chunk": "--max-num-batched-tokens",
        "length": "--max-model-len",
        "tp": "--tensor-parallel-size",
        "eager": "--enforce-eager",
        "graphs": "--max-cudagraph-capture-size",
        "port": "--port",
        "model": "--model",
    },
    "sglang": {
        "share": "--mem-fraction-static",
        "seqs": "--max-running-requests",
        "chunk": "--chunked-prefill-size",
        "length": "--context-length",
        "tp": "--tp-size",
        "eager": "--disable-cuda-graph",
        "graphs": "--cuda-graph-max-bs",
        "port": "--port",
        "model": "--model-path",
    },
    "llamacpp": {
        "share": "--n-gpu-layers",
        "seqs": "--parallel",
        "chunk": "--ubatch-size",
        "length": "--ctx-size",
        "tp": "--tensor-split",
        "eager": "",
        "graphs": "",
        "port": "--port",
        "model": "--model",
    },
}


def flag(log: ServerLog, what: str) -> str:
    """Return the long name of a flag as the log's engine spells it."""
    if log.engine == "sglang" and what in ("graphs", "eager"):
        # Newer releases spell these anew: the log's own wording wins.
        new = {"graphs": "--cuda-graph-max-bs-decode", "eager": "--cuda-graph-backend-"}
        if any(new[what] in f.text for f in log.failures):
            return {
                "graphs": "--cuda-graph-max-bs-decode",
                "eager": "--cuda-graph-backend-decode",
            }[what]
    return FLAGS.get(log.engine or "vllm", FLAGS["vllm"])[what]


@dataclass(slots=True)
class Advice:
    """Why, what helps, and what only seems to."""

    why: str = ""
    fixes: list[Fix] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    def fix(
        self,
        name: str,
        direction: str,
        value: float | str | None,
        effect: str,
        confidence: str = "medium",
    ) -> None:
        """Add a fix."""
        self.fixes.append(
            Fix(
                flag=name,
                direction=direction,
                value=value,
                effect=effect,
                confidence=confidence,
            )
        )


def number(log: ServerLog, *names: str) -> int | None:
    """Return the first of these settings that the log resolved to a whole number."""
    for name in names:
        for source in (log.resolved, log.non_default_args):
            value = source.get(name)
            if isinstance(value, int) and not isinstance(value, bool):
                return value
    return None


def at_least(version: str | None, *wanted: int) -> bool:
    """True unless a release is known to be older: builds of one's own are new."""
    parts = (version or "").split(".")
    if "dev" in (version or "") or len(parts) < 2:
        return True
    digits = (re.match(r"\d+", part) for part in parts[: len(wanted)])
    numbers = [int(found[0]) if found is not None else 0 for found in digits]
    return (*numbers, *[0] * (len(wanted) - len(numbers))) >= wanted


def power_of_two_below(value: float) -> int:
    """Return the largest power of two that is not above ``value``, at least 1."""
    result = 1
    while result * 2 <= value:
        result *= 2
    return result
