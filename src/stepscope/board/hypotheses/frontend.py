"""frontend: the API server is behind with taking or sending tokens."""

from stepscope.board.hypotheses import steplines
from stepscope.board.hypotheses.device import resident
from stepscope.board.hypotheses.gaps import gaps
from stepscope.board.hypotheses.sending import (
    stamped_by_engine,
    stamper,
    when_void,
)
from stepscope.board.opinion import (
    FULL_CORE_PCT,
    STARVED_PCT,
    UNMERGED,
    Hypothesis,
    Opinion,
    Rule,
    seen,
)
from stepscope.board.records import Evidence
from stepscope.board.view import CellView, core_pct
from stepscope.run.client import GAP_OK_PCT, GAP_VOID_PCT

#: A kernel resident for less of the window: the GPU waits for somebody.
_GPU_WAITS_PCT = 70.0
#: One token in ten waited for at least a whole step: more than a sound frontend shows
#: in passing (one in fifty) and near its limit (a few in a hundred).
_OFTEN_MERGED = 0.90
#: Gaps below a tenth of a step: tokens that waited and were then sent at once.
_CATCHES_UP_PCT = 1.0


def _merged_chunks(view: CellView) -> Opinion | None:
    result = view.result
    if result is None or result.chunks_per_token is None:
        return None
    chunks, gap = result.chunks_per_token, result.client_tpot_error_pct
    if chunks >= UNMERGED or view.speculative is not False:
        return None
    merged = seen(
        view,
        "chunks a token",
        chunks,
        "",
        "one step gives a sequence one token, yet chunks hold more: deltas waited in"
        " the frontend and were merged, or text was held back until a character was"
        " whole",
    )
    if gap is not None and gap > GAP_VOID_PCT:
        return Opinion(
            status="supported",
            share_pct=100 * gap / (100 + gap),
            headline="the frontend sends late",
            evidence=(
                merged,
                seen(
                    view,
                    "client TPOT over the server's own",
                    gap,
                    "%",
                    f"time lost after the {stamper(view)} stamped the token",
                ),
            ),
        )
    single = _unmerged_elsewhere(view)
    if chunks < _OFTEN_MERGED and single is not None:
        return Opinion(
            status="supported",
            headline="tokens that wait in the frontend and are merged (TPOT over whole"
            " answers does not show it)",
            evidence=(merged, single),
        )
    return Opinion(status="standing", evidence=(merged,))


def _unmerged_elsewhere(view: CellView) -> Evidence | None:
    """Return the cell that excludes what merges always: text, or a stream interval."""
    for other in view.analysis.cells:
        chunks = other.chunks_per_token
        same = other.configuration == view.configuration and other.valid
        if same and chunks is not None and chunks >= UNMERGED and other.n_requests:
            return Evidence(
                source=other.name,
                quantity="chunks a token",
                value=float(f"{chunks:.4g}"),
                unit="",
                reasoning="the same server and answers, unmerged: neither text that is"
                " held back nor a stream interval merges tokens here",
            )
    return None


def _at_its_limit(view: CellView) -> tuple[Evidence, ...]:
    """Return a full core of the API server beside a GPU that waits.

    That tokens are sent on time then acquits nobody: requests may come in late.
    """
    telemetry, bound = view.telemetry, resident(view)
    if telemetry is None or bound is None or bound[0] >= _GPU_WAITS_PCT:
        return ()
    cpu = core_pct(telemetry, "api-server")
    if cpu is None or cpu < FULL_CORE_PCT:
        return ()
    why = "near one core while the GPU waits: what is sent on time may come in late"
    return (seen(view, "CPU of the API server", cpu, "% of a core", why), bound[1])


def _acquitted(view: CellView, share_pct: float, *evidence: Evidence) -> Opinion:
    against = _at_its_limit(view)
    return Opinion(
        status="standing" if against else "ruled-out",
        share_pct=None if against else share_pct,
        evidence=(*evidence, *against),
    )


def _usual_gap(view: CellView) -> Opinion | None:
    """Weigh the usual gap: a frontend that is behind merges, bunches or falls behind.

    The engine does not wait for the frontend. What the frontend holds up therefore
    comes merged, or close together once it catches up, or later and later; a long gap
    that nothing catches up is one that the engine made.
    """
    result = view.result
    if result is None or view.speculative is not False or view.findings("stall"):
        return None
    step, chunks = result.engine_step_ms, result.chunks_per_token
    gap, short = result.client_tpot_error_pct, view.short_gap_pct()
    if step is None or chunks is None or gap is None or short is None:
        return None
    clean = abs(gap) <= GAP_OK_PCT and chunks >= UNMERGED and short <= _CATCHES_UP_PCT
    split = gaps(view) if clean else None
    if split is None:
        return None
    behind = 100 * (split.usual_ms - step) / step
    if abs(behind) > GAP_VOID_PCT:
        return None
    item = seen(
        view,
        "usual gap between tokens over the engine's step period",
        behind,
        "%",
        f"median of the gaps in which nobody's first token came, {split.usual_ms:.4g}"
        f" ms; {short:.2g} % of gaps are below a tenth of a step, so nothing was"
        " caught up: longer gaps are the engine's",
    )
    late = max(behind, 0.0) + max(gap, 0.0) + 100 * max(1 - chunks, 0.0) + short
    return _acquitted(view, late, item)


def _starved(view: CellView) -> Opinion | None:
    telemetry = view.result.telemetry if view.result is not None else None
    if telemetry is None:
        return None
    waited = telemetry.busiest_thread_waited_pct.get("api-server")
    if waited is None or waited < STARVED_PCT:
        return None
    item = seen(
        view,
        "API server's busiest thread, ready and without a core",
        waited,
        "% of the window",
        "something else held its processors; alone it does not say that tokens waited",
    )
    return Opinion(status="standing", evidence=(item,))


def _nothing_lost(view: CellView) -> Opinion | None:
    result = view.result
    if result is None or view.speculative is not False:
        return None
    step, server = result.engine_step_ms, result.server_tpot_ms
    gap, chunks = result.client_tpot_error_pct, result.chunks_per_token
    if step is None or server is None or gap is None or chunks is None:
        return None
    behind = 100 * (server - step) / step
    item = seen(
        view,
        "server TPOT over the engine's step period",
        behind,
        "%",
        f"the {stamper(view)}'s stamps against the engine's iterations; steps that hold"
        " prefill count in TPOT and may be left out of the period",
    )
    clean = abs(gap) <= GAP_OK_PCT and chunks >= UNMERGED
    if abs(behind) <= GAP_VOID_PCT and clean:
        return _acquitted(
            view,
            max(behind, 0.0) + max(gap, 0.0),
            item,
            seen(view, "client TPOT over the server's own", gap, "%", "sent on time"),
            seen(view, "chunks a token", chunks, "", "nothing waited to be merged"),
        )
    return Opinion(status="standing", evidence=(item,))


def _busy_core(view: CellView) -> Opinion | None:
    telemetry = view.telemetry
    if telemetry is None:
        return None
    # Several API servers may take more than a core together, and none a full one.
    cpu = core_pct(telemetry, "api-server")
    if cpu is None or cpu < FULL_CORE_PCT:
        return None
    return Opinion(
        status="standing",
        evidence=(
            seen(
                view,
                "CPU of the API server",
                cpu,
                "% of a core",
                "near one core, which is what one Python process can use; alone it"
                " does not say that tokens waited",
            ),
        ),
    )


def _sending_side(view: CellView) -> Opinion | None:
    result = view.result
    if result is None or result.engine_step_ms is not None:
        return None
    gap, chunks = result.client_tpot_error_pct, result.chunks_per_token
    if gap is None or chunks is None or abs(gap) > GAP_OK_PCT or chunks < UNMERGED:
        return None
    if stamped_by_engine(view) and view.speculative is False:
        why = (
            "the engine itself stamps its tokens, so that all of the frontend lies"
            " between the two; what delays every token of an answer alike shows in TTFT"
        )
        item = seen(view, "client TPOT over the server's own", gap, "%", why)
        single = seen(view, "chunks a token", chunks, "", "none waited to be merged")
        return _acquitted(view, max(gap, 0.0), item, single)
    return Opinion(
        status="standing",
        evidence=(
            seen(
                view,
                "chunks a token",
                chunks,
                "",
                "the sending side keeps up; whether the frontend takes tokens late"
                " from the engine is not visible in its own stamps",
            ),
        ),
    )


def _would_decide(view: CellView) -> str:
    result = view.result
    chunks = result.chunks_per_token if result is not None else None
    if chunks is not None and chunks < UNMERGED:
        return (
            "Whether tokens merge because the frontend is behind, or because text is"
            " held back: the same server at concurrency 1, where only the latter"
            " merges, and with the API server on cores of its own (cpus; stepscope"
            " run)."
        )
    if result is not None and None not in (
        result.engine_step_ms,
        result.server_tpot_ms,
        result.client_tpot_error_pct,
    ):
        again = "Repeat it: one stall is in it. " if view.findings("stall") else ""
        return (
            f"{again}Whether tokens were caught up after the long gaps (none merged,"
            " none close together) and whether prompts were in these: the same cell"
            " with prompts of a few tokens, in one session (stepscope run, then"
            " stepscope compare), and the API server on cores of its own (cpus)."
        )
    if view.run.engine == "vllm":
        return (
            "The engine's step period beside the frontend's stamps:"
            f" {steplines.wanted(view)}."
        )
    return (
        "Chunks a token, the server's own TPOT and the engine's step period for the"
        " same cell (stepscope run samples all that the engine exposes)."
    )


FRONTEND = Hypothesis(
    id="frontend",
    claim="The API server is behind with taking tokens or with sending them.",
    rules=(
        Rule(
            name="merged-chunks",
            measurement="chunks a token, client TPOT against server TPOT",
            threshold=f"supported: below {UNMERGED} without speculative decoding, and"
            f" a gap above {GAP_VOID_PCT:.0f} %, or below {_OFTEN_MERGED} while"
            " another cell of the server is unmerged; merging alone means near its"
            " limit, or text that is held back until a character is whole",
            blind="servers that group tokens on purpose (stream interval)",
            test=_merged_chunks,
        ),
        Rule(
            name="nothing-lost",
            measurement="engine step period, server TPOT, client TPOT, chunks a token",
            threshold=f"ruled out: server TPOT within {GAP_VOID_PCT:.0f} % of the"
            f" period, client within {GAP_OK_PCT:.0f} %, chunks at least {UNMERGED},"
            f" and no API server at {FULL_CORE_PCT:.0f} % of a core while the GPU"
            " waits",
            blind="time to first token",
            test=_nothing_lost,
        ),
        Rule(
            name="usual-gap",
            measurement="median gap without a prompt in it, engine step period,"
            " client TPOT against server TPOT, chunks a token",
            threshold=f"ruled out: median gap within {GAP_VOID_PCT:.0f} % of the"
            f" period, client within {GAP_OK_PCT:.0f} %, chunks at least {UNMERGED},"
            f" at most {_CATCHES_UP_PCT:.0f} % of gaps below a tenth of a step, and no"
            " stall (the engine does not wait for the frontend, so what it holds up"
            " comes merged or close together)",
            blind="time to first token",
            test=_usual_gap,
        ),
        Rule(
            name="starved",
            measurement="scheduler statistics of the API server's busiest thread",
            threshold=f"bears on it from {STARVED_PCT:.0f} % of the window",
            blind="whether anything waited for it",
            test=_starved,
        ),
        Rule(
            name="busy-core",
            measurement="CPU of the API server's process",
            threshold=f"bears on it from {FULL_CORE_PCT:.0f} % of a core",
            blind="whether anything waited for it",
            test=_busy_core,
        ),
        Rule(
            name="sending-side",
            measurement="client TPOT against server TPOT, chunks a token",
            threshold=f"ruled out, where the engine stamps its tokens (vLLM): client"
            f" within {GAP_OK_PCT:.0f} %, chunks at least {UNMERGED}, no speculative"
            f" decoding, and no API server at {FULL_CORE_PCT:.0f} % of a core while the"
            " GPU waits; where the frontend does, they bear on it",
            blind="time to first token; tokens taken late by a frontend that stamps",
            test=_sending_side,
        ),
    ),
    would_decide=_would_decide,
    share_of="TPOT",
    when_void=when_void,
)
