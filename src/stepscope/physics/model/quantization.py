"""Bytes of a stored weight, by the quantization that config.json declares."""

import re
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from stepscope.errors import RefusedError
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
                if re.match(pattern[3:], module):
                    return True
            elif "*" in pattern:
                if fnmatchcase(module, pattern) or fnmatchcase(module, pattern + ".*"):
                    return True
            elif f".{pattern}." in f".{module}.":
                return True
        return False


def _plain_name(name: str) -> str:
    """Return a module's name as text-only models spell it."""
    name = name.replace("language_model.model.", "model.")
    name = name.replace("model.language_model.", "model.")
    return name.replace("shared_experts", "shared_expert")


FP8_TENSOR = Format("fp8", 8, None, 0, 4)
FP8_CHANNEL = Format("fp8", 8, (1, 0), 4)
MXFP4 = Format("mxfp4", 4, (1, 32), 1)
NVFP4 = Format("nvfp4", 4, (1, 16), 1, 8)


def quantization(config: Config) -> Quantization:
    """Read ``quantization_config`` (or ``compression_config``).

    Raises:
        RefusedError: The method is not known; its bytes would be a guess.
    """
    plain = _plain(config)
    raw = config.get("quantization_config", "compression_config", "quantization")
    if raw is None:
        raw = config.outer.get("quantization_config")
    if not isinstance(raw, dict) or not raw:
        return Quantization(plain, plain, plain)
    method = str(raw.get("quant_method") or raw.get("quant_algo") or "").lower()
    reader = METHODS.get(method.replace("_", "-"))
    if reader is None:
        raise RefusedError(
            f"{config.where}: quantization_config.quant_method",
            f"{method!r} is not known",
            f"one of {', '.join(sorted(METHODS))}",
            "Remove the block to see the unquantized figures",
        )
    linear, experts = reader(raw, plain)
    if len(raw.get("config_groups") or ()) > 1:
        config.assume(
            "Several quantization groups: all quantized modules are counted in the"
            " form of the first."
        )
    if config.get("expert_dtype") or raw.get("expert_dtype"):
        experts = _expert_dtype(str(config.get("expert_dtype") or raw["expert_dtype"]))
    ignored: list[str] = []
    for key in (
        "ignore", "ignored_layers", "modules_to_not_convert", "exclude_modules",
        "llm_int8_skip_modules",
    ):  # fmt: skip
        ignored += [str(p) for p in raw.get(key) or ()]
    kv = raw.get("kv_cache_scheme") or raw.get("kv_cache_quant_algo")
    return Quantization(plain, linear, experts, tuple(ignored), _kv_dtype(kv))


def _kv_dtype(kv: object) -> str | None:
    if isinstance(kv, dict):
        eight = kv.get("num_bits") == 8 and kv.get("type") == "float"
        return "fp8" if eight else None
    return "fp8" if isinstance(kv, str) and kv.upper() == "FP8" else None


def _plain(config: Config) -> Format:
    dtype = config.get("torch_dtype", "dtype") or config.outer.get("torch_dtype")
    name = str(dtype or "bfloat16").removeprefix("torch.")
    if dtype is None:
        config.assume("No torch_dtype: unquantized weights are taken as bf16.")
    if name == "float32":
        config.assume(
            "torch_dtype float32: engines serve it as bf16 by default, so 2 bytes a"
            " number are counted."
        )
        name = "bfloat16"
    return Format("fp16" if name == "float16" else "bf16", 8 * DTYPE_BYTES.get(name, 2))


def _expert_dtype(name: str) -> Format:
    return {"fp4": MXFP4, "mxfp4": MXFP4, "nvfp4": NVFP4, "fp8": FP8_TENSOR}.get(
        name, Format("bf16", 16)
    )


def _fp8(raw: dict[str, Any], plain: Format) -> tuple[Format, Format]:
    block = raw.get("weight_block_size")
    if not block:
        return FP8_TENSOR, FP8_TENSOR
    scale = 1 if "ue8m0" in str(raw.get("scale_fmt")) and block[0] < 128 else 4
    form = Format("fp8", 8, (int(block[0]), int(block[1])), scale)
    return form, form


def _channel_fp8(raw: dict[str, Any], plain: Format) -> tuple[Format, Format]:
    return FP8_CHANNEL, FP8_CHANNEL


def _mxfp4(raw: dict[str, Any], plain: Format) -> tuple[Format, Format]:
    return plain, MXFP4


def _modelopt(raw: dict[str, Any], plain: Format) -> tuple[Format, Format]:
    inner = raw.get("quantization") or {}
    method = str(raw.get("quant_method") or "").lower()
    algo = str(raw.get("quant_algo") or inner.get("quant_algo") or method).upper()
    form = NVFP4 if "FP4" in algo else FP8_TENSOR
    form = MXFP4 if "MXFP4" in algo else form
    return form, form


def _int4(raw: dict[str, Any], plain: Format) -> tuple[Format, Format]:
    # Packed integers, one fp16 scale and one packed zero point for each group of
    # inputs of each output. Repacking for a kernel (Marlin) keeps the size.
    bits = int(raw.get("bits") or raw.get("w_bit") or 4)
    group = int(raw.get("group_size") or raw.get("q_group_size") or 128)
    name = f"int{bits}"
    form = Format(name, bits, (1, max(group, 0)), 2 + bits / 8)
    return form, form


def _bitsandbytes(raw: dict[str, Any], plain: Format) -> tuple[Format, Format]:
    if raw.get("load_in_8bit"):
        form = Format("bnb-int8", 8, (1, 0), 4)
    elif raw.get("bnb_4bit_use_double_quant"):
        form = Format("bnb-4bit", 4 + 8 * (1 / 64 + 4 / (64 * 256)))
    else:
        form = Format("bnb-4bit", 4 + 8 * 4 / 64)
    return form, form


def _compressed(raw: dict[str, Any], plain: Format) -> tuple[Format, Format]:
    groups = list((raw.get("config_groups") or {}).values())
    weights = (groups[0].get("weights") if groups else None) or {}
    bits = int(weights.get("num_bits") or 8)
    is_float = weights.get("type") == "float"
    group = int(weights.get("group_size") or 0)
    block = weights.get("block_structure")
    if bits == 4 and is_float:
        form = MXFP4 if group == 32 else NVFP4
    elif block:
        form = Format("fp8", 8, (int(block[0]), int(block[1])), 4)
    elif bits == 8 and weights.get("strategy") == "tensor":
        form = FP8_TENSOR if is_float else Format("int8", 8, None, 0, 4)
    elif bits == 8:
        form = Format("fp8" if is_float else "int8", 8, (1, group), 2)
    else:
        zero = 0 if weights.get("symmetric", True) else bits / 8
        form = Format(f"int{bits}", bits, (1, group), 2 + zero)
    return form, form


def _int8(raw: dict[str, Any], plain: Format) -> tuple[Format, Format]:
    form = Format("int8", 8, (1, 0), 4)
    return form, form


METHODS = {
    "fp8": _fp8, "fbgemm-fp8": _channel_fp8,
    "mxfp4": _mxfp4, "gpt-oss-mxfp4": _mxfp4, "modelopt": _modelopt,
    "modelopt-fp4": _modelopt, "nvfp4": _modelopt,
    "awq": _int4, "gptq": _int4, "auto-round": _int4, "bitsandbytes": _bitsandbytes,
    "compressed-tensors": _compressed, "int8": _int8, "w8a8-int8": _int8,
}  # fmt: skip
