"""Bytes of a stored weight, by the quantization that config.json declares."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from fnmatch import fnmatchcase

from stepscope.errors import RecipeError, RefusedError
from stepscope.physics.model.config import Config

#: Bytes of one number by dtype name.
DTYPE_BYTES: dict[str, float] = {
    "float32": 4, "float": 4, "fp32": 4, "bfloat16": 2, "bf16": 2, "float16": 2,
    "half": 2, "fp16": 2, "auto": 2, "float8_e4m3fn": 1, "float8_e5m2": 1, "fp8": 1,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Format:
    """How one class of matrices is stored.

    A matrix of ``r`` x ``c`` numbers takes ``r c bits / 8`` plus ``scale_bytes`` for
    every block of ``block`` numbers plus ``matrix_bytes``.
    Assumes: incomplete blocks at the edge of a matrix carry a whole scale.
    """

    name: str
    bits: float
    block: tuple[int, int] | None = None
    scale_bytes: float = 0.0
    matrix_bytes: float = 0.0

    def n_bytes(self, rows: int, columns: int) -> float:
        """Return the bytes of a matrix of ``rows`` outputs and ``columns`` inputs."""
        body = rows * columns * self.bits / 8
        if self.block is None:
            return body + self.matrix_bytes
        high, wide = self.block
        high, wide = high or rows, wide or columns
        blocks = -(-rows // high) * -(-columns // wide)
        return body + blocks * self.scale_bytes + self.matrix_bytes


@dataclass(frozen=True, slots=True)
class Quantization:
    """Which matrices are stored in which form."""

    plain: Format
    linear: Format
    experts: Format
    ignored: tuple[str, ...] = ()
    kv_dtype: str | None = None

    @property
    def name(self) -> str:
        """One word for people: the experts' form first where the two differ."""
        if self.linear.name == self.experts.name:
            return self.linear.name
        return f"{self.experts.name} experts, {self.linear.name} rest"

    def form(self, module: str, role: str) -> Format:
        """Return the form of a module.

        Args:
            module: Full name, ``model.layers.3.self_attn.q_proj``.
            role: ``linear``, ``experts`` or ``plain`` (never quantized).
        """
        if role == "plain" or self._is_ignored(module):
            return self.plain
        return self.experts if role == "experts" else self.linear

    def _is_ignored(self, module: str) -> bool:
        module = _plain_name(module)
        for pattern in map(_plain_name, self.ignored):
            if pattern.startswith("re:"):
                if _matches(pattern[3:], module):
                    return True
            elif "*" in pattern:
                if fnmatchcase(module, pattern) or fnmatchcase(module, pattern + ".*"):
                    return True
            elif f".{pattern}." in f".{module}.":
                return True
        return False


def _matches(expression: str, module: str) -> bool:
    try:
        return re.match(expression, module) is not None
    except re.error as error:
        raise RecipeError(
            "quantization_config: ignore", f"re:{expression} ({error})", "an expression"
        ) from error


def _plain_name(name: str) -> str:
    """Return a module's name as text-only models spell it."""
    name = name.replace("language_model.model.", "model.")
    name = name.replace("model.language_model.", "model.")
    return name.replace("shared_experts", "shared_expert")


FP8_TENSOR = Format("fp8", 8, None, 0, 4)
FP8_CHANNEL = Format("fp8", 8, (1, 0), 4)
MXFP4 = Format("mxfp4", 4, (1, 32), 1)
NVFP4 = Format("nvfp4", 4, (1, 16), 1, 8)


Pair = tuple[Format, Format]


def quantization(config: Config) -> Quantization:
    """Read ``quantization_config`` (or ``compression_config``).

    Raises:
        RefusedError: The method is not known; its bytes would be a guess.
        RecipeError: A field of it makes no sense.
    """
    plain = _plain(config)
    raw = config.part("quantization_config", "compression_config", "quantization")
    if raw is None:
        return Quantization(plain, plain, plain)
    method = _word(raw, "quant_method", "quant_algo").replace("_", "-")
    reader = METHODS.get(method)
    if reader is None:
        raise RefusedError(
            f"{raw.where}.quant_method",
            f"{method!r} is not known",
            f"one of {', '.join(sorted(METHODS))}",
            "Remove the block to see the unquantized figures",
        )
    linear, experts = reader(raw, plain)
    own = config.get("expert_dtype") or raw.get("expert_dtype")
    if own is not None:
        experts = _expert_dtype(config, str(own))
    ignored: list[str] = []
    for key in (
        "ignore", "ignored_layers", "modules_to_not_convert", "exclude_modules",
        "llm_int8_skip_modules",
    ):  # fmt: skip
        ignored += raw.texts(key) or []
    kv = raw.get("kv_cache_scheme", "kv_cache_quant_algo")
    return Quantization(plain, linear, experts, tuple(ignored), _kv_dtype(kv))


def _word(raw: Config, *names: str) -> str:
    return str(raw.get(*names) or "").lower()


def _kv_dtype(kv: object) -> str | None:
    if isinstance(kv, dict):
        eight = kv.get("num_bits") == 8 and kv.get("type") == "float"
        return "fp8" if eight else None
    return "fp8" if isinstance(kv, str) and kv.upper() == "FP8" else None


def _plain(config: Config) -> Format:
    dtype = config.get("torch_dtype", "dtype")
    name = str(dtype or "bfloat16").removeprefix("torch.")
    if dtype is None:
        config.assume("No torch_dtype: unquantized weights are taken as bf16.")
    if name in ("float32", "float", "fp32"):
        config.assume(
            "torch_dtype float32: engines serve it as bf16 by default, so 2 bytes a"
            " number are counted."
        )
        name = "bfloat16"
    if name not in DTYPE_BYTES:
        raise RecipeError(
            f"{config.where}: torch_dtype",
            f"{name!r}",
            f"one of {', '.join(DTYPE_BYTES)}",
        )
    return Format(
        "fp16" if name in ("float16", "half") else "bf16", 8 * DTYPE_BYTES[name]
    )


def _expert_dtype(config: Config, name: str) -> Format:
    known = {"fp4": MXFP4, "mxfp4": MXFP4, "nvfp4": NVFP4, "fp8": FP8_TENSOR}
    if name not in known:
        raise RefusedError(
            f"{config.where}: expert_dtype", f"{name!r}", f"one of {', '.join(known)}"
        )
    return known[name]


def _block(raw: Config, name: str) -> tuple[int, int] | None:
    sides = raw.counts(name)
    if not sides:
        return None
    if len(sides) != 2 or min(sides) < 1:
        raise RecipeError(f"{raw.where}: {name}", f"{sides}", "two sides above 0")
    return sides[0], sides[1]


def _fp8(raw: Config, plain: Format) -> Pair:
    block = _block(raw, "weight_block_size")
    if block is None:
        return FP8_TENSOR, FP8_TENSOR
    # DeepSeek V3.1 names ue8m0 too but stores its 128 x 128 scales as fp32.
    small = "ue8m0" in _word(raw, "scale_fmt") and block[0] < 128
    form = Format("fp8", 8, block, 1 if small else 4)
    return form, form


def _channel_fp8(raw: Config, plain: Format) -> Pair:
    return FP8_CHANNEL, FP8_CHANNEL


def _mxfp4(raw: Config, plain: Format) -> Pair:
    return plain, MXFP4


def _modelopt(raw: Config, plain: Format) -> Pair:
    inner = raw.part("quantization")
    algo = _word(raw, "quant_algo") or (_word(inner, "quant_algo") if inner else "")
    algo = algo or _word(raw, "quant_method")
    form = NVFP4 if "fp4" in algo else FP8_TENSOR
    form = MXFP4 if "mxfp4" in algo else form
    return form, form


def _bits(raw: Config, *names: str, default: int) -> int:
    bits = raw.count(*names, default=default)
    if not 1 <= bits <= 16:
        raise RecipeError(f"{raw.where}: {names[0]}", f"{bits}", "1 to 16 bits")
    return bits


def _group(raw: Config, *names: str, default: int) -> int:
    """A group's width; 0: a whole row (spelt -1, or absent where so said)."""
    value = raw.get(*names)
    if value == -1:
        return 0
    return raw.count(*names, default=default)


def _int4(raw: Config, plain: Format) -> Pair:
    # Packed integers, one fp16 scale and one packed zero point for each group of
    # inputs of each output. Repacking for a kernel (Marlin) keeps the size.
    bits = _bits(raw, "bits", "w_bit", default=4)
    group = _group(raw, "group_size", "q_group_size", default=128)
    form = Format(f"int{bits}", bits, (1, group), 2 + bits / 8)
    return form, form


def _bitsandbytes(raw: Config, plain: Format) -> Pair:
    if raw.flag("load_in_8bit"):
        form = Format("bnb-int8", 8, (1, 0), 4)
    elif raw.flag("bnb_4bit_use_double_quant"):
        form = Format("bnb-4bit", 4 + 8 * (1 / 64 + 4 / (64 * 256)))
    else:
        form = Format("bnb-4bit", 4 + 8 * 4 / 64)
    return form, form


def _compressed(raw: Config, plain: Format) -> Pair:
    groups = raw.part("config_groups")
    if groups is None:
        raise raw.missing(("config_groups",))
    if len(groups.fields) > 1:
        raw.assume(
            "Several quantization groups: all quantized modules are counted in the"
            " form of the first."
        )
    first = groups.part(next(iter(groups.fields)))
    weights = first.part("weights") if first else None
    if weights is None:
        return plain, plain  # activations or KV alone
    bits = _bits(weights, "num_bits", default=8)
    is_float = _word(weights, "type") == "float"
    group = _group(weights, "group_size", default=0)
    block = _block(weights, "block_structure")
    if bits == 4 and is_float:
        form = MXFP4 if group == 32 else NVFP4
    elif block:
        form = Format("fp8", 8, block, 4)
    elif bits == 8 and _word(weights, "strategy") == "tensor":
        form = FP8_TENSOR if is_float else Format("int8", 8, None, 0, 4)
    elif bits == 8:
        form = Format("fp8" if is_float else "int8", 8, (1, group), 2)
    else:
        zero = 0 if weights.flag("symmetric", default=True) else bits / 8
        form = Format(f"int{bits}", bits, (1, group), 2 + zero)
    return form, form


def _int8(raw: Config, plain: Format) -> Pair:
    form = Format("int8", 8, (1, 0), 4)
    return form, form


METHODS: dict[str, Callable[[Config, Format], Pair]] = {
    "fp8": _fp8, "fbgemm-fp8": _channel_fp8, "mxfp4": _mxfp4,
    "gpt-oss-mxfp4": _mxfp4, "modelopt": _modelopt, "modelopt-fp4": _modelopt,
    "nvfp4": _modelopt, "awq": _int4, "gptq": _int4, "auto-round": _int4,
    "bitsandbytes": _bitsandbytes, "compressed-tensors": _compressed, "int8": _int8,
    "w8a8-int8": _int8,
}  # fmt: skip
