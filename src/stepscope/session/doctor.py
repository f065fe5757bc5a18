"""What this machine can measure, what is missing, and how to get it. Starts nothing."""

import importlib.util
import os
import re
import resource
import shutil
import socket
import subprocess
from pathlib import Path
from typing import Literal

import msgspec
import psutil

from stepscope.clock import Clock
from stepscope.engines.nsys import PROGRAM
from stepscope.run.run import Machine
from stepscope.session.bandwidth import Bandwidth, measure_bandwidth
from stepscope.session.header import machine
from stepscope.session.nvml import Check, Gpus, check
from stepscope.session.watch.host import cgroup_memory, cgroup_memory_files
from stepscope.session.watch.kernel import KernelLog
from stepscope.units import gib

State = Literal["ok", "missing", "limited"]
_SO_TIMESTAMPNS = 35
_VERSION = re.compile(r"\d{4}\.\d+(?:\.\d+)*")
_WANTED_FILES = 4096
_SCANT_DISK_GIB = 5.0
#: (program, what it is for, how to get it).
_PROGRAMS = (
    ("vllm", 'engine = "vllm"', "pip install vllm, or set executable in the recipe"),
    ("llama-server", 'engine = "llamacpp"', "build llama.cpp, or take a release"),
    ("nvidia-smi", "a second opinion on NVML", "comes with the NVIDIA driver"),
)


class Line(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One thing that was looked at.

    Attributes:
        name: What.
        state: ``ok``, ``limited`` (it measures, with less) or ``missing``.
        found: What was seen.
        gives: What it lets stepscope measure.
        get: What to do about it; empty when it is ok.
    """

    name: str
    state: State
    found: str
    gives: str = ""
    get: str = ""


class Diagnosis(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything that was looked at.

    ``bandwidth``: measured rates of GPU 0, only where they were asked for.
    """

    machine: Machine
    lines: tuple[Line, ...]
    gpus: Check | None
    bandwidth: Bandwidth | None = None


def diagnosis(out: Path, clock: Clock, *, bandwidth: bool = False) -> Diagnosis:
    """Look at the machine.

    Args:
        out: Where runs would go: its disk is looked at.
        clock: Between two GPU samples; this takes 0.2 s where there are GPUs.
        bandwidth: Also run kernels that measure the memory of GPU 0.

    Raises:
        SessionError: Bandwidth was asked for and can not be measured here.
    """
    gpus = Gpus.open()
    seen = None if gpus is None else check(gpus, clock)
    here = machine(gpus)
    if gpus is not None:
        gpus.close()
    lines = (
        *_gpu_lines(seen),
        *_host_lines(here),
        _stamps(),
        _disk(out),
        _files(),
        _embedded(),
        _module("sglang", 'engine = "sglang"', "pip install sglang"),
        _nsys(),
        *(_program(*row) for row in _PROGRAMS),
    )
    rates = measure_bandwidth() if bandwidth else None
    return Diagnosis(machine=here, lines=lines, gpus=seen, bandwidth=rates)


def _gpu_lines(seen: Check | None) -> list[Line]:
    gives = "utilization, power, clocks, throttle reasons, memory"
    counters = "SM activity and occupancy, tensor, DRAM, PCIe, NVLink"
    if seen is None:
        get = "install the NVIDIA driver; in a container, start it with --gpus all"
        return [
            Line(
                name="GPU",
                state="missing",
                found="no NVIDIA driver answers",
                gives=gives,
                get=get,
            )
        ]
    lines = [
        Line(
            name="NVML",
            state="ok",
            found=f"driver {seen.driver}, {len(seen.gpus)} GPUs,"
            f" {seen.sample_ms:.1f} ms a sample of all",
            gives=gives,
        )
    ]
    for gpu, sample in zip(seen.gpus, seen.samples, strict=True):
        memory = (
            "" if gpu.memory_bytes is None else f", {gib(gpu.memory_bytes):.0f} GiB"
        )
        silent = [n for n in _CORE_FIELDS if getattr(sample, n) is None]
        lines.append(
            Line(
                name=f"GPU {gpu.index}",
                state="limited" if silent else "ok",
                found=f"{gpu.name}{memory}"
                + (f"; not told: {', '.join(silent)}" if silent else ""),
                get="the driver or a MIG slice hides them" if silent else "",
            )
        )
        counted = sample.sm_active_pct is not None
        found = f"SM activity {sample.sm_active_pct:.1f} %" if counted else "offered"
        lines.append(
            Line(
                name=f"GPU {gpu.index} counters (GPM)",
                state="ok" if counted else "limited" if gpu.gpm else "missing",
                found=found if gpu.gpm else "not offered",
                gives=counters,
                get="" if counted else "Hopper or later, and no MIG slice, offer them",
            )
        )
    return lines


_CORE_FIELDS = (
    "util_pct",
    "power_w",
    "power_limit_w",
    "sm_clock_mhz",
    "sm_clock_max_mhz",
    "throttle_reasons",
    "memory_used_bytes",
)


def _host_lines(here: Machine) -> list[Line]:
    ours, there = os.sched_getaffinity(0), psutil.cpu_count() or 0
    few = len(ours) < 4
    files = cgroup_memory_files()
    used, limit = cgroup_memory(files)
    known = files is not None
    charged = "" if used is None else f"{gib(used):.1f} GiB charged, "
    allowed = "no limit" if limit is None else f"limit {gib(limit):.1f} GiB"
    return [
        Line(
            name="CPU",
            state="limited" if few else "ok",
            found=f"{len(ours)} of {there} processors are ours, {here.cpu_model}",
            gives="room for the client beside the server",
            get="give the client cores of its own" if few else "",
        ),
        Line(
            name="memory cgroup",
            state="ok" if known else "missing",
            found=f"{charged}{allowed}" if known else "not readable",
            gives="how near the host's memory limit a boot comes",
            get="" if known else "mount /sys/fs/cgroup into the container",
        ),
        _kernel(),
    ]


def _kernel() -> Line:
    log = KernelLog()
    seen = log.readable
    log.close()
    return Line(
        name="kernel log",
        state="ok" if seen else "missing",
        found="/dev/kmsg is read" if seen else "/dev/kmsg may not be read",
        gives=""
        if seen
        else "kills and GPU errors that the kernel logs during a launch",
        get=""
        if seen
        else "run as root, or give the container CAP_SYSLOG and /dev/kmsg",
    )


def _stamps() -> Line:
    """Receive one datagram and look for the kernel's stamp."""
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender,
    ):
        receiver.bind(("127.0.0.1", 0))
        receiver.settimeout(1.0)
        try:
            receiver.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
            sender.sendto(b"?", receiver.getsockname())
            _, ancillary, _, _ = receiver.recvmsg(16, 256)
        except OSError:
            ancillary = []
    stamped = any(kind == _SO_TIMESTAMPNS for _, kind, _ in ancillary)
    return Line(
        name="kernel receive stamps",
        state="ok" if stamped else "limited",
        found="SO_TIMESTAMPNS works" if stamped else "the kernel gives none",
        gives="when bytes arrived, apart from when the client read them",
        get="" if stamped else "a Linux kernel without a sandbox in between",
    )


def _disk(out: Path) -> Line:
    there = next(p for p in (out.absolute(), *out.absolute().parents) if p.exists())
    free = gib(shutil.disk_usage(there).free)
    scant = free < _SCANT_DISK_GIB
    return Line(
        name="disk",
        state="limited" if scant else "ok",
        found=f"{free:.1f} GiB free where {out} would go",
        get="make room, or give another --out" if scant else "",
    )


def _files() -> Line:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = None if hard == resource.RLIM_INFINITY else hard
    few = most is not None and most < _WANTED_FILES
    return Line(
        name="open files",
        state="limited" if few else "ok",
        found=f"{soft}, raised up to {'any number' if most is None else most}",
        gives="one connection for each request in flight",
        get=f"ulimit -n {_WANTED_FILES}" if few else "",
    )


def _embedded() -> Line:
    return _module(
        "xllamacpp", "stepscope demo", "pip install 'stepscope[embedded]'", "embedded"
    )


def _module(module: str, gives: str, get: str, name: str = "") -> Line:
    there = importlib.util.find_spec(module) is not None
    return Line(
        name=f"engine {name or module}",
        state="ok" if there else "missing",
        found=f"module {module} is here" if there else f"no module {module} here",
        gives=gives,
        get="" if there else get,
    )


def _nsys() -> Line:
    """Look for nsys and ask it for its version, which starts nothing else."""
    path = shutil.which(PROGRAM)
    gives = 'kernel timelines of any server: tool = "nsys" in [capture]'
    if path is None:
        get = "install NVIDIA Nsight Systems; the nsight-systems-cli package will do"
        return Line(
            name="nsys", state="missing", found="not on PATH", gives=gives, get=get
        )
    try:
        answer = subprocess.run(  # noqa: S603  # the program that PATH names
            [path, "--version"], capture_output=True, timeout=10, check=False
        )
        told = answer.stdout.decode("utf-8", "replace")
    except (OSError, subprocess.TimeoutExpired) as error:
        told = str(error)
    hit = _VERSION.search(told)
    version = f"version {hit[0]}" if hit else "it gives no version"
    return Line(
        name="nsys",
        state="ok" if hit else "limited",
        found=f"{path}, {version}",
        gives=gives,
        get="" if hit else f"see what {path} --version prints",
    )


def _program(program: str, gives: str, get: str) -> Line:
    path = shutil.which(program)
    return Line(
        name=program,
        state="missing" if path is None else "ok",
        found=path or "not on PATH",
        gives=gives,
        get=get if path is None else "",
    )
