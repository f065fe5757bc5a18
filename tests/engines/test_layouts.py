"""Flags to layouts."""

import pytest

from stepscope.engines.layouts import Flags, sglang_layout, vllm_layout
from stepscope.recipe.records import Layout


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ({}, Layout()),
        ({"tensor-parallel-size": 4}, Layout(tp=4)),
        ({"data-parallel-size": 8, "enable-expert-parallel": True}, Layout(dp=8, ep=8)),
        (
            {
                "tensor-parallel-size": 2,
                "data-parallel-size": 4,
                "pipeline-parallel-size": "2",
                "enable-expert-parallel": True,
            },
            Layout(tp=2, dp=4, pp=2, ep=8),
        ),
        ({"tensor-parallel-size": 2, "enable-expert-parallel": False}, Layout(tp=2)),
    ],
)
def test_vllm_spreads_experts_over_tensor_and_data_ranks(
    flags: Flags, expected: Layout
) -> None:
    assert vllm_layout(flags) == expected


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ({"tp-size": 8}, Layout(tp=8)),
        ({"tp-size": 8, "dp-size": 2}, Layout(tp=8, dp=2)),
        ({"tp": 8, "dp": 8, "enable-dp-attention": True}, Layout(tp=1, dp=8)),
        ({"tp-size": 8, "ep-size": 4}, Layout(tp=8, ep=4)),
        ({"tp-size": 8, "moe-a2a-backend": "deepep"}, Layout(tp=8, ep=8)),
        ({"tp-size": 8, "moe-a2a-backend": "none"}, Layout(tp=8)),
    ],
)
def test_sglang_counts_all_ranks_as_tensor_ranks_under_data_parallel_attention(
    flags: Flags, expected: Layout
) -> None:
    assert sglang_layout(flags) == expected
