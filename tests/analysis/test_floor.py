import json
from collections.abc import Callable
from typing import Any

import pytest

from stepscope.analysis.floor import floor_points, step_bytes_of
from stepscope.analysis.records import CellResult
from stepscope.run.run import Run

LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 512,
    "intermediate_size": 1024,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 8,
    "vocab_size": 4096,
    "torch_dtype": "bfloat16",
}


@pytest.mark.parametrize(
    ("in_step", "seqs"),
    [(96.0, 96.0), (None, 204.7), (256.0, 204.7)],
    ids=["others wait for a place", "not told", "never more than are in flight"],
)
def test_the_floor_is_that_of_the_sequences_in_a_step(
    run_of: Callable[..., Run],
    result_of: Callable[..., CellResult],
    in_step: float | None,
    seqs: float,
) -> None:
    run = run_of(gpu="NVIDIA H200", n_gpus=1, model_config=json.dumps(LLAMA))
    figures: dict[str, Any] = {
        "concurrency": 256, "mean_in_flight": 204.7, "sequences_per_step": in_step,
        "asked_input_tokens": 256, "asked_output_tokens": 128, "tpot_ms": 20.0,
    }  # fmt: skip
    at, findings = step_bytes_of(run)
    assert findings == []
    (point,) = floor_points((result_of(**figures),), run, at)
    assert point.seqs_per_rank == pytest.approx(seqs)
