"""The memory ledger of one GPU, closed from the figures that the log printed.

Source: vLLM's gpu_worker: cache = requested - weights - non-torch - activation peak -
(graph estimate, when applied). From 0.27 the printed "peak activation" contains the
applied estimate (and "consumed memory" is weights and non-torch in one); before it
does not.
Assumes: the figures belong to one rank. Does not account for: memory that is taken
after the cache was sized (kernel warm-up, sampler), which no line reports.
"""

import re

from stepscope.parse.log.state import ProcessFacts, State
from stepscope.run.serverlog import Ledger

#: Totals that the driver reports, as logs have shown them, GiB.
DEVICE_GIB = {"H200": 139.8, "H100": 79.11, "B200": 178.35, "B300": 267.69}

#: Releases of vLLM before the estimate of graph memory, 0.18.
_OLD = re.compile(r"0\.(?:\d|1[0-7])\.")

_PLAIN = (
    "device_gib",
    "requested_gib",
    "utilization",
    "weights_gib",
    "non_torch_gib",
    "graph_estimate_gib",
    "graph_actual_gib",
    "kv_gib",
    "max_concurrency",
    "free_at_start_gib",
    "consumed_gib",
    "peak_logged_gib",
    "free_at_end_gib",
)


def close_ledger(
    figures: dict[str, float], flags: dict[str, bool], device_name: str | None = None
) -> Ledger:
    """Return the ledger with its derived terms and what they leave.

    Args:
        figures: Printed figures in GiB, by their names in ``Ledger``.
        flags: ``estimate_applied`` and ``peak_contains_estimate`` where known;
            ``requests_nothing`` for engines whose fraction is not of the device;
            ``never_estimates`` for releases that know no estimate of graphs.
        device_name: The GPU's name, to know its size where no line says it.
    """
    known: dict[str, float | None] = {name: figures.get(name) for name in _PLAIN}
    applied = flags.get("estimate_applied")
    contains = flags.get("peak_contains_estimate")
    inferred = _device(known, figures, device_name)
    if known["requested_gib"] is None:
        device, share = known["device_gib"], known["utilization"]
        if (
            device is not None
            and share is not None
            and "free_at_end_gib" not in figures
            and not flags.get("requests_nothing")
        ):
            known["requested_gib"] = round(device * share, 2)
    _estimate(known, figures)
    peak, estimate = known["peak_logged_gib"], known["graph_estimate_gib"]
    if estimate is None:
        applied = applied if applied is False else None
    elif applied is None and contains is not None:
        applied = None
    activation = peak
    if peak is not None and contains and applied and estimate is not None:
        activation = round(peak - estimate, 2)
    if known["non_torch_gib"] is None:
        consumed, weights = known["consumed_gib"], known["weights_gib"]
        if consumed is not None and weights is not None:
            known["non_torch_gib"] = round(consumed - weights, 2)
    no_estimate = applied is not None or flags.get("never_estimates", False)
    left, name = _left(known, activation, applied is True, may=not no_estimate)
    tokens = figures.get("kv_tokens")
    return Ledger(
        **{k: v for k, v in known.items() if v is not None},
        activation_peak_gib=activation,
        graph_estimate_applied=applied,
        kv_tokens=int(tokens) if tokens is not None else None,
        peak_contains_estimate=contains if peak is not None else None,
        device_inferred=inferred,
        unaccounted_gib=left,
        unaccounted_name=name,
    )


def _device(
    known: dict[str, float | None], figures: dict[str, float], name: str | None
) -> bool:
    if known["device_gib"] is not None or "free_at_end_gib" in figures:
        return False
    requested, share = known["requested_gib"], known["utilization"]
    if requested is not None and share:
        known["device_gib"] = round(requested / share, 2)
        return True
    by_name = next((g for k, g in DEVICE_GIB.items() if name and k in name), None)
    estimate = figures.get("graph_estimate_gib")
    without = figures.get("utilization_without_graphs")
    if by_name is not None:
        known["device_gib"] = by_name
        return True
    if estimate is not None and share is not None and without is not None:
        delta = share - without
        # The fraction is printed to 1e-4 and the estimate to 0.01 GiB.
        if delta >= 0.005 and estimate > 0.5:
            known["device_gib"] = round(estimate / delta, 1)
            return True
    return False


def _estimate(known: dict[str, float | None], figures: dict[str, float]) -> None:
    if known["graph_estimate_gib"] is not None:
        return
    device, share = known["device_gib"], known["utilization"]
    without = figures.get("utilization_without_graphs")
    if device is not None and share is not None and without is not None:
        known["graph_estimate_gib"] = round((share - without) * device, 2)


def _left(
    known: dict[str, float | None],
    activation: float | None,
    applied: bool,
    *,
    may: bool,
) -> tuple[float | None, str | None]:
    begin, end = known["free_at_start_gib"], known["free_at_end_gib"]
    weights, kv = known["weights_gib"], known["kv_gib"]
    if end is not None:
        if begin is None or weights is None or kv is None:
            return None, None
        left = begin - weights - kv - (known["graph_actual_gib"] or 0.0) - end
        return _rounded(left), "buffers, workspaces and contexts that no line reports"
    requested = known["requested_gib"]
    if requested is None or weights is None or kv is None:
        return None, None
    left = requested - weights - kv
    missing = []
    for value, name in (
        (known["non_torch_gib"], "non-torch memory"),
        (activation, "activation peak"),
    ):
        if value is None:
            missing.append(name)
        else:
            left -= value
    if applied and known["graph_estimate_gib"] is not None:
        left -= known["graph_estimate_gib"]
    elif may and activation is None:
        missing.append("graph estimate, if it was applied")
    if missing:
        return _rounded(left), " and ".join(missing) + ", which this log does not split"
    return _rounded(left), "rounding of the printed figures" if abs(
        left
    ) < 0.06 else "memory that no line reports"


def _rounded(value: float) -> float:
    return round(value, 2) + 0.0


def all_ledgers(state: State) -> tuple[Ledger, dict[str, Ledger]]:
    """Return the ledger of the rank with the smallest cache, and everyone's."""
    name = state.resolved.get("device_name")
    device_name = name if isinstance(name, str) else None
    shared, flags = _shared(state)
    ledgers: dict[str, Ledger] = {}
    for process, facts in state.processes.items():
        if "weights_gib" in facts.figures or "kv_gib" in facts.figures:
            figures = {**shared, **_own(facts)}
            ledgers[process] = close_ledger(
                figures, {**flags, **facts.flags}, device_name
            )
    if ledgers:
        smallest = min(
            ledgers.values(),
            key=lambda each: each.kv_gib if each.kv_gib is not None else 1e9,
        )
        return smallest, ledgers
    return close_ledger(shared, flags, device_name), {}


def _own(facts: ProcessFacts) -> dict[str, float]:
    return facts.figures


def _shared(state: State) -> tuple[dict[str, float], dict[str, bool]]:
    """Figures that any process may have printed for all: the smallest of each."""
    shared: dict[str, float] = dict(state.anyone.figures)
    flags: dict[str, bool] = {}
    for facts in state.processes.values():
        flags.update(
            {k: v for k, v in facts.flags.items() if k.startswith(("estimate", "peak"))}
        )
        for name, value in facts.figures.items():
            if name in shared and name in ("device_gib", "utilization"):
                continue
            shared[name] = min(value, shared.get(name, value))
    flags.update(state.anyone.flags)
    flags["requests_nothing"] = state.engine in ("sglang", "llamacpp")
    flags["never_estimates"] = _OLD.match(state.version or "") is not None
    for failure in state.failures:
        total = failure.numbers.get("total_gib")
        if total is not None:
            shared.setdefault("device_gib", total)
        if failure.signature == "free-memory-below-request":
            numbers = failure.numbers
            for source, target in (
                ("free_gib", "free_at_start_gib"),
                ("utilization", "utilization"),
                ("requested_gib", "requested_gib"),
            ):
                if source in numbers:
                    shared.setdefault(target, numbers[source])
    fraction = state.resolved.get("gpu_memory_utilization")
    if isinstance(fraction, (int, float)):
        shared.setdefault("utilization", float(fraction))
    return shared, flags
