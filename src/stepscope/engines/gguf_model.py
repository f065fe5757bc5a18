"""The embedded model: a Llama with random weights, the same bytes on every machine.

It says nothing sensible and needs no download. What matters is that its arithmetic,
its memory traffic and its stream are those of a real model.
"""

import hashlib
import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from stepscope.engines import gguf_file
from stepscope.engines.vocabulary import END, vocabulary
from stepscope.errors import SessionError

N_TOKENS = 4096
_LAYERS, _HIDDEN, _FFN, _HEADS, _KV_HEADS = 8, 512, 1408, 8, 4
_TRAINED_CONTEXT = 4096
_SEED = 20261130

#: Raise it with anything that changes the bytes: caches keep the old file.
VERSION = 1
SHA256 = "b85a7fb68847c0a4f50b2e20e901c69b0fd4604f3a29145bfe748da18eca194a"

#: The same model as a Hugging Face config.json, for the byte floor.
CONFIG_JSON = json.dumps(
    {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": _HIDDEN,
        "intermediate_size": _FFN,
        "num_hidden_layers": _LAYERS,
        "num_attention_heads": _HEADS,
        "num_key_value_heads": _KV_HEADS,
        "head_dim": _HIDDEN // _HEADS,
        "vocab_size": N_TOKENS,
        "max_position_embeddings": _TRAINED_CONTEXT,
        "tie_word_embeddings": False,
        "torch_dtype": "float16",
    },
    indent=1,
)

#: Jinja, as chat templates are. Plain words: the vocabulary has no role tokens.
_CHAT = (
    "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}"
)


def default_model_path() -> Path:
    """Return where the model is kept: the user's cache."""
    cache = os.environ.get("XDG_CACHE_HOME", "")
    # The XDG specification tells to ignore a relative path.
    base = Path(cache) if cache.startswith("/") else Path.home() / ".cache"
    return base / "stepscope" / f"random-llama-28m-v{VERSION}.gguf"


def ensure_model(path: Path | None = None) -> Path:
    """Write the model unless the very same file is there; return its path.

    It appears under its name only when it is whole; a damaged file is replaced.

    Raises:
        SessionError: The file can not be written.
    """
    path = path or default_model_path()
    try:
        if not path.is_file() or sha256(path) != SHA256:
            path.parent.mkdir(parents=True, exist_ok=True)
            _write(path)
    except OSError as error:
        raise SessionError(
            str(path),
            f"the embedded model can not be written ({error.strerror})",
            "expected 56 MB of room in a writable cache",
            "Free space there or set XDG_CACHE_HOME",
        ) from error
    return path


def sha256(path: Path) -> str:
    """Return the hex digest of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def model_bytes() -> Iterator[bytes]:
    """Yield the GGUF file in parts."""
    tensors = _tensors()
    infos = [
        gguf_file.TensorInfo(name, shape, _dtype(std)) for name, shape, std in tensors
    ]
    yield gguf_file.header(_values(), infos)
    bits = np.random.PCG64(_SEED)
    yield from gguf_file.body(_weights(bits, shape, std) for _, shape, std in tensors)


def _write(path: Path) -> None:
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            for part in model_bytes():
                file.write(part)
            file.flush()
            os.fsync(file.fileno())
        Path(name).chmod(0o644)
        Path(name).replace(path)
    finally:
        Path(name).unlink(missing_ok=True)


def _dtype(
    std: float | None,
) -> np.dtype[np.float16] | np.dtype[np.float32]:
    """Return float16 for weights, float32 for norms, as llama.cpp wants them."""
    return np.dtype("<f4") if std is None else np.dtype("<f2")


def _weights(
    bits: np.random.PCG64, shape: tuple[int, ...], std: float | None
) -> gguf_file.Array:
    """Return uniform weights of deviation ``std``; ones where it is None.

    Raw generator output and exact float32 steps: numpy keeps those the same between
    releases, unlike its distributions.
    """
    if std is None:
        return np.ones(shape, dtype="<f4")
    n = int(np.prod(shape))
    raw = bits.random_raw(-(-n // 4)).astype("<u8").view("<u2")[:n]
    centred = raw.astype(np.float32) - np.float32(32767.5)
    # A uniform on [-w, w] has the deviation w / sqrt(3).
    scale = np.float32(std * 3**0.5 / 32768)
    return (centred * scale).astype("<f2").reshape(shape)


def _tensors() -> list[tuple[str, tuple[int, ...], float | None]]:
    """Return names, shapes and deviations (None: a norm) in the order of the file."""
    head = _HIDDEN // _HEADS
    found: list[tuple[str, tuple[int, ...], float | None]] = [
        ("token_embd.weight", (N_TOKENS, _HIDDEN), 1.0),
        ("output_norm.weight", (_HIDDEN,), None),
        ("output.weight", (N_TOKENS, _HIDDEN), 0.05),
    ]
    for layer in range(_LAYERS):
        block = f"blk.{layer}."
        found += [
            (block + "attn_norm.weight", (_HIDDEN,), None),
            (block + "attn_q.weight", (_HIDDEN, _HIDDEN), 0.02),
            (block + "attn_k.weight", (_KV_HEADS * head, _HIDDEN), 0.02),
            (block + "attn_v.weight", (_KV_HEADS * head, _HIDDEN), 0.02),
            (block + "attn_output.weight", (_HIDDEN, _HIDDEN), 0.02),
            (block + "ffn_norm.weight", (_HIDDEN,), None),
            (block + "ffn_gate.weight", (_FFN, _HIDDEN), 0.02),
            (block + "ffn_up.weight", (_FFN, _HIDDEN), 0.02),
            (block + "ffn_down.weight", (_HIDDEN, _FFN), 0.02),
        ]
    return found


def _values() -> dict[str, gguf_file.Value]:
    words = vocabulary(N_TOKENS)
    normal, control = 1, 3
    end = words.tokens.index(END)
    types = [control if i == end else normal for i in range(len(words.tokens))]
    return {
        "general.architecture": "llama",
        "general.name": f"stepscope-random-llama-v{VERSION}",
        "general.file_type": 1,  # mostly f16
        "llama.context_length": _TRAINED_CONTEXT,
        "llama.embedding_length": _HIDDEN,
        "llama.block_count": _LAYERS,
        "llama.feed_forward_length": _FFN,
        "llama.attention.head_count": _HEADS,
        "llama.attention.head_count_kv": _KV_HEADS,
        "llama.attention.layer_norm_rms_epsilon": 1e-5,
        "llama.rope.dimension_count": _HIDDEN // _HEADS,
        "llama.rope.freq_base": 10000.0,
        "llama.vocab_size": len(words.tokens),
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": words.tokens,
        "tokenizer.ggml.token_type": types,
        "tokenizer.ggml.merges": words.merges,
        "tokenizer.ggml.bos_token_id": end,
        "tokenizer.ggml.eos_token_id": end,
        "tokenizer.ggml.padding_token_id": end,
        "tokenizer.ggml.add_bos_token": False,
        "tokenizer.chat_template": _CHAT,
    }
