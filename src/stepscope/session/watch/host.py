"""The host at one instant: memory of node and cgroup, CPU of all cores, load."""

import os
from functools import cache
from pathlib import Path

from stepscope.run.samples import HostSample

TICK_NS = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
#: cgroup v1 writes a number near 2**63 for "no limit".
_NO_LIMIT = 1 << 60
#: user nice system idle iowait irq softirq steal; guest time is part of user.
_N_CPU_FIELDS = 8
_IDLE, _IOWAIT = 3, 4
_CGROUPS = Path("/sys/fs/cgroup")


def host_sample(at_ns: int) -> HostSample:
    """Return one sample of the host; CPU figures are cumulative."""
    memory = _memory()
    total, available = memory.get("MemTotal"), memory.get("MemAvailable")
    busy, whole = _cpu()
    used, limit = cgroup_memory(cgroup_memory_files())
    return HostSample(
        at_ns=at_ns,
        memory_used_bytes=(
            None if total is None or available is None else total - available
        ),
        memory_total_bytes=total,
        cgroup_memory_bytes=used,
        cgroup_memory_limit_bytes=limit,
        cpu_busy_ns=busy,
        cpu_total_ns=whole,
        load_1min=os.getloadavg()[0],
    )


def cgroup_memory(files: tuple[Path, Path] | None) -> tuple[int | None, int | None]:
    """Return bytes charged to our memory cgroup and its limit; None where unlimited.

    What is charged holds page cache too: it can stand at the limit for long without
    anything being wrong.
    """
    if files is None:
        return None, None
    used, most = _number(files[0]), _number(files[1])
    return used, None if most is None or most > _NO_LIMIT else most


@cache
def cgroup_memory_files(root: Path = _CGROUPS) -> tuple[Path, Path] | None:
    """Return the files of usage and limit, of cgroup v2 or v1; None without them."""
    own_v1, own_v2 = _own_cgroups()
    v1, v2 = (
        ("memory.usage_in_bytes", "memory.limit_in_bytes"),
        (
            "memory.current",
            "memory.max",
        ),
    )
    # Inside a container the path of /proc/self/cgroup may be the host's: then the
    # mounted root is our own group.
    for folder, (used, limit) in (
        (root / own_v2, v2),
        (root / "memory" / own_v1, v1),
        (root, v2),
        (root / "memory", v1),
    ):
        if _number(folder / used) is not None:
            return folder / used, folder / limit
    return None


def oom_kills(files: tuple[Path, Path] | None) -> int | None:
    """Return how often our memory cgroup's processes were killed for want of memory.

    The count only grows, and holds the kills of all groups below ours.
    """
    if files is None:
        return None
    for name in ("memory.events", "memory.oom_control"):
        try:
            text = (files[0].parent / name).read_text()
        except OSError:
            continue
        for line in text.splitlines():
            word, _, count = line.partition(" ")
            if word == "oom_kill" and count.strip().isdecimal():
                return int(count)
    return None


def _own_cgroups() -> tuple[str, str]:
    """Return our paths in the memory hierarchy of v1 and in v2, without slash."""
    v1 = v2 = ""
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return "", ""
    for line in lines:
        number, controllers, path = line.split(":", 2)
        if number == "0" and not controllers:
            v2 = path.lstrip("/")
        elif "memory" in controllers.split(","):
            v1 = path.lstrip("/")
    return v1, v2


def _memory() -> dict[str, int]:
    found: dict[str, int] = {}
    try:
        text = Path("/proc/meminfo").read_text()
    except OSError:
        return found
    for line in text.splitlines()[:3]:
        name, _, rest = line.partition(":")
        found[name] = int(rest.split()[0]) << 10
    return found


def _cpu() -> tuple[int | None, int | None]:
    """Return busy and total nanoseconds of all cores; waiting for a disk is idle."""
    try:
        with Path("/proc/stat").open() as stream:
            fields = stream.readline().split()[1 : 1 + _N_CPU_FIELDS]
    except OSError:
        return None, None
    ticks = [int(x) for x in fields]
    idle = ticks[_IDLE] + ticks[_IOWAIT]
    return (sum(ticks) - idle) * TICK_NS, sum(ticks) * TICK_NS


def _number(path: Path) -> int | None:
    try:
        text = path.read_text().strip()
    except OSError:
        return None
    return int(text) if text.isdecimal() else None
