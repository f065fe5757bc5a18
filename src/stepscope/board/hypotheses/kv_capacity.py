"""kv-capacity: too little KV cache; requests wait or are computed again."""

import numpy as np

from stepscope.analysis.boot.records import BootResult
from stepscope.board.opinion import Hypothesis, Opinion, Rule, seen
from stepscope.board.records import Evidence
from stepscope.board.view import CellView

_PREEMPTIONS = ("vllm:num_preemptions_total",)
_USAGE = (
    "vllm:kv_cache_usage_perc",
    "vllm:gpu_cache_usage_perc",
    "sglang:token_usage",
)
_WAITING = ("vllm:num_requests_waiting", "sglang:num_queue_reqs")
_FULL_PCT = 95.0
_ROOM_PCT = 80.0
#: Preemptions over requests: fewer are computed again than can lengthen the others.
_MANY_PCT = 1.0
#: Quantity of the evidence that a failed start gives.
BOOT_VERDICT = "boot verdict"
_BOOT_CAUSES = ("no-kv-memory", "kv-smaller-than-context")


def _preemptions(view: CellView) -> Opinion | None:
    count = view.counter_delta(*_PREEMPTIONS)
    if count is None:
        return None
    item = seen(
        view,
        "preemptions during the cell",
        count,
        "",
        "a preempted request loses its cache and is computed again",
    )
    n_requests = 0 if view.result is None else view.result.n_requests
    if count > 0 and 100 * count >= _MANY_PCT * n_requests:
        return Opinion(
            status="supported",
            evidence=(item,),
            headline="a KV cache that ran out",
        )
    # No preemption alone leaves requests that waited to be let in.
    return Opinion(status="standing", evidence=(item,))


def _usage(view: CellView) -> Opinion | None:
    usage = view.gauge(*_USAGE)
    if len(usage) < 3:
        return None
    peak = 100 * max(usage)
    # A wave that was just sent waits for its prefill, whatever room there is: only
    # who waits while the cache is full counts.
    waiting = [
        n for used, n in view.gauges(_USAGE, _WAITING) if 100 * used >= _FULL_PCT
    ]
    item = seen(
        view,
        "highest KV usage in the window",
        peak,
        "%",
        f"over {len(usage)} scrapes; a peak between two is not seen",
    )
    if peak >= _FULL_PCT and waiting and max(waiting) > 0:
        return Opinion(
            status="supported",
            headline="a full KV cache while requests wait",
            evidence=(
                item,
                seen(
                    view,
                    "most requests waiting",
                    float(max(waiting)),
                    "",
                    "sent and not yet let in, while the cache was full",
                ),
            ),
        )
    if peak < _ROOM_PCT and view.counter_delta(*_PREEMPTIONS):
        # It ran out between two scrapes.
        return Opinion(status="standing", evidence=(item,), contradicts=True)
    if peak < _ROOM_PCT:
        queue = _queue(view)
        return Opinion(status="ruled-out", share_pct=0.0, evidence=(item, *queue))
    return Opinion(status="standing", evidence=(item,))


def _queue(view: CellView) -> tuple[Evidence, ...]:
    """Return the requests that wait though there is room, where there are any."""
    waiting = view.gauge(*_WAITING)
    if not waiting or float(np.median(waiting)) < 1:
        return ()
    why = (
        "median over scrapes: they wait though the cache has room, so for a place in"
        " the batch (--max-num-seqs) or for its tokens (--max-num-batched-tokens)"
    )
    return (seen(view, "requests waiting", float(np.median(waiting)), "", why),)


def _fuller_than_asked(view: CellView) -> bool:
    """Whether the server itself says that the cache was full, or ran out.

    Then what a load of this shape can hold is not what was held.
    """
    usage = view.gauge(*_USAGE)
    full = bool(usage) and 100 * max(usage) >= _ROOM_PCT
    return full or bool(view.counter_delta(*_PREEMPTIONS))


def _demand(view: CellView) -> Opinion | None:
    log = view.launch.log if view.launch is not None else None
    workload = view.cell.workload if view.cell is not None else None
    if log is None or not log.ledger.kv_tokens or workload is None:
        return None
    tokens_in, tokens_out = workload.input_tokens, workload.output_tokens
    if workload.concurrency is None or tokens_in is None or tokens_out is None:
        return None
    per_rank = -(-workload.concurrency // view.run.layout.dp)
    need = per_rank * (tokens_in + tokens_out)
    share = 100 * need / log.ledger.kv_tokens
    item = seen(
        view,
        "tokens that all requests in flight can hold, of the KV cache",
        share,
        "%",
        f"{need} of {log.ledger.kv_tokens} tokens of one rank; models with several"
        " kinds of cache pay a reserve for each request beside it",
    )
    if share < _ROOM_PCT and not _fuller_than_asked(view):
        return Opinion(status="ruled-out", share_pct=0.0, evidence=(item,))
    return Opinion(status="standing", evidence=(item,))


def failed_boot(view: CellView, causes: tuple[str, ...]) -> BootResult | None:
    """Return the boot of the view's launch where it failed for one of these causes."""
    name = view.launch.name if view.launch is not None else None
    return next(
        (
            boot
            for boot in view.analysis.boot
            if boot.launch == name
            and not boot.ready
            and boot.verdict.get("cause") in causes
        ),
        None,
    )


def boot_cause(view: CellView, causes: tuple[str, ...]) -> Opinion | None:
    """Support a hypothesis with the verdict on a boot that failed for it."""
    boot = failed_boot(view, causes)
    if boot is None:
        return None
    cause = str(boot.verdict["cause"])
    why = str(boot.verdict.get("why") or "see the boot section")
    return Opinion(
        status="supported",
        headline=f"the server did not boot ({cause})",
        evidence=(seen(view, BOOT_VERDICT, cause, "", why),),
        no_share="No share of a step: it did not boot, and no step was measured.",
    )


def _boot(view: CellView) -> Opinion | None:
    return boot_cause(view, _BOOT_CAUSES)


def _would_decide(view: CellView) -> str:
    if view.run.engine in ("vllm", "sglang"):
        return (
            "KV usage, waiting requests and preemptions scraped during the cell, and"
            " the server log's KV size (stepscope run keeps all of these)."
        )
    return (
        "The engine's KV size and its usage during the cell (stepscope run keeps the"
        " server log and scrapes /metrics; this engine may expose neither)."
    )


KV_CAPACITY = Hypothesis(
    id="kv-capacity",
    claim="The KV cache is too small: requests wait or are computed again.",
    rules=(
        Rule(
            name="usage",
            measurement="KV usage and waiting requests, scraped inside the cell span",
            threshold=f"supported: {_FULL_PCT:.0f} % full while requests wait; ruled"
            f" out: below {_ROOM_PCT:.0f} % in three scrapes or more, and nothing"
            " preempted",
            blind="peaks between scrapes",
            test=_usage,
        ),
        Rule(
            name="preemptions",
            measurement="preemption counter before and after the cell",
            threshold=f"supported: at least {_MANY_PCT:.0f} % of the requests; fewer,"
            " or none, decide nothing alone",
            blind="requests that wait to be let in",
            test=_preemptions,
        ),
        Rule(
            name="demand",
            measurement="tokens of all requests in flight against the KV size",
            threshold=f"ruled out: below {_ROOM_PCT:.0f} %, unless the server was seen"
            " fuller or preempted",
            blind="reserves of models with several kinds of cache",
            test=_demand,
        ),
        Rule(
            name="boot",
            measurement="the verdict on a boot that failed",
            threshold="supported: the cause is " + " or ".join(_BOOT_CAUSES),
            blind="what the step would have cost",
            test=_boot,
            of_cell=False,
        ),
    ),
    would_decide=_would_decide,
)
