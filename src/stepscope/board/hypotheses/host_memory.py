"""host-memory: the host runs short, or the step fetches data that lives there."""

from stepscope.board.hypotheses.kv_capacity import boot_cause, failed_boot
from stepscope.board.opinion import Hypothesis, Opinion, Rule, seen
from stepscope.board.view import CellView
from stepscope.units import gib

_ROOM_PCT = 80.0
#: Words of flags that place weights, tables or KV in host memory.
_OFFLOAD = ("offload", "swap", "lmcache", "hicache", "mmap", "n-gpu-layers", "ngl")
_BOOT_CAUSES = ("host-oom-kill", "shm-exhausted")
#: A boot verdict that only infers the kill names this among its fixes.
_PROOF = "dmesg"


def _limit_gib(view: CellView) -> float | None:
    limits = [
        limit
        for sample in view.run.samples.host[-1:]
        for limit in (sample.cgroup_memory_limit_bytes, sample.memory_total_bytes)
        if limit
    ]
    if not limits and view.run.machine.memory_bytes:
        limits = [view.run.machine.memory_bytes]
    return gib(min(limits)) if limits else None


def _of_cgroup(view: CellView) -> tuple[float, float] | None:
    """Return memory and limit of the sample that is nearest to a cgroup's limit, GiB.

    Of the cell's samples; where none of them tells the cgroup (it may be frozen, or
    gone when the run ends), of all. None without a limited cgroup.
    """
    limited = [
        (sample.at_ns, sample.cgroup_memory_bytes, sample.cgroup_memory_limit_bytes)
        for sample in view.run.samples.host
        if sample.cgroup_memory_bytes and sample.cgroup_memory_limit_bytes
    ]
    span = view.span_ns()
    inside = [x for x in limited if span is not None and span[0] <= x[0] <= span[1]]
    rows = inside or limited
    if not rows:
        return None
    _, used, limit = max(rows, key=lambda x: x[1] / x[2])
    return gib(used), gib(limit)


def _offloads(view: CellView) -> bool | None:
    """Whether the server's command places data in host memory; None: unknown."""
    command = view.launch.command if view.launch is not None else ()
    if not command:
        return None
    flags = [word.lower() for word in command if word.startswith("-")]
    return any(word in flag for flag in flags for word in _OFFLOAD)


def _headroom(view: CellView) -> Opinion | None:
    result = view.result
    telemetry = result.telemetry if result is not None else None
    limit = _limit_gib(view)
    if telemetry is None or telemetry.host_memory_peak_gib is None or not limit:
        return None
    used, limit = _of_cgroup(view) or (telemetry.host_memory_peak_gib, limit)
    share = 100 * used / limit
    item = seen(
        view,
        "highest host memory in the window, of the limit",
        share,
        "%",
        f"{used:.3g} of {limit:.4g} GiB; swapping is not sampled, and a cgroup's"
        " figure holds page cache",
    )
    offloads = _offloads(view)
    if share >= _ROOM_PCT or view.has_gpu is not True:
        room = view.has_gpu is False and share < _ROOM_PCT
        return Opinion(
            status="ruled-out" if room else "standing",
            share_pct=0.0 if room else None,
            evidence=(item,),
        )
    if offloads is False:
        return Opinion(
            status="ruled-out",
            share_pct=0.0,
            evidence=(
                item,
                seen(
                    view,
                    "flags that place data in host memory",
                    "none",
                    "",
                    "in the server's command; defaults that offload by themselves are"
                    " not seen",
                ),
            ),
        )
    return Opinion(status="standing", evidence=(item,))


def _boot(view: CellView) -> Opinion | None:
    found = boot_cause(view, _BOOT_CAUSES)
    if found is None or not _unproven(view):
        return found
    return Opinion(status="standing", evidence=found.evidence)


def _unproven(view: CellView) -> bool:
    """Whether a process of the boot only vanished, and nobody says who killed it."""
    boot = failed_boot(view, _BOOT_CAUSES)
    fixes = boot.verdict.get("fixes") if boot is not None else None
    return isinstance(fixes, list | tuple) and any(
        str(fix.get("flag", "")).startswith(_PROOF) for fix in fixes
    )


def _killed(view: CellView) -> Opinion | None:
    """Support it where the kernel killed for want of memory on a launch that served."""
    launch = view.launch
    if launch is None or not launch.ready or not launch.oom_kills:
        return None
    item = seen(
        view,
        "kills for want of memory",
        float(launch.oom_kills),
        "",
        "counted in the server's control group from its start to its end; which cell"
        " they fell into, and whether the server was killed, the counter does not tell",
    )
    return Opinion(
        status="supported",
        headline="the kernel killed a process for want of host memory",
        evidence=(item,),
    )


def _would_decide(view: CellView) -> str:
    if _unproven(view):
        return (
            "What the kernel says of that start: dmesg of the host, or oom_kill in the"
            " control group's memory.events (stepscope run counts it)."
        )
    if view.has_gpu is False:
        return (
            "Host memory and its limit sampled during the cell (stepscope run), and"
            " the server's major page faults (/proc/PID/stat)."
        )
    return (
        "Host memory and its limit, and PCIe traffic inside the window (stepscope run"
        " samples all three); the server's command, to see what is offloaded."
    )


HOST_MEMORY = Hypothesis(
    id="host-memory",
    claim="The host runs short of memory, or the step fetches data that lives there.",
    rules=(
        Rule(
            name="headroom",
            measurement="host memory against its limit, and the server's command",
            threshold=f"ruled out: below {_ROOM_PCT:.0f} % of the limit and nothing"
            " offloaded (or no GPU that data could be fetched to)",
            blind="swapping; defaults that offload by themselves",
            test=_headroom,
        ),
        Rule(
            name="killed",
            measurement="kills for want of memory in the server's control group",
            threshold="supported: there are some",
            blind="when, and what it cost",
            test=_killed,
            of_cell=False,
        ),
        Rule(
            name="boot",
            measurement="the verdict on a boot that failed",
            threshold="supported: the cause is "
            + " or ".join(_BOOT_CAUSES)
            + "; a process that vanished, and that neither the kernel nor its control"
            " group says to have killed, decides nothing",
            blind="what the step would have cost",
            test=_boot,
            of_cell=False,
        ),
    ),
    would_decide=_would_decide,
)
