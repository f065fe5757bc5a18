"""client: the load client, not the server, sets the times that it reports."""

from stepscope.board.hypotheses.sending import reader, stamper, when_void
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

#: Share of gaps below a tenth of the step that convicts a reader; a sound reader of
#: unmerged chunks shows next to none, since two steps can not be that close.
_BUNCHED_PCT = 5.0
#: Where TPOT is the server's own, late reads that hold back sends by less change no
#: figure by more than runs differ by.
_HELD_BACK_PCT = 1.0


def _gap(view: CellView) -> Opinion | None:
    result = view.result
    if result is None or result.client_tpot_error_pct is None:
        return None
    gap, mine = result.client_tpot_error_pct, reader(view)
    if abs(gap) <= GAP_OK_PCT:
        if mine is not None and mine.limited:
            return Opinion(status="standing", evidence=(_agreement_of_late(view, gap),))
        return Opinion(
            status="ruled-out",
            share_pct=max(gap, 0.0),
            evidence=(
                seen(
                    view,
                    "client TPOT over the server's own",
                    gap,
                    "%",
                    "both stamp the same tokens and agree, so the client did not"
                    " lengthen TPOT; says nothing of sends that came late",
                ),
            ),
        )
    evidence = [
        seen(
            view,
            "client TPOT over the server's own",
            gap,
            "%",
            f"lost between the {stamper(view)}'s stamp and the client's; the gap alone"
            " does not say whether frontend or client is late"
            if gap > 0
            else "no token arrives before the server has it: a clock is wrong, or one"
            " of the two stamps late or counts requests that the other does not",
        )
    ]
    if gap > 0 and result.chunks_per_token is not None:
        evidence.append(
            seen(
                view,
                "chunks a token",
                result.chunks_per_token,
                "",
                f"below {UNMERGED}: the frontend sends late and merges"
                if result.chunks_per_token < UNMERGED
                else f"at least {UNMERGED}: next to none were merged on their way",
            )
        )
    return Opinion(status="standing", evidence=tuple(evidence))


def _agreement_of_late(view: CellView, gap: float) -> Evidence:
    return seen(
        view,
        "client TPOT over the server's own",
        gap,
        "%",
        "both stamp the same tokens and agree, so TPOT is the server's; a client that"
        " could not keep up also sends late, and then throughput is not",
    )


def _frontend_is_full(view: CellView) -> bool:
    """Whether the API server had no time to send: its tokens leave close together."""
    telemetry = view.result.telemetry if view.result is not None else None
    if telemetry is None:
        return False
    cpu = core_pct(telemetry, "api-server") or 0.0
    waited = telemetry.busiest_thread_waited_pct.get("api-server", 0.0)
    return cpu >= FULL_CORE_PCT or waited >= STARVED_PCT


def _late_reader(view: CellView) -> Opinion | None:
    result = view.result
    if result is None or result.client_tpot_error_pct is None:
        return None
    chunks, gap = result.chunks_per_token, result.client_tpot_error_pct
    mine = reader(view)
    if mine is not None and mine.kernel:
        # No late read is in the kernel's stamps: what bunches there was sent bunched.
        return None
    if chunks is None or chunks < UNMERGED or gap <= GAP_VOID_PCT:
        return None
    bunched = view.short_gap_pct()
    if bunched is None or bunched < _BUNCHED_PCT or _frontend_is_full(view):
        return None
    return Opinion(
        status="supported",
        share_pct=100 * gap / (100 + gap),
        headline="the client reads late",
        evidence=(
            seen(
                view,
                "chunks a token",
                chunks,
                "",
                "the server sent its tokens one by one, so it did not lag",
            ),
            seen(
                view,
                "gaps below a tenth of the step",
                bunched,
                "%",
                "chunks that left a step apart share a stamp: the client woke late;"
                " a network that holds packets back would look the same",
            ),
        ),
    )


def _own_health(view: CellView) -> Opinion | None:
    health = view.cell.client if view.cell is not None else None
    if health is None or view.result is None:
        return None
    tpot = view.result.server_tpot_ms or view.result.tpot_ms.mean
    delay = health.delay_ms.mean if health.delay_ms is not None else None
    if health.stamps != "kernel" or delay is None or not tpot:
        return None
    # The arrival stamps are the kernel's, so what the process adds is measured.
    sure = (health.unstamped_pct or 0.0) <= 1.0
    item = seen(
        view,
        "delay between the kernel's stamp and the client's read",
        delay,
        "ms",
        f"mean over all reads, beside a TPOT of {tpot:.3g} ms; arrivals are stamped"
        " by the kernel, so it is not in the latencies but it holds back sends",
    )
    if health.verdict == "limited" and delay > tpot * GAP_VOID_PCT / 100:
        said = seen(
            view,
            "client's own verdict",
            health.verdict,
            "",
            "; ".join(health.reasons) or "no reason recorded",
        )
        held = _held_back(view, delay)
        if held is not None and held[0] < _HELD_BACK_PCT:
            return Opinion(status="standing", evidence=(item, said, held[1]))
        return Opinion(
            status="supported",
            share_pct=None,
            headline="the client can not keep up"
            if held is None
            else "the client sends late (TPOT is the server's)",
            evidence=(item, said) if held is None else (item, said, held[1]),
        )
    if health.verdict == "ok" and sure and delay <= tpot * GAP_OK_PCT / 100:
        return Opinion(
            status="ruled-out", share_pct=100 * delay / tpot, evidence=(item,)
        )
    return Opinion(status="standing", evidence=(item,))


def _held_back(view: CellView, delay_ms: float) -> tuple[float, Evidence] | None:
    """Return what late reading holds back of a request's life, percent.

    Only where TPOT is the server's own; elsewhere more than sends is late. A slot sends
    its next request once it has read the end of the last.
    """
    result = view.result
    gap = None if result is None else result.client_tpot_error_pct
    if result is None or gap is None or abs(gap) > GAP_OK_PCT:
        return None
    life = result.e2el_ms.mean
    if not life:
        return None
    held = 100 * delay_ms / life
    why = (
        f"a read's mean delay over a request's {life:.4g} ms: by so much a slot sends"
        " its next request late"
    )
    return held, seen(view, "sends held back", held, "% of a request's life", why)


def _would_decide(view: CellView) -> str:
    if view.result is not None and view.result.server_tpot_ms is None:
        return (
            "The server's own TPOT beside the client's: scrape /metrics before and"
            " after the cell, with a client that stamps arrivals in the kernel"
            " (stepscope run does both)."
        )
    return (
        "The same cell from a client with kernel stamps and more processes"
        " (stepscope run, or stepscope bench against the running server)."
    )


CLIENT = Hypothesis(
    id="client",
    claim="The load client, not the server, sets the times it reports.",
    rules=(
        Rule(
            name="late-reader",
            measurement="client TPOT, server TPOT, chunks a token, chunk arrivals",
            threshold=f"supported: gap above {GAP_VOID_PCT:.0f} %, chunks a token at"
            f" least {UNMERGED}, {_BUNCHED_PCT:.0f} % of gaps below a tenth of a step"
            " (two steps can not be that close), stamps that are not the kernel's, and"
            f" an API server below {FULL_CORE_PCT:.0f} % of a core that never lacked"
            " one",
            blind="a network that holds packets back",
            test=_late_reader,
        ),
        Rule(
            name="own-health",
            measurement="kernel stamp against read, of every chunk",
            threshold=f"supported: mean delay above {GAP_VOID_PCT:.0f} % of TPOT and"
            f" verdict limited, and, where TPOT is the server's own, sends held back by"
            f" {_HELD_BACK_PCT:.0f} % of a request's life; ruled out: within"
            f" {GAP_OK_PCT:.0f} % and verdict ok",
            blind="a network between server and client",
            test=_own_health,
        ),
        Rule(
            name="gap",
            measurement="client TPOT against the server's own",
            threshold=f"ruled out: within {GAP_OK_PCT:.0f} % of a client that says it"
            " kept up; a larger gap alone decides nothing",
            blind="sends that came late; TTFT",
            test=_gap,
        ),
    ),
    would_decide=_would_decide,
    share_of="TPOT",
    when_void=when_void,
)
