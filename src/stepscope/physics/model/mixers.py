"""Layers with a state of constant size: delta rule, Mamba, linear attention."""

from collections.abc import Callable

from stepscope.physics.model import config as names
from stepscope.physics.model.build import Builder
from stepscope.physics.model.quantization import DTYPE_BYTES
from stepscope.physics.model.records import Cache


def _state(build: Builder, n_conv: int, n_state: int, *, n_heads: int) -> None:
    # Convolution windows keep the model's type; the recurrent state keeps its own.
    config = build.config
    dtype = str(config.get("mamba_ssm_dtype", "mamba_ssm_cache_dtype") or "")
    plain = build.quant.plain.bits / 8
    if not dtype:
        config.assume(
            "Recurrent states are counted in the model's type; an engine that keeps"
            " them in fp32 reads twice as much of them."
        )
    width = DTYPE_BYTES.get(dtype, plain)
    assert build.layer is not None
    build.cache(
        Cache(
            layer=build.layer,
            kind="state",
            n_heads=n_heads,
            state_bytes=round(n_conv * plain + n_state * width),
            flops_per_entry=6 * n_state,
        )
    )


def _gated_delta(build: Builder) -> None:
    config = build.config
    hidden = config.count(*names.HIDDEN)
    k_heads, v_heads = (
        config.count("linear_num_key_heads"),
        config.count("linear_num_value_heads"),
    )
    dk, dv = config.count("linear_key_head_dim"), config.count("linear_value_head_dim")
    kernel = config.count("linear_conv_kernel_dim", default=4)
    keys, values = k_heads * dk, v_heads * dv
    build.matrix("linear_attn.in_proj_qkvz", (2 * keys + 2 * values, hidden))
    build.matrix("linear_attn.in_proj_ba", (2 * v_heads, hidden))
    build.vector("linear_attn.conv1d", (2 * keys + values) * kernel, "tp")
    build.vector("linear_attn.dt_bias_A_log", 2 * v_heads, "tp")
    build.vector("linear_attn.norm", dv)
    build.matrix("linear_attn.out_proj", (hidden, values))
    _state(
        build, (kernel - 1) * (2 * keys + values), v_heads * dk * dv, n_heads=v_heads
    )


def _mamba2(build: Builder) -> None:
    config = build.config
    hidden = config.count(*names.HIDDEN)
    heads = config.count("mamba_n_heads", "mamba_num_heads")
    width = config.count("mamba_d_head", "mamba_head_dim")
    groups = config.count("mamba_n_groups", "n_groups")
    size = config.count("mamba_d_state", "ssm_state_size")
    kernel = config.count("mamba_d_conv", "conv_kernel", default=4)
    inner = heads * width
    conv = inner + 2 * groups * size
    build.matrix("mamba.in_proj", (inner + conv + heads, hidden))
    bias = conv if config.flag("mamba_conv_bias", "use_conv_bias", default=True) else 0
    build.vector("mamba.conv1d", conv * kernel + bias, "tp")
    build.vector("mamba.dt_bias_A_log_D", 3 * heads, "tp")
    build.vector("mamba.norm", inner, "tp")
    build.matrix("mamba.out_proj", (hidden, inner))
    _state(build, (kernel - 1) * conv, inner * size, n_heads=heads)


def _mamba1(build: Builder) -> None:
    config = build.config
    hidden = config.count(*names.HIDDEN)
    inner = config.count("mamba_expand", default=2) * hidden
    size = config.count("mamba_d_state", default=16)
    kernel = config.count("mamba_d_conv", default=4)
    rank = config.get("mamba_dt_rank")
    rank = rank if isinstance(rank, int) else -(-hidden // 16)
    build.matrix("mamba.in_proj", (2 * inner, hidden))
    build.vector("mamba.conv1d", inner * (kernel + 1), "tp")
    build.matrix("mamba.x_proj", (rank + 2 * size, inner))
    build.matrix("mamba.dt_proj", (inner, rank))
    build.vector("mamba.dt_bias_A_log_D", inner * (size + 2), "tp")
    build.vector("mamba.inner_norms", rank + 2 * size)
    build.matrix("mamba.out_proj", (hidden, inner))
    _state(build, (kernel - 1) * inner, inner * size, n_heads=inner)


def _lightning(build: Builder) -> None:
    config = build.config
    hidden, heads = config.count(*names.HIDDEN), config.count(*names.HEADS)
    width = config.count("head_dim")
    build.matrix("self_attn.qkv_proj", (3 * heads * width, hidden))
    build.matrix("self_attn.output_gate", (heads * width, hidden))
    build.vector("self_attn.norm", heads * width, "tp")
    build.matrix("self_attn.out_proj", (hidden, heads * width))
    _state(build, 0, heads * width * width, n_heads=heads)


def _kda(build: Builder) -> None:
    # Kimi delta attention: a decay for each channel, low-rank gates.
    config = build.config
    hidden = config.count(*names.HIDDEN)
    linear = config.part("linear_attn_config")
    if linear is None:
        raise config.missing(("linear_attn_config",))
    heads, width = linear.count("num_heads"), linear.count("head_dim")
    kernel = linear.count("short_conv_kernel_size", default=4)
    inner = heads * width
    for name in ("q_proj", "k_proj", "v_proj"):
        build.matrix(f"self_attn.{name}", (inner, hidden))
    build.vector("self_attn.conv1d", 3 * inner * kernel, "tp")
    for name in ("f", "g"):
        build.matrix(f"self_attn.{name}_a_proj", (width, hidden), "replicated")
        build.matrix(f"self_attn.{name}_b_proj", (inner, width))
    build.matrix("self_attn.b_proj", (heads, hidden))
    build.vector("self_attn.dt_bias_A_log", inner + heads, "tp")
    build.vector("self_attn.o_norm", width)
    build.matrix("self_attn.o_proj", (hidden, inner))
    _state(build, 3 * inner * (kernel - 1), inner * width, n_heads=heads)


#: ``Family.mixer`` -> what adds it to the current layer.
MIXERS: dict[str, Callable[[Builder], None]] = {
    "gated-delta": _gated_delta, "mamba2": _mamba2, "mamba1": _mamba1,
    "lightning": _lightning, "kda": _kda,
}  # fmt: skip
