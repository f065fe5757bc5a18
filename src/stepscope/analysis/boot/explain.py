"""What a log of a running server hides: cache tokens, engine advice, inert flags."""

from collections.abc import Iterator

import msgspec

from stepscope.run.serverlog import InertFlag, Ledger, ServerLog
from stepscope.units import BYTES_PER_GIB

#: What vLLM takes off its own suggestions, GiB (150 MiB).
RESERVE_GIB = 150 / 1024
#: A larger share of the device leaves too little beside it, however little is in use.
MOST_SHARE = 0.98


class KvReading(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the cache's token count is made of.

    Attributes:
        bytes_per_token: Cache bytes over printed tokens: an average, and a cost per
            token only where ``derived`` is False.
        tokens_per_gib: The same the other way round.
        request_tokens: Length that the concurrency was computed for.
        max_concurrency: Printed concurrency.
        request_gib: Cache over concurrency: what one request of that length holds.
        derived: The printed tokens are concurrency x length, not a count of slots.
        text: The reading in words.
    """

    bytes_per_token: float | None = None
    tokens_per_gib: float | None = None
    request_tokens: int | None = None
    max_concurrency: float | None = None
    request_gib: float | None = None
    derived: bool | None = None
    text: str = ""


class AuditedSuggestion(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True
):
    """A setting that the engine proposed, checked against its own figures."""

    flag: str
    value: float | int | str
    line: int
    sound: bool | None
    why: str
    better: float | int | str | None = None


class LedgerRow(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One row of the printed ledger; rows marked ``closes`` sum to the request."""

    name: str
    gib: float
    closes: bool = True


def kv_reading(log: ServerLog) -> KvReading:
    """Explain the printed token count.

    Source: vLLM's kv_cache_utils: since 0.28 the printed tokens are
    int(max_concurrency x max_model_len), and max_concurrency is blocks over the blocks
    that one request of the full length holds. Does not account for: the groups of a
    hybrid model, which the log does not list.
    """
    ledger = log.ledger
    tokens, kv = ledger.kv_tokens, ledger.kv_gib
    if tokens is None or not tokens:
        return KvReading(text="The log prints no token count.")
    length = log.resolved.get("max_model_len")
    length = length if isinstance(length, int) and length > 0 else None
    times = ledger.max_concurrency
    derived = None
    if log.engine == "vllm" and times is not None and length is not None:
        derived = _at_least(log.version, 0, 28) or None
        plain = abs(tokens / length - times) <= 0.006
        if derived is None and not plain:
            derived = True
    per_token = kv * BYTES_PER_GIB / tokens if kv is not None and kv > 0 else None
    request = kv / times if kv is not None and times else None
    text = f"{tokens:,} tokens"
    kept, counted = log.resolved.get("blocks_override"), log.resolved.get("n_blocks")
    if isinstance(kept, int) and isinstance(counted, int) and kv is not None:
        kv *= kept / counted
        per_token = kv * BYTES_PER_GIB / tokens
        text += (
            f" in the {kept:,} blocks that were asked for; memory would hold"
            f" {counted:,}, and {kv:.2f} of {ledger.kv_gib:.2f} GiB are used"
        )
        request = kv / times if times else None
    if per_token is not None:
        text += f", {per_token:,.1f} bytes each on average"
    if times is not None and length is not None:
        text += f"; {times:g} requests of {length:,} tokens"
    if request is not None:
        text += f", which hold {request:.3f} GiB each"
    if derived:
        text += (
            ". The count is concurrency x length: for a model with sliding windows or"
            " states it contains a reserve per request, so the average is no marginal"
            " cost and depends on the length limit"
        )
    return KvReading(
        bytes_per_token=per_token,
        tokens_per_gib=tokens / kv if kv is not None and kv > 0 else None,
        request_tokens=length,
        max_concurrency=times,
        request_gib=request,
        derived=derived,
        text=text + ".",
    )


def _at_least(version: str | None, major: int, minor: int) -> bool:
    if version is None:
        return False
    parts = version.split(".")
    if len(parts) < 2 or not (parts[0].isdigit() and parts[1].isdigit()):
        return False
    return (int(parts[0]), int(parts[1])) >= (major, minor) and "dev" not in version


def audited_suggestions(log: ServerLog) -> tuple[AuditedSuggestion, ...]:
    """Check every setting that the engine proposed in its own log."""
    return tuple(_audits(log))


def _audits(log: ServerLog) -> Iterator[AuditedSuggestion]:
    ledger = log.ledger
    graphs = ledger.graph_actual_gib
    for suggestion in log.suggestions:
        value = suggestion.value
        sound: bool | None = None
        why, better = "not checked: the log lacks the figures", None
        if suggestion.purpose == "same-kv":
            sound, why = _same_cache(value, ledger)
        elif isinstance(value, (int, float)) and graphs is not None:
            twice = bool(ledger.peak_contains_estimate) and (
                ledger.graph_estimate_applied is not False
            )
            if twice:
                sound = False
                estimate = ledger.graph_estimate_gib
                extra = estimate if estimate is not None else graphs
                better = int(value + extra * BYTES_PER_GIB)
                why = (
                    f"counts graphs twice: the peak of {ledger.peak_logged_gib:g} GiB"
                    f" already contains their estimate of {extra:g} GiB, and the"
                    f" {graphs:g} GiB that they took are taken off again; {better}"
                    f" bytes ({better / BYTES_PER_GIB:.2f} GiB) would do the same"
                )
                if suggestion.purpose == "fill-device":
                    why += "; it leaves nothing for what a step takes on top"
            else:
                sound, why = _plain_audit(suggestion.purpose, float(value), ledger)
        yield AuditedSuggestion(
            flag=suggestion.flag,
            value=value,
            line=suggestion.line,
            sound=sound,
            why=why,
            better=better,
        )


def _same_cache(value: float | str, ledger: Ledger) -> tuple[bool, str]:
    """A larger share that gives the cache what the estimate took."""
    free, device = ledger.free_at_start_gib, ledger.device_gib
    if isinstance(value, (int, float)):
        if free is not None and device and value * device > free:
            wanted = f"asks for {value * device:.2f} GiB"
            return False, f"{wanted} where {free:.2f} GiB were free"
        if value > MOST_SHARE:
            return False, "leaves nothing for what is allocated after the cache"
    return True, (
        "keeps the cache as it was before the estimate was applied; it is no advice for"
        " a first start"
    )


def _plain_audit(purpose: str, value: float, ledger: Ledger) -> tuple[bool | None, str]:
    """Before 0.27 graphs are counted once; check the printed sum.

    Source: gpu_worker: requested - weights - non-torch - peak - graphs - 150 MiB.
    """
    gib = value / BYTES_PER_GIB
    parts = (
        ledger.weights_gib,
        ledger.non_torch_gib,
        ledger.peak_logged_gib,
        ledger.graph_actual_gib,
    )
    whole = ledger.requested_gib
    if purpose == "fill-device":
        whole = ledger.free_at_start_gib
    if whole is None or any(part is None for part in parts):
        return None, "not checked: the log lacks the figures"
    expected = whole - sum(part for part in parts if part is not None) - RESERVE_GIB
    if abs(expected - gib) > 0.1:
        return None, f"{gib:.2f} GiB where the printed parts give {expected:.2f} GiB"
    why = f"agrees with the printed parts ({gib:.2f} GiB)"
    if purpose == "fill-device":
        return False, why + ", but leaves 150 MiB for all that a step takes on top"
    return True, why


def ledger_rows(ledger: Ledger) -> tuple[LedgerRow, ...]:
    """The ledger as rows that sum to what was requested (or was free)."""
    rows = []
    terms: tuple[tuple[str, float | None], ...] = (
        ("weights", ledger.weights_gib),
        ("non-torch memory", ledger.non_torch_gib),
        ("activation peak", ledger.activation_peak_gib),
        (
            "graph estimate",
            ledger.graph_estimate_gib if ledger.graph_estimate_applied else None,
        ),
        ("cache", ledger.kv_gib),
    )
    if ledger.free_at_end_gib is not None:
        terms = (
            ("weights", ledger.weights_gib),
            ("cache", ledger.kv_gib),
            ("graphs", ledger.graph_actual_gib),
            ("left free", ledger.free_at_end_gib),
        )
    for name, value in terms:
        if value is not None:
            rows.append(LedgerRow(name=name, gib=value))
    if ledger.unaccounted_gib is not None:
        name = ledger.unaccounted_name or "unaccounted"
        rows.append(LedgerRow(name=f"unaccounted: {name}", gib=ledger.unaccounted_gib))
    return tuple(rows)


def inert_flags(log: ServerLog) -> tuple[InertFlag, ...]:
    """Flags of the command that do nothing under what was resolved."""
    found = {flag.flag: flag for flag in log.inert_flags}
    args, resolved = log.non_default_args, log.resolved

    def add(name: str, why: str) -> None:
        found.setdefault(name, InertFlag(flag=name, why=why))

    if resolved.get("kv_cache_memory") and "gpu_memory_utilization" in args:
        add(
            "--gpu-memory-utilization",
            f"the cache is {resolved['kv_cache_memory']}; the share is not used",
        )
    if resolved.get("enforce_eager") is True:
        for name in ("max_cudagraph_capture_size", "cudagraph_capture_sizes"):
            if name in args:
                add("--" + name.replace("_", "-"), "eager mode captures no graphs")
    ranks = resolved.get("world_size")
    if args.get("enable_expert_parallel") and ranks == 1:
        add("--enable-expert-parallel", "one rank holds all experts anyway")
    if resolved.get("frontend") == "rust":
        for name in ("disable_uvicorn_access_log", "uvicorn_log_level"):
            if name in args:
                add("--" + name.replace("_", "-"), "the Rust frontend has no uvicorn")
    asked = args.get("enable_prefix_caching")
    if asked is True and resolved.get("enable_prefix_caching") is False:
        add("--enable-prefix-caching", "the engine switched it off again")
    if args.get("async_scheduling") is True and (
        resolved.get("async_scheduling") is False
    ):
        add("--async-scheduling", "the engine switched it off again")
    return tuple(found.values())
