"""Waiting until GPUs have room: another process must give its memory back first."""

from stepscope.recipe.records import Configuration
from stepscope.run.serverlog import ServerLog
from stepscope.session.context import Context
from stepscope.session.phases.preflight import visible_gpus
from stepscope.units import NS_PER_S, gib

_WAIT_NS = 300 * NS_PER_S
_POLL_NS = NS_PER_S
#: Memory that moves by less, look after look, has settled.
_SETTLED_BYTES = 256 << 20
_SETTLED_LOOKS = 10
#: What engines take of a GPU where neither recipe nor log says: the highest default.
_DEFAULT_SHARE = 0.92


def wait_for_room(
    context: Context, configuration: Configuration, log: ServerLog
) -> str | None:
    """Wait until the GPUs have room for a server and are quiet.

    Args:
        context: The session.
        configuration: What is to be started.
        log: Of the start that failed; it may say what share of the GPU was asked for.

    Returns:
        Why they are not; None: they are.
    """
    gpus, clock = context.site.gpus, context.clock
    if gpus is None:
        return "no GPU can be seen, so nobody knows when its memory is free"
    share = _asked_share(configuration, log)
    layout = context.engine.layout(configuration.flags)
    n_gpus = max(1, layout.tp * layout.dp * layout.pp)
    visible = visible_gpus(configuration)
    if visible is None:
        return "CUDA_VISIBLE_DEVICES does not say which GPUs it uses by their indices"
    known = range(len(gpus.identities))
    mine = [i for i in visible or known if i in known][:n_gpus]
    if not mine:
        return "none of the GPUs that it uses can be seen"
    totals = [gpus.identities[i].memory_bytes for i in mine]
    until = clock.now_ns() + _WAIT_NS
    context.observer.phase("wait", "for GPU memory that another process holds")
    calm, last = 0, [gpus.used_bytes()[i] for i in mine]
    while clock.now_ns() < until:
        if context.halt.asked.is_set():
            return "we were asked to stop"
        clock.sleep_until(clock.now_ns() + _POLL_NS)
        now = [gpus.used_bytes()[i] for i in mine]
        calm = calm + 1 if _settled(last, now) else 0
        last = now
        if calm >= _SETTLED_LOOKS and _room(now, totals, share):
            return None
    held = ", ".join("?" if b is None else f"{gib(b):.1f} GiB" for b in last)
    return f"after {_WAIT_NS // NS_PER_S} s another process still holds {held}"


def _asked_share(configuration: Configuration, log: ServerLog) -> float:
    for name in ("gpu-memory-utilization", "mem-fraction-static"):
        value = configuration.flags.get(name)
        if isinstance(value, int | float) and not isinstance(value, bool):
            return float(value)
    return log.ledger.utilization or _DEFAULT_SHARE


def _settled(last: list[int | None], now: list[int | None]) -> bool:
    return all(
        a is not None and b is not None and abs(a - b) < _SETTLED_BYTES
        for a, b in zip(last, now, strict=True)
    )


def _room(now: list[int | None], totals: list[int | None], share: float) -> bool:
    return all(
        used is not None and total is not None and total - used >= share * total
        for used, total in zip(now, totals, strict=True)
    )
