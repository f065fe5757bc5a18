"""What must be true before a server starts; found before any minute is paid for."""

import os
import resource
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path

import psutil

from stepscope.engines.definition import EngineDef
from stepscope.errors import SessionError
from stepscope.findings import Finding
from stepscope.recipe.records import Plan
from stepscope.session.nvml import Gpus
from stepscope.units import gib

_LEAST_DISK_BYTES = 256 << 20
#: A context alone takes a few hundred MiB; below this nothing is taken from a server.
_SMALL_HOLDING_BYTES = 64 << 20
_FILES_BESIDES = 200


def preflight(
    plan: Plan, engine: EngineDef, out: Path, port: int | None, gpus: Gpus | None
) -> tuple[Finding, ...]:
    """Check the machine.

    Args:
        plan: What is to run.
        engine: Its engine.
        out: Where the run goes; its parents may not exist yet.
        port: The server's port; None where nothing boots.
        gpus: The machine's GPUs.

    Returns:
        What does not stop a run but may spoil it.

    Raises:
        SessionError: The first thing that would make the run fail.
    """
    _disk(out)
    _files(plan)
    if engine.boots:
        assert port is not None
        _port(plan.recipe.host, port)
        _program(engine, plan)
    return tuple(_gpu_memory(engine, gpus))


def free_port(host: str) -> int:
    """Return a port that nobody listens on now."""
    with socket.socket() as sock:
        sock.bind((host, 0))
        return int(sock.getsockname()[1])


def _disk(out: Path) -> None:
    there = next(p for p in (out.absolute(), *out.absolute().parents) if p.exists())
    free = shutil.disk_usage(there).free
    if free < _LEAST_DISK_BYTES:
        found = f"{free >> 20} MiB free on its disk"
        raise SessionError(
            str(out), found, f"expected {_LEAST_DISK_BYTES >> 20} MiB", "Make room"
        )


def _files(plan: Plan) -> None:
    most = max(c.workload.concurrency or 1 for x in plan.launches for c in x.cells)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = most + _FILES_BESIDES
    if soft >= needed or soft == resource.RLIM_INFINITY:
        return
    if hard == resource.RLIM_INFINITY or hard >= needed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
        return
    raise SessionError(
        "ulimit -n",
        f"{soft} open files, and {hard} at most",
        f"concurrency {most} needs {needed}",
        f"Run: ulimit -n {needed}",
    )


def _port(host: str, port: int) -> None:
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind((host, port))
        except OSError as error:
            holder = _listener(port)
            found = f"{error.strerror or error}" + (f" by {holder}" if holder else "")
            raise SessionError(
                f"port {port}", found, "expected a free port", "Stop it, or set port"
            ) from error


def _listener(port: int) -> str | None:
    try:
        for connection in psutil.net_connections("tcp"):
            if (
                connection.status == psutil.CONN_LISTEN
                and connection.laddr
                and connection.laddr.port == port
                and connection.pid
            ):
                name = psutil.Process(connection.pid).name()
                return f"{name} (pid {connection.pid})"
    except (psutil.AccessDenied, psutil.NoSuchProcess):
        return None
    return None


def _program(engine: EngineDef, plan: Plan) -> None:
    command = engine.program(plan.recipe)
    if shutil.which(command[0]) is None:
        do = f"Install {engine.name}, or set executable in the recipe"
        raise SessionError(command[0], "no such program", "expected it on PATH", do)
    model = plan.recipe.model or ""
    if model.startswith(("/", "./", "../", "~")) and not Path(model).exists():
        raise SessionError(model, "no such model folder or file", "", "Check model")


def _gpu_memory(engine: EngineDef, gpus: Gpus | None) -> Iterator[Finding]:
    if gpus is None or not engine.boots or engine.name == "embedded":
        return
    mine = os.getpid()
    for holder in gpus.holders():
        held = holder.bytes_held
        if holder.pid == mine or (held is not None and held < _SMALL_HOLDING_BYTES):
            continue
        amount = "memory" if held is None else f"{gib(held):.1f} GiB"
        yield Finding(
            code="gpu-memory-held",
            severity="warning",
            message=f"process {holder.pid} ({_name(holder.pid)}) holds {amount} of GPU"
            f" {holder.gpu}",
            hint="If it is left over from an earlier server, end it: the new one has"
            " that much less.",
        )
    if gpus.holders():
        return
    for index, used in enumerate(gpus.used_bytes()):
        if used is not None and used > 2 << 30:
            yield Finding(
                code="gpu-memory-held",
                severity="warning",
                message=f"{gib(used):.1f} GiB of GPU {index} are in use by a process"
                " that can not be seen from here",
                hint="Another container, or a killed server: look on the host.",
            )


def _name(pid: int) -> str:
    try:
        return str(psutil.Process(pid).name())
    except psutil.NoSuchProcess:
        return "not visible from here"
