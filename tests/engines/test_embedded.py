"""The embedded engine, really booted: its stream, its batch, its end."""

import http.client
import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from stepscope.engines.catalog import ENGINES, engine_of
from stepscope.recipe.loader import load_recipe

pytest.importorskip("xllamacpp")

DEMO = Path(__file__).parents[2] / "examples" / "demo.toml"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def get(port: int, path: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status, response.read().decode()
    finally:
        connection.close()


def wait_until_ready(server: "subprocess.Popen[bytes]", port: int) -> None:
    until = time.monotonic() + 60
    while time.monotonic() < until:
        assert server.poll() is None, "the server ended while it started"
        try:
            if get(port, ENGINES["embedded"].ready_path)[0] == 200:
                return
        except OSError:
            pass
        time.sleep(0.05)
    pytest.fail("the server was not ready within a minute")


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The demo's server, from nothing: an empty cache."""
    cache = tmp_path_factory.mktemp("cache")
    recipe = load_recipe(DEMO.read_text(), str(DEMO))
    port = free_port()
    command = engine_of(recipe).command(recipe, recipe.configurations[0], port)
    with (cache / "log").open("wb") as log:
        server = subprocess.Popen(
            command,
            env={**os.environ, "XDG_CACHE_HOME": str(cache)},
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    try:
        wait_until_ready(server, port)
        yield port
    finally:
        server.send_signal(signal.SIGTERM)
        code = server.wait(timeout=20)
    assert code == 0


def stream(port: int, seed: int, n_tokens: int) -> tuple[list[str], dict[str, Any]]:
    """Return the texts of a stream's chunks and its usage record."""
    engine = ENGINES["embedded"]
    draw = random.Random(seed)
    assert engine.n_vocabulary is not None
    body = {
        "model": engine.model_name,
        "prompt": [draw.randrange(1, engine.n_vocabulary) for _ in range(32)],
        "max_tokens": n_tokens,
        "stream": True,
        "ignore_eos": True,
        "stream_options": {"include_usage": True},
        **engine.extra_body,
    }
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        headers = {"Content-Type": "application/json"}
        connection.request("POST", "/v1/completions", json.dumps(body), headers)
        response = connection.getresponse()
        assert response.status == 200
        text = response.read().decode()
    finally:
        connection.close()
    events = [e.removeprefix("data: ") for e in text.split("\n\n") if e]
    assert events[-1] == "[DONE]"
    parsed = [json.loads(e) for e in events[:-1]]
    texts = [e["choices"][0]["text"] for e in parsed if e["choices"]]
    usage = [e["usage"] for e in parsed if e.get("usage")]
    assert len(usage) == 1
    return [t for t in texts if t], usage[0]


def test_one_token_is_one_chunk_of_ascii_text(port: int) -> None:
    texts, usage = stream(port, seed=1, n_tokens=24)
    assert usage["prompt_tokens"] == 32
    assert usage["completion_tokens"] == len(texts) == 24
    assert all(t.isascii() for t in texts)


def test_a_prompt_that_comes_again_is_not_taken_from_the_cache(port: int) -> None:
    stream(port, seed=2, n_tokens=2)
    _, usage = stream(port, seed=2, n_tokens=2)
    assert usage["prompt_tokens_details"]["cached_tokens"] == 0


def test_sixteen_requests_share_their_steps(port: int) -> None:
    def n_steps() -> int:
        lines = get(port, "/metrics")[1].splitlines()
        (line,) = [x for x in lines if x.startswith("llamacpp:n_decode_total ")]
        return int(float(line.split()[1]))

    before = n_steps()
    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(lambda i: stream(port, 100 + i, 32), range(16)))
    assert all(len(texts) == 32 for texts, _ in answers)
    # One after the other would be 16 x 32 steps; all together 32 and the prefills.
    assert n_steps() - before < 16 * 32 / 2


def test_its_model_and_slots_can_be_asked(port: int) -> None:
    (model,) = json.loads(get(port, "/v1/models")[1])["data"]
    assert model["id"] == ENGINES["embedded"].model_name
    assert model["meta"]["n_vocab"] == ENGINES["embedded"].n_vocabulary
    assert len(json.loads(get(port, "/slots")[1])) == 16


def test_a_port_in_use_is_one_line_and_exit_code_three(port: int) -> None:
    command = [sys.executable, "-m", "stepscope.engines.embedded", "--port", str(port)]
    done = subprocess.run(command, capture_output=True, timeout=60, check=False)
    assert done.returncode == 3
    assert done.stderr.decode() == (
        f"embedded engine, --port {port}: 127.0.0.1 can not be bound (Address already "
        "in use); expected a free port. Stop what listens there, or choose another.\n"
    )


def test_a_damaged_model_ends_with_exit_code_three_and_says_so(tmp_path: Path) -> None:
    model = tmp_path / "damaged.gguf"
    model.write_bytes(b"GGUF" + bytes(100))
    command = [sys.executable, "-m", "stepscope.engines.embedded", "--port", "0"]
    command += ["--model", str(model)]
    done = subprocess.run(command, capture_output=True, timeout=60, check=False)
    assert done.returncode == 3
    # llama.cpp's own lines come from a thread and may stand around ours.
    assert b"embedded engine: llama.cpp did not start" in done.stderr


def test_a_missing_model_is_one_line_and_exit_code_three(tmp_path: Path) -> None:
    model = str(tmp_path / "no.gguf")
    command = [sys.executable, "-m", "stepscope.engines.embedded", "--port", "1"]
    command += ["--model", model]
    done = subprocess.run(command, capture_output=True, timeout=60, check=False)
    assert done.returncode == 3
    assert done.stderr.decode() == f"{model}: no such file; expected a GGUF model.\n"
