"""Which kind each layer is.

``full``, ``window`` and ``chunk`` are attention, ``mixer`` keeps a state; ``dense`` and
``sparse`` are layers that are nothing but an MLP.
"""

from collections.abc import Callable

from stepscope.errors import RecipeError, RefusedError
from stepscope.physics.model import config as names
from stepscope.physics.model.config import Config
from stepscope.physics.model.families import Family

#: Words of ``layer_types`` and ``layers_block_type``.
WORDS: dict[str, str] = {
    "full_attention": "full", "attention": "full", "global_attention": "full",
    "sliding_attention": "window", "local_attention": "window",
    "chunked_attention": "chunk", "linear_attention": "mixer", "mamba": "mixer",
    "moe": "sparse", "mlp": "dense",
}  # fmt: skip


def layer_kinds(config: Config, family: Family) -> list[str]:
    """Return the kind of each layer.

    Raises:
        RecipeError: A list has another length than there are layers.
        RefusedError: A kind of layer is not known.
    """
    n_layers = config.count(*names.LAYERS)
    v4 = family.attention == "deepseek-v4"
    listed = None if v4 else config.texts("layer_types", "layers_block_type")
    if listed is not None:
        if len(listed) < n_layers:
            raise RecipeError(
                f"{config.where}: layer_types",
                f"{len(listed)} entries",
                f"one for each of {n_layers} layers",
            )
        kinds = []
        for word in listed[:n_layers]:
            if word not in WORDS:
                raise RefusedError(
                    f"{config.where}: layer_types",
                    f"layers of kind {word!r} are not known",
                    f"kinds among {', '.join(WORDS)}",
                )
            kinds.append(WORDS[word])
        return kinds
    return [RULES[family.layers](config, i) for i in range(n_layers)]


def _full(config: Config, layer: int) -> str:
    return "full"


def _window(config: Config, layer: int) -> str:
    window = config.maybe("sliding_window")
    context = config.maybe(*names.CONTEXT)
    if not window or (context and window >= context):
        return "full"
    return "window"


def _qwen2(config: Config, layer: int) -> str:
    if not config.flag("use_sliding_window"):
        return "full"
    first = config.count("max_window_layers", default=0)
    return "window" if layer >= first else "full"


def _alternate(config: Config, layer: int) -> str:
    return "window" if layer % 2 == 0 else "full"


def _pattern(config: Config, layer: int) -> str:
    period = config.count(
        "sliding_window_pattern", "_sliding_window_pattern", default=6
    )
    return "full" if (layer + 1) % max(period, 1) == 0 else "window"


def _interval(config: Config, layer: int) -> str:
    period = config.count("full_attention_interval", default=4)
    return "full" if (layer + 1) % max(period, 1) == 0 else "mixer"


def _llama4(config: Config, layer: int) -> str:
    rope = config.counts("no_rope_layers")
    if rope and layer < len(rope):
        return "chunk" if rope[layer] else "full"
    period = config.count("no_rope_layer_interval", default=4)
    return "full" if (layer + 1) % max(period, 1) == 0 else "chunk"


def _attn_types(config: Config, layer: int) -> str:
    listed = config.counts("attn_type_list")
    if listed is None or layer >= len(listed):
        raise config.missing(("attn_type_list for each layer",))
    return "full" if listed[layer] else "mixer"


def _jamba(config: Config, layer: int) -> str:
    period = config.count("attn_layer_period", default=8)
    offset = config.count("attn_layer_offset", default=4)
    return "full" if layer % max(period, 1) == offset else "mixer"


def _bamba(config: Config, layer: int) -> str:
    return "full" if layer in (config.counts("attn_layer_indices") or ()) else "mixer"


def _override(config: Config, layer: int) -> str:
    pattern = str(config.get("hybrid_override_pattern") or "")
    letters = {"M": "mixer", "*": "full", "-": "dense", "E": "sparse"}
    if layer >= len(pattern) or pattern[layer] not in letters:
        raise RefusedError(
            f"{config.where}: hybrid_override_pattern",
            f"{pattern!r}",
            f"a letter of {', '.join(letters)} for each layer",
        )
    return letters[pattern[layer]]


def _kimi(config: Config, layer: int) -> str:
    linear = config.part("linear_attn_config")
    full = linear.counts("full_attn_layers") if linear else None
    if full is None:
        raise config.missing(("linear_attn_config.full_attn_layers",))
    return "full" if layer + 1 in full else "mixer"


def _listed(config: Config, layer: int) -> str:
    raise config.missing(("layer_types",))


RULES: dict[str, Callable[[Config, int], str]] = {
    "all-full": _full, "all-window": _window, "qwen2-window": _qwen2,
    "alternate": _alternate, "pattern": _pattern, "full-interval": _interval,
    "llama4": _llama4, "attn-type-list": _attn_types, "jamba": _jamba,
    "bamba": _bamba, "layer-types": _listed, "override-pattern": _override,
    "kimi-linear": _kimi,
}  # fmt: skip
