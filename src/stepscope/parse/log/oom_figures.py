"""The figures of messages about GPU memory, in GiB."""

from stepscope.parse.log.signatures import (
    OOM_GPU,
    OOM_NUMBERS,
    OTHER_PROCESS,
    SCALE_GIB,
)

#: Of the sum of two figures that are printed to 0.01.
_ROUNDING_GIB = 0.02
#: No GPU has as many GiB.
_BYTES_ABOVE = 1e6


def oom_numbers(text: str) -> dict[str, float]:
    """Read the figures of an out-of-memory message, in GiB."""
    found: dict[str, float] = {}
    for name, pattern in OOM_NUMBERS.items():
        hit = pattern.search(text)
        if hit is None:
            continue
        value, unit = (
            (g for g in hit.groups()[-2:]) if hit[1] is None else hit.group(1, 2)
        )
        found[name] = round(float(value) * SCALE_GIB[unit or "bytes"], 6)
    gpu = OOM_GPU.search(text)
    if gpu is not None:
        found["gpu"] = float(gpu[1])
    _tenants(text, found)
    return found


def _tenants(text: str, found: dict[str, float]) -> None:
    """Tell the failing process from others among "Process N has ... in use".

    In a container the driver knows this process by another number, so that its own
    share is listed as if it were somebody else's and "this process has" is missing.
    It is then the one that is nearest above what PyTorch holds.
    """
    listed = [float(gib) * SCALE_GIB[unit] for _, gib, unit in
              OTHER_PROCESS.findall(text)]  # fmt: skip
    if listed and "in_use_gib" not in found and "allocated_gib" in found:
        held = found["allocated_gib"] + found.get("reserved_gib", 0.0)
        own = [gib for gib in listed if gib >= held - _ROUNDING_GIB]
        if own:
            found["in_use_gib"] = round(min(own), 6)
            listed.remove(min(own))
    if listed:
        found["other_process_gib"] = round(max(listed), 6)


def in_gib(numbers: dict[str, float]) -> None:
    """Turn the bytes that vLLM 0.8 printed into the GiB of later releases."""
    for name in ("initial", "current"):
        if numbers.get(name, 0.0) > _BYTES_ABOVE:
            numbers[name] = round(numbers[name] / (1 << 30), 2)
