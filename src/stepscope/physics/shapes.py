"""config.json -> ModelShape."""

from stepscope.errors import RecipeError, RefusedError
from stepscope.physics.model import config as names, deepseek_v4
from stepscope.physics.model.attention import grouped, latent
from stepscope.physics.model.build import Builder
from stepscope.physics.model.config import Config, read_config
from stepscope.physics.model.families import FAMILIES, Family
from stepscope.physics.model.feedforward import (
    dense,
    is_sparse,
    n_experts,
    shared_width,
    sparse,
)
from stepscope.physics.model.layers import layer_kinds
from stepscope.physics.model.mixers import MIXERS
from stepscope.physics.model.quantization import quantization
from stepscope.physics.model.records import Experts, ModelShape


def model_shape(
    config_json: str, where: str = "config.json", *, like: str | None = None
) -> ModelShape:
    """Return weights and caches of the model that a config.json describes.

    Args:
        config_json: The file's text.
        where: What to call it in errors.
        like: Model type whose habits to assume where the config's own is unknown.

    Raises:
        RecipeError: It is no config, or a field is missing or makes no sense.
        RefusedError: The architecture, a kind of layer or the quantization is not
            known, so that every figure would be a guess.
    """
    config = read_config(config_json, where)
    model_type = str(config.get("model_type") or "")
    family = _family(config, model_type, like)
    for name, value in family.defaults:
        if config.fields.get(name) is None:
            config.fields[name] = value
            config.assume(f"No {name}: the architecture's default of {value} is taken.")
    build = Builder(config, quantization(config))
    n_layers = config.count(*names.LAYERS)
    if n_layers == 0:
        raise RecipeError(f"{where}: num_hidden_layers", "0", "at least one layer")
    _layers(build, family)
    _ends(build, family)
    _drafts(config)
    return ModelShape(
        name=_name(config, model_type),
        model_type=model_type,
        n_layers=n_layers,
        hidden_size=config.count(*names.HIDDEN),
        vocab_size=config.count("vocab_size"),
        max_context=config.maybe(*names.CONTEXT),
        weights=tuple(build.weights),
        caches=tuple(build.caches),
        experts=_experts(build, family),
        weight_format=build.quant.name,
        element_bytes=build.quant.plain.bits / 8,
        kv_dtype="packed"
        if family.attention == "deepseek-v4"
        else build.quant.kv_dtype,
        stream_width=config.count("hc_mult", default=1),
        n_attention_heads=config.maybe(*names.HEADS),
        assumptions=tuple(config.assumptions),
    )


def _family(config: Config, model_type: str, like: str | None) -> Family:
    family = FAMILIES.get(model_type)
    if family is not None:
        return family
    if like is None:
        raise RefusedError(
            f"{config.where}: model_type",
            f"{model_type!r} is not known, so its weights can not be counted",
            f"one of {', '.join(sorted(FAMILIES))}",
            "Say --like MODEL_TYPE to assume the habits of one of these",
        )
    if like not in FAMILIES:
        raise RecipeError(
            "--like", f"{like!r}", f"one of {', '.join(sorted(FAMILIES))}"
        )
    config.assume(f"Model type {model_type!r} is not known: counted as if {like}.")
    return FAMILIES[like]


def _name(config: Config, model_type: str) -> str:
    path = config.outer.get("_name_or_path")
    if isinstance(path, str) and path and not path.startswith(("/", ".")):
        return path
    listed = config.outer.get("architectures")
    if isinstance(listed, list) and listed:
        return str(listed[0])
    return model_type


def _layers(build: Builder, family: Family) -> None:
    config = build.config
    v4 = deepseek_v4.geometry(build) if family.attention == "deepseek-v4" else None
    n_norms = family.n_norms * (2 if family.norm_bias else 1)
    for layer, kind in enumerate(layer_kinds(config, family)):
        build.layer = layer
        if kind not in ("dense", "sparse"):
            _attention(build, family, kind, v4)
        if kind == "sparse" or (not family.single and is_sparse(config, layer)):
            sparse(build, family)
        elif kind == "dense" or not family.single:
            dense(build, family)
        build.vector("norms", n_norms * config.count(*names.HIDDEN))
    build.layer = None
    if v4 is not None:
        deepseek_v4.head_streams(build, v4)


def _attention(
    build: Builder, family: Family, kind: str, v4: deepseek_v4.Geometry | None
) -> None:
    if v4 is not None:
        deepseek_v4.attention(build, v4)
        deepseek_v4.streams(build, v4)
        deepseek_v4.engram(build, v4)
    elif kind == "mixer":
        MIXERS[family.mixer](build)
    elif family.attention == "latent":
        latent(build)
    else:
        grouped(build, family, kind)


def _ends(build: Builder, family: Family) -> None:
    config = build.config
    hidden, vocab = config.count(*names.HIDDEN), config.count("vocab_size")
    build.vector("norm", hidden * (2 if family.norm_bias else 1))
    tied = config.get("tie_word_embeddings")
    if tied is None:
        tied = config.outer.get("tie_word_embeddings")
    if not (family.tied if tied is None else tied):
        row = build.quant.plain.n_bytes(1, hidden)
        build.table("embed_tokens", (vocab, hidden), 1, row)
    build.matrix("lm_head", (vocab, hidden), role="plain")
    if family.head_bias or config.flag("lm_head_bias"):
        build.vector("lm_head.bias", vocab, "tp")


def _drafts(config: Config) -> None:
    if config.count("num_nextn_predict_layers", "mtp_num_hidden_layers", default=0):
        config.assume(
            "Draft layers (multi-token prediction) are not counted, and no"
            " speculation is assumed."
        )


def _experts(build: Builder, family: Family) -> Experts | None:
    config = build.config
    n = n_experts(config)
    n_layers = sum(1 for w in build.weights if w.read == "coverage")
    if not n or not n_layers:
        return None
    width = shared_width(config, family)
    n_shared = config.count("n_shared_experts", "num_shared_experts", default=0)
    return Experts(
        n=n,
        per_token=config.count(*names.TOP_K),
        params_each=build.n_expert_params,
        bytes_each=build.expert_bytes,
        n_layers=n_layers,
        n_shared=n_shared or (1 if width else 0),
    )
