"""compute: arithmetic takes the step; on a CPU engine, the CPU itself."""

from stepscope.board.hypotheses.device import (
    IDLE_GPU,
    IDLE_TIMELINE,
    SAMPLE_COUNTERS,
    exceeds_residence,
    impossible,
)
from stepscope.board.hypotheses.floors import counted_step, decoding, of_step
from stepscope.board.opinion import (
    AT_MOST_PCT,
    FULL_CORE_PCT,
    STARVED_PCT,
    Hypothesis,
    Opinion,
    Rule,
    seen,
)
from stepscope.board.records import Evidence
from stepscope.board.view import CellView

#: Tensor pipes reach about three quarters of their peak in the best dense kernels.
_TENSOR_LIMIT_PCT = 60.0
_TENSOR_LOW_PCT = 30.0
#: From it on SMs are occupied, perhaps by arithmetic that is not on tensor pipes.
_SM_LOW_PCT = AT_MOST_PCT

_SCATTER_POINTS = 1.0

#: CPU of all processes beyond the busiest thread that is still "one thread". Two
#: processes that both burn a core take turns, and one of them polls meanwhile.
_OTHERS_PCT = 20.0
#: From it on a thread may have found no core, where nobody counted its wait.
_HOST_BUSY_PCT = 70.0
_ROLES = ("server", "engine-core", "worker")


def _tensor_counter(view: CellView) -> Opinion | None:
    telemetry = view.telemetry
    if telemetry is None or telemetry.tensor_pct is None:
        return None
    tensor, active = telemetry.tensor_pct, telemetry.sm_active_pct
    refused = (
        *impossible(view, "tensor counter", tensor),
        *impossible(view, "SM activity", active),
    )
    if refused:
        return Opinion(status="standing", evidence=refused)
    item = seen(
        view,
        "tensor counter",
        tensor,
        "% of peak",
        "GPM over the telemetry window, prefill included; blind to arithmetic off the"
        " tensor pipes",
    )
    if _while_decoding(view, tensor) >= _TENSOR_LIMIT_PCT:
        against = (*exceeds_residence(view, tensor), *_beyond_sms(view, tensor, active))
        return Opinion(
            status="standing" if against else "supported",
            share_pct=None if against else tensor,
            headline="arithmetic on the tensor pipes",
            evidence=(item, *against),
            contradicts=bool(against),
        )
    if of_step(view, tensor) < _TENSOR_LOW_PCT and active is not None:
        sm = seen(
            view,
            "SM activity",
            active,
            "%",
            "mean over all SMs: a warp was resident, and may compute or wait for"
            " memory; few SMs that are busy all the time read low",
        )
        most = of_step(view, active)
        low = most < _SM_LOW_PCT
        return Opinion(
            status="ruled-out" if low else "standing",
            share_pct=most if low else None,
            evidence=(item, sm),
        )
    return Opinion(status="standing", evidence=(item,))


def _while_decoding(view: CellView, window_pct: float) -> float:
    """Return the least of a decode step that a mean over the window leaves, percent.

    As if the pipes were full for all of the window in which no decode step ran.
    """
    step = counted_step(view)
    runs = decoding(view, None if step is None else step[0]) or 0.0
    return (window_pct - 100 * (1 - runs)) / runs if runs > 0 else 0.0


def _beyond_sms(
    view: CellView, tensor: float, active: float | None
) -> tuple[Evidence, ...]:
    """Return SM activity where tensor pipes are to work more than it."""
    if active is None or tensor <= active + _SCATTER_POINTS:
        return ()
    why = "no tensor pipe works on an SM without a warp: one of the counters is wrong"
    return (seen(view, "SM activity", active, "%", why),)


def _one_thread(view: CellView) -> Opinion | None:
    telemetry = view.telemetry
    if (
        view.has_gpu is not False
        or view.result is None
        or view.result.telemetry is None
    ):
        return None
    # Host figures come from cumulative CPU times: the count of GPU samples is moot.
    telemetry = telemetry or view.result.telemetry
    # Where an engine has workers, they compute: the busiest process is meant.
    cpu = telemetry.process_cpu_pct
    role = max((r for r in _ROLES if r in cpu), key=lambda r: cpu[r], default=None)
    if role is None:
        return None
    thread = telemetry.busiest_thread_cpu_pct.get(role)
    waited = telemetry.busiest_thread_waited_pct.get(role, 0.0)
    starved = _starved(view, role, waited)
    if thread is None or starved:
        item = _process(view, role, cpu[role])
        return Opinion(status="standing", evidence=(item, *starved))
    return _judge_thread(view, role, sum(cpu.get(r, 0.0) for r in _ROLES), thread)


def _starved(view: CellView, role: str, waited: float) -> tuple[Evidence, ...]:
    """Return that the thread had no core, where it matters.

    What it did not run for, it did not wait for work then: its CPU time bounds nothing.
    """
    if waited < STARVED_PCT:
        return ()
    item = seen(
        view,
        f"busiest thread of the {role} process, ready and without a core",
        waited,
        "% of the window",
        "something else held its processors: the step is longer than its work, and the"
        " work is more than its share of the window",
    )
    return (item,)


def _judge_thread(
    view: CellView, role: str, total: float, thread: float
) -> Opinion | None:
    item = seen(
        view,
        f"busiest thread of the {role} process",
        thread,
        "% of a core",
        "CPU time, waiting left out: it does not tell arithmetic from stalls on"
        " memory, nor the model from the loop around it",
    )
    whole = _process(view, role, total)
    alone = total - thread <= _OTHERS_PCT
    if thread >= FULL_CORE_PCT and alone:
        return Opinion(
            status="supported",
            share_pct=min(thread, 100.0),
            headline="the server's own CPU, by its one busy thread,",
            evidence=(item, whole),
        )
    if total < AT_MOST_PCT:
        room = _had_a_core(view, role)
        if room is None:
            return Opinion(status="standing", evidence=(item, whole))
        return Opinion(status="ruled-out", share_pct=total, evidence=(whole, room))
    # Several busy threads may spin: at barriers, or polling for each other's results.
    return Opinion(status="standing", evidence=(item, whole))


def _had_a_core(view: CellView, role: str) -> Evidence | None:
    """Return what says that a thread ran whenever it could; None: nothing does.

    Else the time that it did not run for may be time without a core, on a machine that
    others keep busy.
    """
    telemetry = view.result.telemetry if view.result is not None else None
    if telemetry is None:
        return None
    waited = telemetry.busiest_thread_waited_pct.get(role)
    if waited is not None:
        why = "it did not run since it had nothing to do"
        told = f"busiest thread of the {role} process, ready and without a core"
        return seen(view, told, waited, "% of the window", why)
    host = telemetry.host_cpu_pct
    if host is None or host >= _HOST_BUSY_PCT:
        return None
    why = "all cores together: a thread that wanted one found one"
    return seen(view, "CPU of the host", host, "%", why)


def _process(view: CellView, role: str, total: float) -> Evidence:
    return seen(
        view,
        f"CPU of the {role} process",
        total,
        "% of a core",
        "all its threads and those of the engine's other processes; threads that spin"
        " at a barrier, or poll, read as busy",
    )


def _would_decide(view: CellView) -> str:
    if view.has_gpu is False:
        return (
            "CPU time of the server's busiest thread with one compute thread, so that"
            " spinning can not pass for work (stepscope run samples it for servers"
            " that it starts); perf stat for arithmetic against memory stalls."
        )
    telemetry = view.telemetry
    if telemetry is not None and telemetry.tensor_pct is not None:
        return (
            "The tensor and SM counters are here and do not settle it: SMs that wait"
            " for memory read as active. Each kernel's own share of the peak, by a"
            " kernel profiler (ncu), tells arithmetic from waiting."
        )
    return f"The tensor and SM counters {SAMPLE_COUNTERS}."


COMPUTE = Hypothesis(
    id="compute",
    claim="Arithmetic takes the larger part of the step; on a CPU engine: the server's"
    " own CPU time.",
    rules=(
        Rule(
            name="tensor-counter",
            measurement="tensor and SM activity counters (GPM) inside the window",
            threshold=f"supported: tensor at least {_TENSOR_LIMIT_PCT:.0f} % of peak"
            " while decode steps ran, whatever the rest of the window held; ruled out:"
            f" tensor below {_TENSOR_LOW_PCT:.0f} % and SMs active below"
            f" {_SM_LOW_PCT:.0f} %, as if all of it were decode steps'",
            blind="arithmetic off the tensor pipes; short phases within a step",
            test=_tensor_counter,
        ),
        Rule(
            name="one-busy-thread",
            measurement="CPU time of the server's threads, where no GPU takes part",
            threshold=f"supported: one thread at {FULL_CORE_PCT:.0f} % of a core or"
            f" more and all others together within {_OTHERS_PCT:.0f} %; ruled out:"
            f" all together below {AT_MOST_PCT:.0f} %; neither where it was ready and"
            f" had no core for {STARVED_PCT:.0f} % of the window, or where nobody"
            f" counted that on a host {_HOST_BUSY_PCT:.0f} % busy",
            blind="arithmetic against memory stalls; the model against its loop",
            test=_one_thread,
        ),
        IDLE_TIMELINE,
        IDLE_GPU,
    ),
    would_decide=_would_decide,
    share_of="the window",
)
