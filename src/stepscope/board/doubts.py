"""Why a byte floor may not be this server's: model, weights, device, time must agree.

A floor is arithmetic on a config.json and a GPU's name. Where the log, the memory in
use or the step itself says that one of the two is another, the floor supports nothing.
"""

from dataclasses import dataclass
from functools import lru_cache

import msgspec

from stepscope.analysis.degrees import flag_of, told_degrees
from stepscope.analysis.floor import refuted
from stepscope.analysis.records import Analysis
from stepscope.errors import StepscopeError
from stepscope.physics.hardware import find_gpu
from stepscope.physics.shapes import model_shape
from stepscope.physics.step import weight_share
from stepscope.recipe.records import Layout
from stepscope.run.run import Launch, Run
from stepscope.units import gib

#: No kernel takes more of a data sheet's bandwidth; plain copies reach 87 % on an H200.
REACHES_PCT = 95.0
#: Weights in memory over those that steps can read. Engines add embedding rows, drafts
#: and copies in other layouts; they leave none out.
_LEAST_LOADED = 0.9
_MOST_LOADED = 1.6
#: Drivers count a "141 GB" device as 150.7e9 bytes.
_DRIVER_COUNTS = 1.1
#: Fields of a config.json that only a mixture of experts has.
_ROUTES = ("num_experts_per_tok", "num_experts_per_token", "moe_intermediate_size")
_PLAIN = (None, "None", "none", False, "")


@dataclass(frozen=True, slots=True)
class Doubt:
    """Why a floor is not believed, and what would settle it."""

    why: str
    settles: str


def floor_doubts(run: Run, analysis: Analysis, configuration: str) -> tuple[Doubt, ...]:
    """Return what speaks against the byte floor of a configuration.

    Args:
        run: The run.
        analysis: Its floors.
        configuration: Whose floor.
    """
    launches = [x for x in run.launches if x.configuration == configuration]
    found = (
        *_other_layout(run, launches),
        *_other_weights(run, launches),
        *_other_device(run, launches),
        *_too_long(run, analysis, configuration),
        *_not_read(analysis, configuration),
    )
    return tuple(dict.fromkeys(found))


def _other_layout(run: Run, launches: list[Launch]) -> list[Doubt]:
    for launch in launches:
        for name, told in told_degrees(launch).items():
            taken = getattr(run.layout, name)
            if told != taken:
                why = (
                    f"the floor is for {name} = {taken}, and {launch.name} was started"
                    f" with {name} = {told}: a rank reads other bytes"
                )
                return [Doubt(why, "Give each layout a run of its own.")]
    return []


def _other_weights(run: Run, launches: list[Launch]) -> list[Doubt]:
    if run.model_config is None:
        return []
    found = []
    if _lacks_experts(run.model_config):
        why = (
            "the config routes tokens to experts and does not say how many there are:"
            " the floor is a dense model's"
        )
        found.append(Doubt(why, "Give a config.json with the number of experts."))
    read = _readable_bytes(run.model_config, run.layout)
    for launch in launches:
        log = launch.log
        loaded = None if log is None else log.ledger.weights_gib
        if read and loaded and not _LEAST_LOADED <= loaded / gib(read) <= _MOST_LOADED:
            found.append(
                Doubt(
                    f"the log loaded {loaded:.4g} GiB of weights a GPU, and by config"
                    f" and layout steps can read {gib(read):.4g} GiB: they are of"
                    " another type or model, or not all in this memory",
                    "Give the config.json of what was loaded, its quantization_config"
                    " and the layout with it.",
                )
            )
        kind = _quantized(launch)
        if kind is not None and "quantization_config" not in run.model_config:
            found.append(
                Doubt(
                    f"the server quantized the weights ({kind}) and the config has no"
                    " quantization_config: the floor counts bytes that are not there",
                    "Give a config.json with the quantization_config that was used.",
                )
            )
    return found


def _quantized(launch: Launch) -> str | None:
    """Return the quantization that the server was told or resolved; None: none."""
    resolved = None if launch.log is None else launch.log.resolved.get("quantization")
    if resolved not in _PLAIN:
        return str(resolved)
    told = flag_of(launch.command, ("--quantization", "-q"))
    return None if told in _PLAIN else told


@lru_cache(maxsize=64)
def _lacks_experts(config: str) -> bool:
    """Whether a config has experts a token, and the shape that it gives has none."""
    try:
        shape = model_shape(config)
    except StepscopeError:
        return False
    fields = msgspec.json.decode(config)
    text = fields.get("text_config") or fields
    return shape.experts is None and any(text.get(name) for name in _ROUTES)


@lru_cache(maxsize=64)
def _readable_bytes(config: str, layout: Layout) -> float | None:
    """Return the weights of a rank that steps can read, bytes; None: not known.

    Left out: tables of which a token gathers rows. Not told under pipeline parallelism,
    where ranks hold different stages.
    """
    if layout.pp > 1:
        return None
    try:
        shape = model_shape(config)
    except StepscopeError:
        return None
    return sum(
        weight.n_bytes * weight_share(weight, layout, dp_shares_experts=True)
        for weight in shape.weights
        if weight.read != "gather"
    )


def _other_device(run: Run, launches: list[Launch]) -> list[Doubt]:
    gpu = find_gpu(run.gpu) if run.gpu else None
    if gpu is None:
        return []
    settles = "Name the GPU that it ran on, as the driver spells it."
    named = [
        (str(name),)
        for launch in launches
        if launch.log is not None and (name := launch.log.resolved.get("device_name"))
    ]
    # A server's log names its own device; a machine may hold others beside it.
    for names in (*named, run.machine.gpus):
        known = {other.name for name in names if (other := find_gpu(name)) is not None}
        if known and gpu.name not in known:
            why = f"the run names {run.gpu}, and the server ran on {names[0]}"
            return [Doubt(f"{why}: bandwidth and peaks are another's", settles)]
    used = max((s.memory_used_bytes or 0 for s in run.samples.gpu), default=0)
    if used > _DRIVER_COUNTS * gpu.memory_bytes:
        why = (
            f"{gib(used):.4g} GiB of GPU memory were in use, more than {run.gpu} has:"
            " bandwidth and peaks are another's"
        )
        return [Doubt(why, settles)]
    return []


def _too_long(run: Run, analysis: Analysis, configuration: str) -> list[Doubt]:
    """Say where bytes would take longer than the step that is said to move them."""
    points = [
        point
        for point in analysis.floor
        if point.configuration == configuration
        and point.step_ms
        and 100 * point.floor_ms > REACHES_PCT * point.step_ms
    ]
    if not points or run.layout.pp > 1:
        return []
    worst = max(points, key=lambda p: p.floor_ms / (p.step_ms or 1.0))
    return [
        Doubt(
            f"at concurrency {worst.concurrency} the bytes alone need"
            f" {worst.floor_ms:.3g} ms at the data sheet's bandwidth, of a step of"
            f" {worst.step_ms:.3g} ms: no memory gives more than"
            f" {REACHES_PCT:.0f} % of it, so shapes, types of weights, device, routing"
            " or tokens a step are not as taken",
            "Check config.json, layout, quantization and the GPU's name; measure"
            " routing and tokens a step.",
        )
    ]


def _not_read(analysis: Analysis, configuration: str) -> list[Doubt]:
    """Say where the DRAM counter read less than the floor's bytes come to."""
    points = [
        point
        for point in analysis.floor
        if point.configuration == configuration and refuted(point)
    ]
    if not points:
        return []
    worst = max(points, key=lambda p: (p.needed_pct or 0.0) - (p.read_pct or 0.0))
    return [
        Doubt(
            f"at concurrency {worst.concurrency} the bytes come to at least"
            f" {worst.needed_pct:.3g} % of the data sheet's bandwidth over the cell,"
            " and the DRAM counter of the GPU that reads most says"
            f" {worst.read_pct:.3g} %: they were not moved, so routing is not uniform,"
            " or shapes or types of weights are not as taken",
            "Measure routing (stepscope floor --routing takes the tokens that each"
            " expert got); check config.json, layout and quantization.",
        )
    ]
