"""The question: which concurrencies, on which device, in which layout."""

from dataclasses import dataclass

import msgspec

from stepscope.analysis.floor import kv_dtype_of
from stepscope.analysis.predict.elsewhere import Move, Place
from stepscope.analysis.records import Analysis
from stepscope.errors import RecipeError, RefusedError
from stepscope.physics.hardware import Gpu, find_gpu, gpu_names
from stepscope.physics.kv import footprint
from stepscope.physics.model.records import ModelShape
from stepscope.physics.parts import resident_bytes
from stepscope.physics.shapes import model_shape
from stepscope.physics.step import StepOptions, check_layout
from stepscope.run.run import Launch, Run
from stepscope.units import BYTES_PER_GIB


@dataclass(frozen=True, slots=True)
class Asked:
    """What is asked; None keeps what the run had."""

    concurrencies: tuple[int, ...]
    configuration: str | None = None
    gpu: str | None = None
    tp: int | None = None
    dp: int | None = None


def move_of(run: Run, asked: Asked) -> Move | None:
    """Return the change of device or layout; None where nothing changes.

    Raises:
        RecipeError: No such device; or the layout does not fit the model.
        RefusedError: Shape or device are not known, or the weights do not fit.
    """
    if asked.gpu is not None and find_gpu(asked.gpu) is None:
        raise RecipeError(
            "--gpu", f"{asked.gpu!r} is not known", f"one of {', '.join(gpu_names())}"
        )
    layout = msgspec.structs.replace(
        run.layout,
        tp=asked.tp if asked.tp is not None else run.layout.tp,
        dp=asked.dp if asked.dp is not None else run.layout.dp,
    )
    same_gpu = asked.gpu is None or (
        run.gpu is not None and find_gpu(asked.gpu) == find_gpu(run.gpu) is not None
    )
    if same_gpu and layout == run.layout:
        return None
    if run.model_config is None:
        raise RefusedError(
            run.id,
            "the run holds no model config, so no bytes can be scaled",
            "config.json for another device or layout",
            "Give model_config in the recipe or import.toml",
        )
    if run.gpu is None:
        raise RefusedError(
            run.id, "the run names no GPU to scale from", "a run that used one"
        )
    options = StepOptions(kv_dtype=kv_dtype_of(run))
    shape = model_shape(run.model_config)
    check_layout(shape, layout)
    if layout.tp != run.layout.tp:
        _check_heads(shape, layout.tp)
    source = Place(gpu=_gpu(run.gpu), layout=run.layout)
    target = Place(gpu=_gpu(asked.gpu or run.gpu), layout=layout)
    held = resident_bytes(shape, layout, options)
    if held > target.gpu.memory_bytes:
        raise RefusedError(
            run.id,
            f"the weights of a rank take {held / 1e9:.0f} GB, and {target.gpu.name} has"
            f" {target.gpu.memory_bytes / 1e9:.0f} GB",
            "weights that fit",
            "Give more ranks with --tp",
        )
    return Move(shape=shape, options=options, source=source, target=target)


def _check_heads(shape: ModelShape, tp: int) -> None:
    """Refuse a split of attention that engines refuse at start.

    Source: vLLM and SGLang want the query heads of a rank to be whole, and its KV heads
        whole or one, repeated.
    """
    heads = shape.n_attention_heads
    if heads and heads % tp:
        raise RecipeError(
            "--tp", f"{tp} does not divide the {heads} attention heads", "a divisor"
        )
    for kv_heads in sorted({w.n_heads for w in shape.weights if w.split == "kv"}):
        if kv_heads % tp and tp % kv_heads:
            raise RecipeError(
                "--tp",
                f"{tp} neither divides the {kv_heads} KV heads nor is a multiple",
                "one of both, since a rank keeps whole heads",
            )


def _gpu(name: str) -> Gpu:
    gpu = find_gpu(name)
    if gpu is None:
        raise RefusedError(
            "predict", f"no data of {name!r}", f"one of {', '.join(gpu_names())}"
        )
    return gpu


def moved_kv_tokens(
    analysis: Analysis, launch: Launch | None, tokens: float | None, move: Move
) -> float | None:
    """Return the KV tokens that a target rank would hold; None: not known.

    Formula: memory of the target scaled as the driver's figure of the source is to
        its data sheet, times the server's utilization, less what the source spent
        beside weights and KV, less the target's weights; over bytes a token.
    Assumes: activations, graphs and the rest take what they took.
    """
    boot = next(
        (b for b in analysis.boot if launch is not None and b.launch == launch.name),
        None,
    )
    if boot is None or tokens is None:
        return None
    names = ("device_gib", "requested_gib", "kv_gib", "utilization")
    figures = [boot.ledger.get(name) for name in names]
    known = [float(v) for v in figures if isinstance(v, int | float) and v > 0]
    if len(known) < len(names):
        return None
    device, requested, kv, utilization = known
    weights, new_weights = (
        resident_bytes(move.shape, p.layout, move.options) / BYTES_PER_GIB
        for p in (move.source, move.target)
    )
    other = max(requested - kv - weights, 0.0)
    source, target = move.source.gpu, move.target.gpu
    memory = device * target.memory_bytes / source.memory_bytes
    room = memory * utilization - other - new_weights
    sizes = [
        footprint(move.shape, p.layout, kv_dtype=move.options.kv_dtype).bytes_per_token
        for p in (move.source, move.target)
    ]
    if not all(sizes) or room <= 0:
        return None
    return tokens * (room / kv) * sizes[0] / sizes[1]
