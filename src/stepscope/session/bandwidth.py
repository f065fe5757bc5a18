"""The rate at which this machine's own kernels read and copy GPU memory.

No kernel reaches a data sheet's bandwidth. The best of several plain kernels is what
a byte floor should be divided by; ``stepscope floor --bandwidth FILE`` takes it.
"""

import statistics
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from stepscope.errors import SessionError

N_WARM_UP = 3
N_TIMED = 20
#: Far above any last-level cache, so that every pass comes from memory.
BUFFER_BYTES = 4 << 30
SMALLEST_BUFFER_BYTES = 512 << 20
ROW = 8192


class Bandwidth(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Measured memory rates of one GPU.

    Attributes:
        gpu: The driver's name of the device.
        buffer_bytes: Size of the buffer that was read.
        read_bytes_per_s: Best median rate of the reading kernels.
        read_kernel: The kernel that reached it.
        copy_bytes_per_s: Median rate of a device copy, bytes read and bytes written
            both counted.
        rates: Median rate of each kernel.
        spread_pct: Of the best kernel: slowest over fastest pass, less one.
    """

    gpu: str
    buffer_bytes: int
    read_bytes_per_s: float
    read_kernel: str
    copy_bytes_per_s: float
    rates: dict[str, float]
    spread_pct: float


def summary(
    gpu: str, buffer_bytes: int, passes: Mapping[str, tuple[int, tuple[float, ...]]]
) -> Bandwidth:
    """Turn timed passes into rates.

    Args:
        gpu: Device name.
        buffer_bytes: Size of the buffer.
        passes: Kernel -> bytes that one pass moves, and seconds of each pass. The
            kernel ``copy`` must be among them, and at least one that reads.

    Raises:
        SessionError: A pass took no time: the device's timer can not be trusted.
    """
    for name, (_, seconds) in passes.items():
        if not seconds or min(seconds) <= 0:
            raise SessionError(
                gpu, f"kernel {name} took no time", "passes of more than 0 s"
            )
    rates = {n: moved / statistics.median(s) for n, (moved, s) in passes.items()}
    best = max((n for n in rates if n != "copy"), key=lambda n: rates[n])
    seconds = passes[best][1]
    return Bandwidth(
        gpu=gpu,
        buffer_bytes=buffer_bytes,
        read_bytes_per_s=rates[best],
        read_kernel=best,
        copy_bytes_per_s=rates["copy"],
        rates=rates,
        spread_pct=100 * (max(seconds) / min(seconds) - 1),
    )


def measure_bandwidth(device: int = 0) -> Bandwidth:
    """Measure one GPU with PyTorch kernels; about a second.

    Reads with a sum, a maximum and a matrix-vector product (what a decode step is
    made of), and copies. Timed by the device's own events. Close servers first: a
    shared device gives a low rate.

    Args:
        device: Index of the GPU.

    Raises:
        SessionError: PyTorch is absent, sees no such GPU, or the GPU has less than
            a GiB free.
    """
    torch = _torch(device)
    free, _ = torch.cuda.mem_get_info(device)
    n_bytes = min(BUFFER_BYTES, int(free // 3) // (4 * ROW) * (4 * ROW))
    if n_bytes < SMALLEST_BUFFER_BYTES:
        raise SessionError(
            f"GPU {device}",
            f"{free / 2**30:.1f} GiB free",
            f"{3 * SMALLEST_BUFFER_BYTES / 2**30:.1f} GiB",
            "Stop what runs on it, then measure again",
        )
    with torch.cuda.device(device), torch.inference_mode():
        source = torch.zeros(n_bytes // 4, dtype=torch.float32, device="cuda")
        target = torch.empty_like(source)
        halves = source.view(torch.bfloat16).view(-1, ROW)
        vector = torch.zeros(ROW, dtype=torch.bfloat16, device="cuda")
        kernels: dict[str, tuple[int, Callable[[], object]]] = {
            "sum": (n_bytes, source.sum),
            "amax": (n_bytes, source.amax),
            "matrix-vector": (n_bytes, lambda: torch.mv(halves, vector)),
            "copy": (2 * n_bytes, lambda: target.copy_(source)),
        }
        passes = {
            name: (moved, _seconds(torch, kernel))
            for name, (moved, kernel) in kernels.items()
        }
        gpu = str(torch.cuda.get_device_name(device))
    return summary(gpu, n_bytes, passes)


def _torch(device: int) -> Any:
    try:
        import torch
    except ImportError as error:
        raise SessionError(
            "doctor --bandwidth",
            "PyTorch is not installed",
            "the environment that runs the server has it",
            "Install stepscope there, or give floor --bandwidth a number",
        ) from error
    n = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if device >= n:
        raise SessionError(
            f"GPU {device}", f"PyTorch sees {n} GPUs", "the index of one of them"
        )
    return torch


def _seconds(torch: Any, kernel: Callable[[], object]) -> tuple[float, ...]:
    for _ in range(N_WARM_UP):
        kernel()
    events = [
        (torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True))
        for _ in range(N_TIMED)
    ]
    for begin, end in events:
        begin.record()
        kernel()
        end.record()
    torch.cuda.synchronize()
    return tuple(begin.elapsed_time(end) / 1e3 for begin, end in events)
