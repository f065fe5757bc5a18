"""What must be true before a server starts; found before any minute is paid for."""

import errno
import os
import resource
import shutil
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil

from stepscope.engines.definition import EngineDef, Flags
from stepscope.errors import SessionError
from stepscope.findings import Finding
from stepscope.load.prompts import authorization
from stepscope.load.spec import check_workers
from stepscope.recipe.records import Configuration, LaunchPlan, Plan, Recipe
from stepscope.session.nvml import Gpus
from stepscope.session.phases.switches import no_tool
from stepscope.session.watch.processes import name_of
from stepscope.units import BYTES_PER_MIB, gib

_LEAST_DISK_BYTES = 256 * BYTES_PER_MIB
_SCANT_DISK_BYTES = 2048 * BYTES_PER_MIB
#: Every chunk's instant, with room for journals beside the columns.
_BYTES_A_TOKEN = 24
#: A CUDA context alone takes more: what holds less takes nothing from a server.
_SMALL_HOLDING_BYTES = 64 * BYTES_PER_MIB
#: More than a driver keeps for itself on an idle GPU.
_UNSEEN_HOLDING_BYTES = 2048 * BYTES_PER_MIB
_FILES_BESIDES = 200
#: Source: vLLM's default of --gpu-memory-utilization, 0.9 to 0.92 by version.
_VLLM_UTILIZATION = 0.9


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
        RecipeError: The key is not in the environment, or the client's workers can
            not run where they should.
    """
    if not plan.launches:
        return ()
    # The client would say it first after the boot was paid for.
    authorization(plan.recipe.api_key_env, None)
    server = plan.recipe.server
    url = f"http://{plan.recipe.host}:{port}" if server is None else server.base_url
    check_workers(plan.recipe.load_workers, (url,))
    findings = list(_disk(out, plan))
    _files(plan)
    if not engine.boots:
        return tuple(findings)
    assert port is not None
    _port(plan.recipe.host, port)
    _program(plan.recipe, engine)
    findings += _timelines(plan)
    if gpus is None:
        findings.append(_no_gpu(engine))
        return tuple(findings)
    if engine.name == "vllm":
        for launch in plan.launches:
            _vllm_memory(launch, engine, gpus)
    if engine.name != "embedded":
        findings += _holders(gpus)
    return tuple(findings)


def free_port(host: str) -> int:
    """Return a port that nobody listens on now."""
    with socket.socket() as sock:
        sock.bind((host, 0))
        return int(sock.getsockname()[1])


def _disk(out: Path, plan: Plan) -> Iterator[Finding]:
    there = next(p for p in (out.absolute(), *out.absolute().parents) if p.exists())
    free = shutil.disk_usage(there).free
    tokens = sum(
        cell.workload.n_prompts * (cell.workload.output_tokens or 0)
        for launch in plan.launches
        for cell in launch.cells
    )
    needed = _LEAST_DISK_BYTES + tokens * _BYTES_A_TOKEN
    if free < needed:
        raise SessionError(
            str(out),
            f"{free // BYTES_PER_MIB} MiB free on its disk",
            f"this run may need {needed // BYTES_PER_MIB} MiB",
            "Make room, or give another --out",
        )
    if free < needed + _SCANT_DISK_BYTES:
        yield Finding(
            code="little-disk",
            severity="warning",
            message=f"{free // BYTES_PER_MIB} MiB are free on the run's disk",
            hint="A verbose server log may fill it.",
        )


def _files(plan: Plan) -> None:
    most = max(c.workload.concurrency or 1 for x in plan.launches for c in x.cells)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = most + _FILES_BESIDES
    if soft == resource.RLIM_INFINITY or soft >= needed:
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
            holder = _listener(port) if error.errno == errno.EADDRINUSE else None
            found = error.strerror or str(error)
            raise SessionError(
                f"port {port} on {host}",
                found + (f" by {holder}" if holder else ""),
                "a free port",
                "Stop what listens there, or leave port out of the recipe",
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
                return f"{name_of(connection.pid)} (pid {connection.pid})"
    except psutil.AccessDenied:
        return None
    return None


def _program(recipe: Recipe, engine: EngineDef) -> None:
    program = engine.program(recipe)[0]
    if shutil.which(program) is None:
        do = f"Install {engine.name}, or set executable in the recipe"
        raise SessionError(program, "no such program", "it on PATH", do)
    model = recipe.model or ""
    looks_local = model.startswith(("/", "./", "../", "~")) or model.endswith(".gguf")
    if looks_local and not Path(model).expanduser().exists():
        do = "Check model in the recipe"
        raise SessionError(model, "no such file or folder", "the model", do)


def _timelines(plan: Plan) -> Iterator[Finding]:
    """Say before any boot which timelines there will not be, or may not be."""
    why, tracing = no_tool(plan.recipe), plan.recipe.tracing
    traced = [launch for launch in plan.launches if launch.traced]
    for launch in traced:
        if why is not None:
            yield Finding(
                code="trace-not-taken",
                severity="warning",
                message=f"{launch.name} is left out, and so are its timelines: {why}",
                hint="Install NVIDIA Nsight Systems and go on with --resume, or leave"
                ' tool = "nsys" out of [capture].',
            )
    folder = tempfile.gettempdir()
    free = shutil.disk_usage(folder).free
    nsys = tracing is not None and tracing.tool == "nsys"
    if traced and nsys and why is None and free < _SCANT_DISK_BYTES:
        yield Finding(
            code="little-disk",
            severity="warning",
            message=f"{free // BYTES_PER_MIB} MiB are free in {folder}, where nsys"
            " writes a timeline first",
            hint="Set TMPDIR to a folder with room.",
        )


def _no_gpu(engine: EngineDef) -> Finding:
    needed = engine.name in ("vllm", "sglang")
    return Finding(
        code="no-gpu-telemetry",
        severity="warning" if needed else "info",
        message="no NVIDIA driver answers: GPUs are not sampled, so power, clocks and"
        " GPU counters are unknown",
        hint="`stepscope doctor` says what is missing." if needed else "",
    )


def _vllm_memory(launch: LaunchPlan, engine: EngineDef, gpus: Gpus) -> None:
    """Refuse a boot that vLLM itself would refuse after loading its libraries.

    Source: vLLM, request_memory: free memory below utilization x total is an error.
    """
    flags = launch.configuration.flags
    share = _number(flags, "gpu-memory-utilization", _VLLM_UTILIZATION)
    layout = engine.layout(flags)
    visible = visible_gpus(launch.configuration)
    if share is None or "kv-cache-memory-bytes" in flags or visible is None:
        return
    used = gpus.used_bytes()
    chosen = range(len(used)) if not visible else [i for i in visible if i < len(used)]
    for i in list(chosen)[: layout.tp * layout.pp * layout.dp]:
        held, total = used[i], gpus.identities[i].memory_bytes
        if held is None or total is None or total - held >= share * total:
            continue
        free = total - held
        raise SessionError(
            f"GPU {i}",
            f"{gib(free):.1f} of {gib(total):.1f} GiB are free{_held_by(gpus, i)}",
            f"vLLM asks for {share:g} of it, {gib(share * total):.1f} GiB",
            "End what holds it, or lower gpu-memory-utilization below"
            f" {int(100 * free / total) / 100:.2f}",
        )


def _number(flags: Flags, name: str, default: float) -> float | None:
    """Return a flag as a number; None where it is none."""
    value = flags.get(name)
    if value is None:
        return default
    try:
        return float(value)
    except ValueError:
        return None


def visible_gpus(configuration: Configuration) -> list[int] | None:
    """Return the indices of CUDA_VISIBLE_DEVICES; empty: all; None: not indices."""
    text = configuration.environment.get(
        "CUDA_VISIBLE_DEVICES", os.environ.get("CUDA_VISIBLE_DEVICES", "")
    )
    words = [word.strip() for word in text.split(",") if word.strip()]
    if not all(word.isdecimal() for word in words):
        return None
    return [int(word) for word in words]


def _held_by(gpus: Gpus, index: int) -> str:
    holders = [h for h in gpus.holders() if h.gpu == index and h.bytes_held]
    if not holders:
        return ", by a process that can not be seen from here"
    most = max(holders, key=lambda h: h.bytes_held or 0)
    name = name_of(most.pid) or "not visible from here"
    return f": pid {most.pid} ({name}) holds {gib(most.bytes_held or 0):.1f} GiB"


def _holders(gpus: Gpus) -> Iterator[Finding]:
    told: set[int] = set()
    for holder in gpus.holders():
        held = holder.bytes_held
        if held is not None and held < _SMALL_HOLDING_BYTES:
            continue
        told.add(holder.gpu)
        amount = "memory" if held is None else f"{gib(held):.1f} GiB"
        name = name_of(holder.pid) or "not visible from here"
        yield _holding(
            f"pid {holder.pid} ({name}) holds {amount} of GPU {holder.gpu}",
            "If it is left over from an earlier server, end it.",
        )
    for index, used in enumerate(gpus.used_bytes()):
        if index not in told and used is not None and used > _UNSEEN_HOLDING_BYTES:
            yield _holding(
                f"{gib(used):.1f} GiB of GPU {index} are in use by a process that can"
                " not be seen from here",
                "Another container, or a killed server: look on the host.",
            )


def _holding(message: str, hint: str) -> Finding:
    return Finding(
        code="gpu-memory-held", severity="warning", message=message, hint=hint
    )
