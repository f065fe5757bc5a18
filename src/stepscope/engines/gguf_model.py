"""A small Llama with random weights, written as GGUF from a fixed seed.

It speaks nonsense at the speed of a real 28 M parameter model: what the demo measures
is a real engine doing real work. The vocabulary is ASCII, so each token is a whole
piece of text and an event of the stream is a token.
"""

import hashlib
import os
import tempfile
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numpy as np

#: Part of the file's name: a change of anything below needs a new one.
VERSION = 1
_SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSize:
    """Shape of the random Llama; 27.8 M parameters, 56 MB in float16 by default."""

    layers: int = 8
    hidden: int = 512
    feed_forward: int = 1408
    heads: int = 8
    kv_heads: int = 4
    vocabulary: int = 4096
    context: int = 4096
    seed: int = 20260911


def default_model_path() -> Path:
    """Return where the default model is kept (the user's cache folder)."""
    cache = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(cache) / "stepscope" / f"random-llama-28m-v{VERSION}.gguf"


def ensure_model(path: Path | None = None, size: ModelSize | None = None) -> Path:
    """Write the model unless it is there; return its path.

    The file appears whole or not at all: it is written beside its place and renamed.
    The same size and seed give the same bytes.
    """
    path = path or default_model_path()
    if path.exists():
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, suffix=".partial")
    os.close(handle)
    try:
        _write(Path(temporary), size or ModelSize())
        Path(temporary).chmod(0o644)
        Path(temporary).rename(path)
    finally:
        Path(temporary).unlink(missing_ok=True)
    return path


def sha256(path: Path) -> str:
    """Return the hex digest of a file."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def vocabulary(n: int) -> tuple[list[str], list[str]]:
    """Return n token texts and the merges that build them (byte-level BPE).

    Single printable ASCII characters first (a space is written as GPT-2 writes it),
    then pairs of letters, then pairs of pairs.
    """
    single = [chr(c) for c in range(33, 127)] + ["Ġ", "Ċ", "ĉ"]
    letters = [chr(c) for c in range(ord("a"), ord("z") + 1)]
    tokens = [*_SPECIAL, *single]
    merges: list[str] = []
    pairs = [
        *("Ġ" + x for x in letters),
        *(a + b for a, b in product(letters, letters)),
    ]
    for pair in pairs:
        tokens.append(pair)
        merges.append(f"{pair[0]} {pair[1]}")
    doubles = (a + b for a, b in product(pairs, pairs[26:]))
    seen = set(tokens)
    for text in doubles:
        if len(tokens) >= n:
            break
        if text in seen:
            continue
        seen.add(text)
        tokens.append(text)
        merges.append(f"{text[:2]} {text[2:]}")
    return tokens[:n], merges


def _write(path: Path, size: ModelSize) -> None:
    import gguf

    tokens, merges = vocabulary(size.vocabulary)
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name("random-llama-28m")
    writer.add_context_length(size.context)
    writer.add_embedding_length(size.hidden)
    writer.add_block_count(size.layers)
    writer.add_feed_forward_length(size.feed_forward)
    writer.add_head_count(size.heads)
    writer.add_head_count_kv(size.kv_heads)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(size.hidden // size.heads)
    writer.add_rope_freq_base(10_000.0)
    writer.add_vocab_size(len(tokens))
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_F16)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    control = int(gguf.TokenType.CONTROL)
    normal = int(gguf.TokenType.NORMAL)
    writer.add_token_types([control if t in _SPECIAL else normal for t in tokens])
    writer.add_token_merges(merges)
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(2)
    writer.add_pad_token_id(0)
    writer.add_add_bos_token(False)
    writer.add_chat_template(
        "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}"
        "<|im_end|>\n{% endfor %}<|im_start|>assistant\n"
    )
    _tensors(writer, size, len(tokens))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _tensors(writer: "object", size: ModelSize, n_tokens: int) -> None:
    draw = np.random.default_rng(size.seed)
    add = writer.add_tensor  # type: ignore[attr-defined]  # gguf ships no types

    def weight(name: str, *shape: int, scale: float = 0.02) -> None:
        values = draw.standard_normal(shape, dtype=np.float32) * scale
        add(f"{name}.weight", values.astype(np.float16))

    def norm(name: str) -> None:
        add(f"{name}.weight", np.ones(size.hidden, dtype=np.float32))

    kv = size.kv_heads * (size.hidden // size.heads)
    weight("token_embd", n_tokens, size.hidden, scale=1.0)
    norm("output_norm")
    weight("output", n_tokens, size.hidden, scale=0.05)
    for i in range(size.layers):
        block = f"blk.{i}."
        norm(block + "attn_norm")
        norm(block + "ffn_norm")
        weight(block + "attn_q", size.hidden, size.hidden)
        weight(block + "attn_k", kv, size.hidden)
        weight(block + "attn_v", kv, size.hidden)
        weight(block + "attn_output", size.hidden, size.hidden)
        weight(block + "ffn_gate", size.feed_forward, size.hidden)
        weight(block + "ffn_up", size.feed_forward, size.hidden)
        weight(block + "ffn_down", size.hidden, size.feed_forward)
