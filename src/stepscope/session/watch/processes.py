"""CPU and memory of the server's and the client's processes, cheaply.

A GPU server has hundreds of threads. Reading them all ten times a second would cost a
good part of a core, so the tree of processes and the list of threads are read anew
only every few seconds, and between that only the threads that have used most.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from stepscope.run.samples import ProcessSample
from stepscope.session.watch.host import TICK_NS

_PAGE_BYTES = os.sysconf("SC_PAGESIZE")
_TREE_INTERVAL_NS = 1_000_000_000
_THREADS_INTERVAL_NS = 10_000_000_000
#: Up to so many threads the list costs little: it is read anew with the tree, so that
#: a thread which becomes the busiest when the load begins is seen at once.
_FEW_THREADS = 64
_N_WATCHED_THREADS = 3
#: Argument of our own processes; neither is the server.
_GUARD = "stepscope.session.guard"
_LOAD_WORKER = "stepscope.load.worker"

Role = Callable[[tuple[str, ...], str], str]


def tree(pids: set[int]) -> set[int]:
    """Return those of ``pids`` that live, and all their living descendants."""
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


def name_of(pid: int) -> str | None:
    """Return a process's name; None where it is gone or not visible from here."""
    try:
        return str(psutil.Process(pid).name())
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return None


@dataclass(slots=True)
class _Watched:
    role: str
    threads: list[int] = field(default_factory=list)
    threads_at_ns: int | None = None


class Processes:
    """Samples the server's processes by role, and the load client's.

    Args:
        roots: Gives the process ids under which the server is found.
        role: What a process of the server does.
    """

    def __init__(self, roots: Callable[[], set[int]], role: Role) -> None:
        self._roots, self._role = roots, role
        self._watched: dict[int, _Watched] = {}
        self._tree_at_ns: int | None = None

    def sample(self, at_ns: int) -> list[ProcessSample]:
        """Return one sample of each process that lives."""
        if self._tree_at_ns is None or at_ns - self._tree_at_ns >= _TREE_INTERVAL_NS:
            self._find()
            self._tree_at_ns = at_ns
        found = []
        for pid, watched in list(self._watched.items()):
            sample = _sample(pid, watched, at_ns)
            if sample is None:
                del self._watched[pid]
            else:
                found.append(sample)
        return found

    def _find(self) -> None:
        server = tree(self._roots())
        alive: dict[int, _Watched] = {}
        for pid in server | tree({os.getpid()}):
            role = self._role_of(pid, server=pid in server)
            if role is not None:
                known = self._watched.get(pid)
                alive[pid] = _Watched(role) if known is None else known
                alive[pid].role = role
        self._watched = alive

    def _role_of(self, pid: int, *, server: bool) -> str | None:
        """Return a role; None for what is neither the server nor the client.

        Read anew each time: engines give their processes titles after they started.
        """
        try:
            process = psutil.Process(pid)
            argv, name = tuple(process.cmdline()), process.name()
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            return None
        if _LOAD_WORKER in argv:
            return "client"
        if not server or _GUARD in argv:
            return None
        return self._role(argv, name)


def _sample(pid: int, watched: _Watched, at_ns: int) -> ProcessSample | None:
    folder = Path(f"/proc/{pid}")
    try:
        fields, name = _stat(folder / "stat")
        since = watched.threads_at_ns
        few = int(fields[17]) <= _FEW_THREADS
        interval_ns = _TREE_INTERVAL_NS if few else _THREADS_INTERVAL_NS
        if since is None or at_ns - since >= interval_ns:
            watched.threads = _busiest(folder / "task")
            watched.threads_at_ns = at_ns
    except (OSError, ValueError, IndexError):
        return None
    used, busiest, waited = _most(folder / "task", watched.threads)
    return ProcessSample(
        at_ns=at_ns,
        pid=pid,
        role=watched.role,
        name=name,
        cpu_ns=_cpu_ns(fields),
        busiest_thread_cpu_ns=used,
        busiest_thread_id=busiest,
        busiest_thread_waited_ns=waited,
        rss_bytes=int(fields[21]) * _PAGE_BYTES,
        n_threads=int(fields[17]),
    )


def _busiest(tasks: Path) -> list[int]:
    """Return the threads that have used most CPU, at most a few."""
    used = []
    for folder in tasks.iterdir():
        try:
            used.append((_cpu_ns(_stat(folder / "stat")[0]), int(folder.name)))
        except (OSError, ValueError, IndexError):
            continue
    return [tid for _, tid in sorted(used, reverse=True)[:_N_WATCHED_THREADS]]


def _most(tasks: Path, threads: list[int]) -> tuple[int | None, int | None, int | None]:
    """Return CPU time, id and waiting time of the thread that has used most CPU."""
    most: int | None = None
    busiest: int | None = None
    for tid in threads:
        try:
            used = _cpu_ns(_stat(tasks / str(tid) / "stat")[0])
        except (OSError, ValueError, IndexError):
            continue
        if most is None or used > most:
            most, busiest = used, tid
    if busiest is None:
        return None, None, None
    return most, busiest, _waited_ns(tasks / str(busiest) / "schedstat")


def _waited_ns(path: Path) -> int | None:
    """Return how long a thread was ready and had no core; None: not counted here."""
    try:
        return int(path.read_text().split()[1])
    except (OSError, ValueError, IndexError):
        return None


def _stat(path: Path) -> tuple[list[str], str]:
    """Return the fields of a stat file after the name, and the name.

    The name is in parentheses and may hold anything, so the last one ends it.
    """
    text = path.read_text()
    close = text.rindex(")")
    return text[close + 2 :].split(), text[text.index("(") + 1 : close]


def _cpu_ns(fields: list[str]) -> int:
    return (int(fields[11]) + int(fields[12])) * TICK_NS
