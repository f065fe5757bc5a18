"""What it means that a client's TPOT is not the server's own."""

import ipaddress
from collections.abc import Sequence

from stepscope.findings import Finding
from stepscope.load.server_tpot import RESTARTED, Decoded, ServerTpot
from stepscope.load.wire import parse_address
from stepscope.run.client import (
    GAP_OK_PCT,
    GAP_VOID_PCT,
    ClientHealth,
    Delay,
    most_added_pct,
    read_at_once,
    stamped_by_kernel,
)

#: By the prefix of an engine's metrics: how its frontend gets more processes.
_MORE_SENDERS = {
    "vllm": "more API server processes (--api-server-count of vllm serve)",
    "sglang": "more tokenizer processes (--tokenizer-worker-num of SGLang)",
}
_ITS_CORES = "cores of its own"


def tpot_gap(
    own: ServerTpot, mine: Decoded, health: ClientHealth, base_urls: Sequence[str]
) -> tuple[Finding, ...]:
    """Return the finding about a gap above 3 % either way, or that none can be known.

    Nothing is said of a server that has no such metric. A gap alone convicts nobody:
    the client's own stamps say whether it can be its doing.

    Args:
        own: The server's TPOT beside the client's.
        mine: What the client saw.
        health: What the client says of itself.
        base_urls: The servers; on this machine no network lies between.
    """
    gap, server_ms = own.tpot_error_pct, own.tpot_ms
    if own.not_held is not None:
        return _not_held(own)
    if gap is None or server_ms is None or abs(gap) <= GAP_OK_PCT:
        return ()
    side = "above" if gap > 0 else "below"
    said = (
        f"the client's mean TPOT is {abs(gap):.1f} % {side} the server's own"
        f" ({own.client_tpot_ms:.2f} against {server_ms:.2f} ms)"
    )
    if gap < 0:
        return (_below(said, health),)
    added = most_added_pct(health, server_ms, mine.n_later_each or 1.0)
    if (added is not None and added <= GAP_OK_PCT) or read_at_once(health, server_ms):
        return (_sent_late(said, own, health, base_urls),)
    if health.verdict == "limited":
        return (_limited(said, health, gap),)
    return (_somewhere(said, health, gap),)


def _limited(said: str, health: ClientHealth, gap: float) -> Finding:
    return Finding(
        code="client-bound",
        severity="warning",
        message=f"{said}, and the client says that it was limited:"
        f" {'; '.join(health.reasons)}",
        hint="Give the client cores of its own or more processes (--processes), and"
        " repeat.",
        voids=gap > GAP_VOID_PCT,
    )


def _sent_late(
    said: str, own: ServerTpot, health: ClientHealth, base_urls: Sequence[str]
) -> Finding:
    delay, engine = health.delay_ms, (own.metric or "").partition(":")[0]
    assert delay is not None  # or it would not be acquitted
    between = "a proxy" if all(map(_is_here, base_urls)) else "the network or a proxy"
    senders = _MORE_SENDERS.get(engine)
    give = _ITS_CORES if senders is None else f"{senders} or {_ITS_CORES}"
    return Finding(
        code="frontend-bound",
        severity="warning",
        message=f"{said}: that was lost between the server's stamp of a token and the"
        " kernel's stamp of its arrival here, which the client read"
        f" {_after(delay)}: not by the client but by the server's sending, or by"
        f" {between} between",
        hint="This TPOT is what a client gets, not what the engine does. Give the"
        f" server {give}, and repeat: where the gap closes, it was its sending.",
    )


def _somewhere(said: str, health: ClientHealth, gap: float) -> Finding:
    delay = health.delay_ms
    why = "arrivals are not stamped by the kernel"
    if stamped_by_kernel(health):
        why = "the client does not know its delay"
        if delay is not None:
            why = f"the client read {_after(delay)}"
    return Finding(
        code="client-bound",
        severity="warning",
        message=f"{said}: that was lost after the server had the token, and the gap"
        f" alone does not say whether in its sending, between, or here ({why})",
        hint="Repeat with more client processes (--processes) on cores of their own:"
        " where the gap closes it was the client, where it stays it was not.",
        voids=gap > GAP_VOID_PCT,
    )


def _after(delay: Delay) -> str:
    mean, most = (
        f"{x:.2g}" if x < 100 else f"{x:.0f}" for x in (delay.mean, delay.max)
    )
    return f"{mean} ms later on average and {most} ms at most"


def _below(said: str, health: ClientHealth) -> Finding:
    each = health.tokens_per_chunk_mean
    many = "" if each is None else f"; {each:.2f} tokens came to a chunk"
    return Finding(
        code="tpot-below-server",
        severity="warning",
        message=f"{said}, and no token is here before the server has it: the first"
        " content came late or with tokens that followed it (many answers that begin"
        f" at once, a frontend that lags, or a proxy that holds the stream back{many}),"
        " so that part of TPOT stands in TTFT; or one of the two counts or stamps"
        " wrongly",
        hint="Go by E2EL, which holds all of it, and repeat with longer answers.",
    )


def _not_held(own: ServerTpot) -> tuple[Finding, ...]:
    why = f"the server's own TPOT is not held against the client's: {own.not_held}"
    if own.not_held == RESTARTED:
        return (
            Finding(
                code="server-restarted",
                severity="warning",
                message=why,
                hint="Repeat on one server.",
            ),
        )
    if own.tpot_ms is None:
        return ()
    return (
        Finding(
            code="server-tpot-not-held",
            severity="info",
            message=why,
            hint="Repeat with nothing else on the server and one answer a request, and"
            " name each server behind an address (--base-url, several).",
        ),
    )


def _is_here(base_url: str) -> bool:
    """Return whether a server's address is one of this machine alone."""
    address = parse_address(base_url)
    if address.socket_path is not None or address.host == "localhost":
        return True
    try:
        return ipaddress.ip_address(address.host).is_loopback
    except ValueError:
        return False
