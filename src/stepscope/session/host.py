"""The host: memory of node and cgroup, CPU of all cores and of single processes."""

import os
from pathlib import Path

import psutil

from stepscope.run.samples import HostSample, ProcessSample

_TICK_NS = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
_CGROUP = (
    (Path("/sys/fs/cgroup/memory.current"), Path("/sys/fs/cgroup/memory.max")),
    (
        Path("/sys/fs/cgroup/memory/memory.usage_in_bytes"),
        Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
    ),
)
#: cgroup v1 writes a number near 2**63 for "no limit".
_NO_LIMIT = 1 << 60


def host_sample(at_ns: int) -> HostSample:
    """Return one sample of the host; CPU figures are cumulative."""
    memory = psutil.virtual_memory()
    cpu = psutil.cpu_times()
    idle = cpu.idle + getattr(cpu, "iowait", 0.0)
    guest = getattr(cpu, "guest", 0.0) + getattr(cpu, "guest_nice", 0.0)
    total = sum(cpu) - guest
    used, limit = _cgroup()
    return HostSample(
        at_ns=at_ns,
        memory_used_bytes=int(memory.total - memory.available),
        memory_total_bytes=int(memory.total),
        cgroup_memory_bytes=used,
        cgroup_memory_limit_bytes=limit,
        cpu_busy_ns=int((total - idle) * 1e9),
        cpu_total_ns=int(total * 1e9),
        load_1min=os.getloadavg()[0],
    )


def _cgroup() -> tuple[int | None, int | None]:
    for current, limit in _CGROUP:
        used = _number(current)
        if used is not None:
            most = _number(limit)
            return used, None if most is None or most > _NO_LIMIT else most
    return None, None


def _number(path: Path) -> int | None:
    try:
        text = path.read_text().strip()
    except OSError:
        return None
    return int(text) if text.isdecimal() else None


def process_sample(pid: int, role: str, at_ns: int) -> ProcessSample | None:
    """Return one sample of a process, or None where it is gone."""
    folder = Path(f"/proc/{pid}")
    try:
        fields, name = _stat(folder / "stat")
        threads = [_cpu(_stat(t / "stat")[0]) for t in (folder / "task").iterdir()]
    except (OSError, IndexError, ValueError):
        return None
    return ProcessSample(
        at_ns=at_ns,
        pid=pid,
        role=role,
        name=name,
        cpu_ns=_cpu(fields),
        busiest_thread_cpu_ns=max(threads, default=None),
        rss_bytes=int(fields[21]) * os.sysconf("SC_PAGESIZE"),
        n_threads=len(threads),
    )


def _stat(path: Path) -> tuple[list[str], str]:
    """Return the fields of a stat file after the name, and the name.

    The name is in parentheses and may hold anything, so the last one ends it.
    """
    text = path.read_text()
    close = text.rindex(")")
    return text[close + 2 :].split(), text[text.index("(") + 1 : close]


def _cpu(fields: list[str]) -> int:
    return (int(fields[11]) + int(fields[12])) * _TICK_NS


def tree(pids: set[int]) -> set[int]:
    """Return ``pids`` that live and all their living descendants."""
    found = set()
    for pid in pids:
        try:
            process = psutil.Process(pid)
            if process.status() == psutil.STATUS_ZOMBIE:
                continue
            found.add(pid)
            found |= {child.pid for child in process.children(recursive=True)}
        except psutil.NoSuchProcess:
            continue
    return found


def command_line(pid: int) -> tuple[tuple[str, ...], str]:
    """Return a process's arguments and name; empty where it is gone."""
    try:
        process = psutil.Process(pid)
        return tuple(process.cmdline()), process.name()
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return (), ""
