"""The embedded model: the same bytes each time, whole or absent."""

import hashlib
import json
from pathlib import Path

import pytest

from stepscope.engines.gguf_model import (
    CONFIG_JSON,
    SHA256,
    default_model_path,
    ensure_model,
    model_bytes,
    sha256,
)
from stepscope.engines.vocabulary import END, vocabulary, written
from stepscope.errors import SessionError


def test_the_bytes_are_the_ones_that_are_known() -> None:
    digest = hashlib.sha256()
    for part in model_bytes():
        digest.update(part)
    assert digest.hexdigest() == SHA256


def test_another_reader_finds_the_shapes_of_its_config(tmp_path: Path) -> None:
    gguf = pytest.importorskip("gguf")
    reader = gguf.GGUFReader(ensure_model(tmp_path / "m.gguf"))
    config = json.loads(CONFIG_JSON)
    shapes = {t.name: tuple(int(n) for n in t.shape) for t in reader.tensors}
    hidden, ffn = config["hidden_size"], config["intermediate_size"]
    assert shapes["token_embd.weight"] == (hidden, config["vocab_size"])
    assert shapes["blk.7.ffn_down.weight"] == (ffn, hidden)
    assert f"blk.{config['num_hidden_layers']}.attn_q.weight" not in shapes
    n_parameters = sum(int(t.n_elements) for t in reader.tensors)
    assert n_parameters == 27_795_968
    tokens = reader.fields["tokenizer.ggml.tokens"].contents()
    assert tuple(tokens) == vocabulary(config["vocab_size"]).tokens
    query = next(t for t in reader.tensors if t.name == "blk.3.attn_q.weight")
    assert float(query.data.astype("f4").std()) == pytest.approx(0.02, rel=0.01)
    assert abs(float(query.data.astype("f4").mean())) < 0.001


def test_a_damaged_file_is_replaced_and_a_good_one_left(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "m.gguf"
    ensure_model(path)
    first = path.stat().st_ino
    ensure_model(path)
    assert path.stat().st_ino == first
    path.write_bytes(b"GGUF, cut short")
    ensure_model(path)
    assert sha256(path) == SHA256
    assert [p.name for p in path.parent.iterdir()] == ["m.gguf"]


def test_a_cache_that_can_not_be_written_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SessionError, match="XDG_CACHE_HOME"):
        ensure_model(tmp_path / "file" / "m.gguf")


def test_the_path_is_in_the_users_cache_and_names_its_version(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/var/cache/me")
    found = default_model_path()
    assert found == Path("/var/cache/me/stepscope/random-llama-28m-v1.gguf")
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setenv("HOME", "/home/me")
    assert default_model_path().parent == Path("/home/me/.cache/stepscope")


def test_every_token_but_the_end_is_ascii_text_and_every_merge_makes_one() -> None:
    words = vocabulary(4096)
    assert len(set(words.tokens)) == 4096
    assert words.tokens[0] == END
    back = {written(chr(c)): chr(c) for c in (9, 10, *range(32, 127))}
    assert all(set(token) <= set(back) for token in words.tokens[1:])
    known = set(words.tokens[: 1 + len(back)])
    for merge in words.merges:
        left, right = merge.split(" ")
        assert left in known
        assert right in known
        known.add(left + right)
    assert known == set(words.tokens)
