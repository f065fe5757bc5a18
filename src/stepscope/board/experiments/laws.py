"""What a moved or an unmoved step says of causes: a law for each change.

With T the step on the lighter and H on the heavier side:

- **removal**: the lighter side has nothing of the cause. Its share of H is 1 - T/H.
- **scaling**: the cause's work divides evenly over k workers. From k to fewer m it
  grows by k/m, so H - T = W (1/m - 1/k): W/m of H, W/k of T.
- **unaffected**: a cause that the change leaves alone takes the same time on both
  sides, so at most T of H.
- **overlap**: the lighter side hides the cause behind the device, so H - T is the
  smaller of the two.
"""

from collections.abc import Callable
from dataclasses import dataclass

from stepscope.board.claims import number
from stepscope.board.experiments.pairs import Pair, Row
from stepscope.board.hypotheses.device import resident
from stepscope.board.opinion import AT_LEAST_PCT, AT_MOST_PCT, Opinion, seen
from stepscope.board.records import Evidence
from stepscope.board.timelines import traced
from stepscope.board.view import CellView

_ROLES = ("server", "engine-core", "worker", "api-server")


@dataclass(frozen=True, slots=True)
class Case:
    """One side of a pair at one workload point, as a rule sees it."""

    view: CellView
    pair: Pair
    row: Row

    @property
    def heavy(self) -> bool:
        """Whether the cell is of the heavier side."""
        return self.view.configuration == self.pair.heavy

    def evidence(self, quantity: str, value: float | None, why: str) -> Evidence:
        """Return evidence that carries the figures of both sides."""
        effect, pair = self.row.effect, self.pair
        text = (
            f"{pair.change.title}: TPOT {number(effect.light_ms)} ms ({pair.light})"
            f" against {number(effect.heavy_ms)} ms ({pair.heavy}), {effect.n_light}"
            f" and {effect.n_heavy} measured, {effect.why}; {why}"
        )
        return seen(self.view, quantity, value, "% of the step", text)


Law = Callable[[Case], Opinion | None]


def _pct(part: float) -> float:
    return min(max(100 * part, 0.0), 100.0)


def _gone(ratio: float) -> float:
    """Return the share of the heavier step that the lighter one lacks, percent."""
    return _pct(1 - 1 / ratio)


def _stands(case: Case, quantity: str, share: float | None, why: str) -> Opinion:
    return Opinion(status="standing", evidence=(case.evidence(quantity, share, why),))


def _out(case: Case, quantity: str, share: float, why: str) -> Opinion:
    """Rule out below ``AT_MOST_PCT``; otherwise say what was seen."""
    item = case.evidence(quantity, share, f"at most, {why}")
    if share < AT_MOST_PCT:
        return Opinion(status="ruled-out", share_pct=share, evidence=(item,))
    return Opinion(status="standing", evidence=(item,))


def launching(case: Case) -> Opinion | None:
    """Removal: graphs take away the launching of single kernels."""
    effect = case.row.effect
    if case.view.has_gpu is False:
        return None
    if effect.moved in ("unchanged", "shorter"):
        why = "launching one by one adds no more than that, so the device hides it"
        return _out(case, "step that eager adds", _gone(effect.high), why)
    if not case.heavy:
        why = "what graphs save here; it says nothing of what is left of the step"
        more = 100 * (effect.ratio - 1)
        return _stands(case, "step that eager would add", more, why)
    return _launched_singly(case)


def _launched_singly(case: Case) -> Opinion:
    """Return what a longer eager step says of the eager side."""
    quantity, share = "step that graphs take away", _gone(case.row.effect.low)
    also = f" and of host work that {case.pair.also} saves" if case.pair.also else ""
    resident = _resident(case.view)
    if resident is None:
        why = f"of launching{also}, or of longer kernels: nothing says how idle it was"
        return _stands(case, quantity, share, why)
    bound, told = resident
    why = f"the share of launching{also} together; {told}"
    if bound > AT_MOST_PCT:
        why += ": longer kernels may be a part of it"
        return _stands(case, quantity, share, why)
    by_period = _by_period(case)
    item = case.evidence(quantity, share, why)
    if share < AT_LEAST_PCT or (by_period or share) < AT_LEAST_PCT:
        return Opinion(status="standing", share_pct=share, evidence=(item,))
    head = "launching kernels one by one"
    head += " and uncompiled host work, together," if also else ""
    core = _busy_core(case.view)
    evidence = (item,) if core is None else (item, core)
    return Opinion(
        status="supported", share_pct=share, headline=head, evidence=evidence
    )


def _resident(view: CellView) -> tuple[float, str] | None:
    """Return the most of the step in which the device can have worked, percent."""
    step = traced(view)
    if step is not None and step.untraced_step_ms:
        ms = max(rank.compute_ms + rank.memcpy_ms for rank in step.ranks)
        pct = 100 * ms / step.untraced_step_ms
        return pct, f"by timeline the device works {number(pct)} % of the step"
    bound = resident(view)
    if bound is None:
        return None
    pct = bound[0]
    return pct, f"a kernel was resident for {number(pct)} % of a step at most"


def _by_period(case: Case) -> float | None:
    """Return the same share by the engine's own periods, where both are known."""
    sides = []
    for cells in (case.row.light, case.row.heavy):
        known = [c.engine_step_ms for c in cells if c.engine_step_ms]
        if len(known) < len(cells):
            return None
        sides.append(sum(known) / len(known))
    return _pct(1 - sides[0] / sides[1])


def _busy_core(view: CellView) -> Evidence | None:
    telemetry = view.telemetry
    cpu = None if telemetry is None else telemetry.process_cpu_pct.get("engine-core")
    if cpu is None:
        return None
    why = "one thread launches; near one core it has nothing left to give"
    return seen(view, "CPU of the engine-core process", cpu, "% of a core", why)


def loop_beside_launching(case: Case) -> Opinion | None:
    """Unaffected: the engine schedules the same batch with graphs and without."""
    effect = case.row.effect
    if case.view.has_gpu is False or not case.heavy or effect.moved != "longer":
        return None
    why = (
        f"the engine's loop schedules the same batch on both sides, and with graphs"
        f" the whole step takes {number(effect.light_ms)} ms"
    )
    return _out(case, "step with graphs, of the eager one", _pct(1 / effect.low), why)


def loop_overlapped(case: Case) -> Opinion | None:
    """Overlap: synchronous scheduling shows what asynchronous hides."""
    effect, quantity = case.row.effect, "step that waits for the engine's loop"
    if effect.moved == "longer":
        if not case.heavy:
            return None
        why = "the loop or the device's work, whichever is shorter"
        share = _gone(effect.low)
        return Opinion(
            status="standing",
            share_pct=share,
            evidence=(case.evidence(quantity, share, why),),
        )
    hidden = _pct(effect.high - 1)
    floor = case.view.floor
    least = None if floor is None else 100 * floor.floor_ms / effect.light_ms
    if floor is None or least is None or least <= hidden or effect.moved == "shorter":
        why = "nothing bounds the device's work from below, so the loop may be the rest"
        return _stands(case, quantity, hidden, why)
    why = (
        f"the device reads for {number(floor.floor_ms)} ms at least, so a longer loop"
        " would have shown"
    )
    return _out(case, quantity, hidden, why)


def in_host_memory(case: Case) -> Opinion | None:
    """Removal: without offloading nothing is fetched from host memory."""
    effect, quantity = case.row.effect, "step that offloading adds"
    if not case.heavy:
        return None
    if effect.moved == "longer":
        share = _gone(effect.low)
        item = case.evidence(quantity, share, "gone where nothing is offloaded")
        if share < AT_LEAST_PCT:
            return Opinion(status="standing", share_pct=share, evidence=(item,))
        head = "weights or KV fetched from host memory"
        return Opinion(
            status="supported", share_pct=share, headline=head, evidence=(item,)
        )
    return _out(case, quantity, _gone(effect.high), "gone where nothing is offloaded")


def _divided(case: Case, ratio: float) -> float:
    """Return the share of this side's step that is work divided over workers."""
    few, many = -case.pair.amounts[1], -case.pair.amounts[0]
    if case.heavy:
        return _pct((1 - 1 / ratio) / (1 - few / many))
    return _pct((ratio - 1) / (many / few - 1))


def frontends(case: Case) -> Opinion | None:
    """Scaling: several API servers divide the streams."""
    effect, quantity = case.row.effect, "step that more API servers divide"
    if effect.moved != "longer":
        return _out(case, quantity, _divided(case, effect.high), "work divides evenly")
    share = _divided(case, effect.low)
    item = case.evidence(quantity, share, "work is taken to divide evenly")
    if share < AT_LEAST_PCT:
        return Opinion(status="standing", share_pct=share, evidence=(item,))
    head = "work of the API server"
    return Opinion(status="supported", share_pct=share, headline=head, evidence=(item,))


def cpu_work(case: Case) -> Opinion | None:
    """Scaling, where no GPU takes part: the server's own CPU, spread over threads.

    Supported only where the CPU times of its processes agree: contention alone can
    lengthen a step on fewer processors.
    """
    effect, quantity = case.row.effect, "step that is CPU work spread over threads"
    if case.view.has_gpu is not False:
        return None
    if effect.moved == "shorter" and not case.heavy:
        why = (
            f"fewer workers do all of a step's work in {number(effect.heavy_ms)} ms;"
            " the rest of the step is waiting"
        )
        bound = _pct(effect.high)
        return _out(case, "step that CPU work can take", bound, why)
    if effect.moved != "longer":
        share = _divided(case, effect.high)
        why = f"at most {number(share)} %; work of one thread alone is not in it"
        return _stands(case, quantity, None, why)
    share = _divided(case, effect.low)
    used = _cpu_used(case)
    if used is None:
        why = "no CPU time of its processes is known to hold it against"
        return _stands(case, quantity, share, why)
    why = (
        "work is taken to divide evenly; its processes used"
        f" {number(used)} % of their workers' time, so that it is no waiting alone; it"
        " does not tell arithmetic from stalls on memory"
    )
    item = case.evidence(quantity, share, why)
    fixed = case.pair.change.id == "cpus" and not _threads_follow(case.view)
    if fixed or share < AT_LEAST_PCT or used < AT_LEAST_PCT:
        return Opinion(status="standing", share_pct=share, evidence=(item,))
    head = "the server's own CPU, by work that its threads share,"
    return Opinion(status="supported", share_pct=share, headline=head, evidence=(item,))


def _threads_follow(view: CellView) -> bool:
    """Whether a server takes as many threads as it has processors.

    Threads that outnumber processors wait for each other at barriers, which lengthens
    the step without any work.
    """
    if view.run.engine not in ("vllm", "sglang") or view.launch is None:
        return False
    names = ("OMP_NUM_THREADS", "VLLM_CPU_OMP_THREADS_BIND")
    return not any(name in view.launch.environment for name in names)


def _cpu_used(case: Case) -> float | None:
    """Return CPU time of the server over that of its workers, percent."""
    result = case.view.result
    telemetry = None if result is None else result.telemetry
    if telemetry is None:
        return None
    cpu = telemetry.process_cpu_pct
    known = [cpu[role] for role in _ROLES if role in cpu]
    workers = -case.pair.amounts[1 if case.heavy else 0]
    return sum(known) / workers if known and workers > 0 else None


def enough_processors(case: Case) -> Opinion | None:
    """Say whether the number of processors matters; it tells no host cause apart."""
    effect = case.row.effect
    if case.view.has_gpu is False:
        return None
    if effect.moved == "longer":
        if not case.heavy:
            return None
        share, why = _gone(effect.low), "which part of the host a timeline tells"
        return _stands(case, "step that waits for a processor", share, why)
    why = (
        f"the number of processors does not limit it (at most"
        f" {number(_gone(effect.high))} % of the step); work of one thread, which is as"
        " long on fewer processors, is not acquitted"
    )
    return _stands(case, "step that more processors take away", None, why)


#: change -> hypothesis -> law. A change that is not here moves several causes at once:
#: its figures are shown, and every hypothesis is left as it was.
LAWS: dict[str, dict[str, Law]] = {
    "graphs": {"launch": launching, "scheduler": loop_beside_launching},
    "threads": {"compute": cpu_work},
    "cpus": {
        "compute": cpu_work,
        "scheduler": enough_processors,
        "frontend": enough_processors,
        "launch": enough_processors,
    },
    "api-servers": {"frontend": frontends},
    "offload": {"host-memory": in_host_memory},
    "async-scheduling": {"scheduler": loop_overlapped},
}
