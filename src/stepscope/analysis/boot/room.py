"""The arithmetic of a boot's memory: what would fit, and what it costs.

Source: the ledger's identity (requested = utilization x device) and the figures of the
out-of-memory message. Assumes: lowering the utilization takes memory from the cache and
from nothing else, one GiB for one GiB.
"""

import math
from dataclasses import dataclass

from stepscope.run.serverlog import Failure, Ledger, ServerLog

#: Free memory moves by about this much between two starts, GiB.
MARGIN_GIB = 0.25


@dataclass(frozen=True, slots=True)
class Bound:
    """The largest fraction that leaves room.

    Attributes:
        value: Rounded down to 0.001.
        exact: Not rounded.
        lost_gib: Cache given up against the current fraction.
        lost_tokens: The same in tokens, at the log's tokens per GiB; None: unknown.
        left_gib: Cache left; None: unknown.
    """

    value: float
    exact: float
    lost_gib: float
    lost_tokens: int | None
    left_gib: float | None


def floor_to(value: float, step: float) -> float:
    """Round down to a step, tolerating the error of binary fractions."""
    return round(math.floor(value / step + 1e-9) * step, 6)


def ceil_to(value: float, step: float) -> float:
    """Round up to a step, tolerating the error of binary fractions."""
    return round(math.ceil(value / step - 1e-9) * step, 6)


def utilization(log: ServerLog) -> float | None:
    """The fraction in force: printed, asked for, or the version's default.

    Source: vllm/config/cache.py: 0.9 up to 0.19, 0.92 since 0.20.
    """
    if log.ledger.utilization is not None:
        return log.ledger.utilization
    asked = log.non_default_args.get("gpu_memory_utilization")
    if isinstance(asked, (int, float)) and not isinstance(asked, bool):
        return float(asked)
    if log.engine != "vllm" or log.version is None:
        return None
    parts = log.version.split(".")
    if len(parts) < 2 or not (parts[0].isdigit() and parts[1].isdigit()):
        return None
    if "dev" in log.version:
        return None
    return 0.92 if (int(parts[0]), int(parts[1])) >= (0, 20) else 0.9


def device_gib(log: ServerLog, failure: Failure | None) -> float | None:
    """The GPU's size: of the failing message, else of the ledger."""
    if failure is not None and "total_gib" in failure.numbers:
        return failure.numbers["total_gib"]
    return log.ledger.device_gib


def device_at_least_gib(log: ServerLog) -> float | None:
    """The least size of a GPU whose size no line prints.

    Source: share x device = weights + non-torch + peak + cache, where non-torch and
    peak are not negative (the cache may be).
    """
    share, weights, kv = utilization(log), log.ledger.weights_gib, log.ledger.kv_gib
    if log.engine != "vllm" or not share or weights is None or kv is None:
        return None
    least = (weights + kv) / share
    return least if least > 0 else None


def missing_gib(failure: Failure) -> float | None:
    """How much more than was free the failing allocation asked for."""
    numbers = failure.numbers
    asked = numbers.get("asked_gib")
    if asked is None:
        return None
    free = numbers.get("free_gib")
    if free is None and "total_gib" in numbers and "in_use_gib" in numbers:
        free = numbers["total_gib"] - numbers["in_use_gib"]
    if free is None:
        return None
    return max(0.0, asked - free)


def held_since_kv_gib(failure: Failure, ledger: Ledger) -> float | None:
    """What was taken after the cache was allocated: in use - consumed - cache."""
    in_use = failure.numbers.get("in_use_gib")
    kv = ledger.kv_gib
    consumed = ledger.consumed_gib
    weights, other = ledger.weights_gib, ledger.non_torch_gib
    if consumed is None and weights is not None and other is not None:
        consumed = weights + other
    if in_use is None or kv is None or consumed is None:
        return None
    return round(in_use - consumed - kv, 2)


def graphs_gib(ledger: Ledger) -> float | None:
    """What graph capture takes: measured, else estimated (never below zero)."""
    if ledger.graph_actual_gib is not None:
        return ledger.graph_actual_gib
    if ledger.graph_estimate_gib is not None:
        return max(0.0, ledger.graph_estimate_gib)
    return None


def lower_bound(
    log: ServerLog, failure: Failure | None, freed_gib: float, step: float = 0.001
) -> Bound | None:
    """The fraction that leaves ``freed_gib`` more of the device outside the cache."""
    share, device = utilization(log), device_gib(log, failure)
    if share is None or not device or device <= 0:
        return None
    exact = share - freed_gib / device
    value = floor_to(exact, step)
    if value <= 0:
        return None
    lost = (share - value) * device
    kv, tokens = log.ledger.kv_gib, log.ledger.kv_tokens
    return Bound(
        value=value,
        exact=exact,
        lost_gib=round(lost, 2),
        lost_tokens=round(tokens * lost / kv) if tokens and kv and kv > 0 else None,
        left_gib=round(kv - lost, 2) if kv is not None else None,
    )


def raised(log: ServerLog, wanted_gib: float, step: float = 0.01) -> float | None:
    """The fraction that gives the cache ``wanted_gib`` more than it has now.

    Of a GPU of unknown size it gives at least that.
    """
    share = utilization(log)
    device = log.ledger.device_gib or device_at_least_gib(log)
    if share is None or not device:
        return None
    return ceil_to(share + wanted_gib / device, step)


def free_share(log: ServerLog) -> float | None:
    """The largest fraction that the memory free at the start allows."""
    free, device = log.ledger.free_at_start_gib, log.ledger.device_gib
    if free is None or not device:
        return None
    return floor_to((free - MARGIN_GIB) / device, 0.01)


def overshoot_gib(ledger: Ledger) -> float | None:
    """By how much the printed parts exceed the request once graphs are captured."""
    if ledger.requested_gib is None or ledger.kv_gib is None:
        return None
    consumed = ledger.consumed_gib
    if consumed is None:
        if ledger.weights_gib is None:
            return None
        consumed = ledger.weights_gib + (ledger.non_torch_gib or 0.0)
    peak = ledger.activation_peak_gib or 0.0
    graphs = ledger.graph_actual_gib or 0.0
    return max(0.0, consumed + peak + graphs + ledger.kv_gib - ledger.requested_gib)


def tokens_text(bound: Bound) -> str:
    """Say what a bound costs."""
    text = f"the cache gives up {bound.lost_gib:.2f} GiB"
    if bound.lost_tokens is not None:
        text += f", about {bound.lost_tokens:,} tokens"
    if bound.left_gib is not None:
        text += f", and keeps {bound.left_gib:.2f} GiB"
    return text
