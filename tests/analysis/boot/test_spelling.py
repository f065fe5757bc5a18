"""A slip of the pen is told from a flag that a release does not have."""

import pytest

from stepscope.analysis.boot.diagnose import diagnose
from stepscope.analysis.boot.spelling import meant, n_slips
from stepscope.parse.serverlog import parse_log


@pytest.mark.parametrize(
    ("word", "engine", "right"),
    [
        ("--gpu-memory-utilizatoin", "vllm", "--gpu-memory-utilization"),
        ("--gpu_memory_utilisation=0.9", "vllm", "--gpu-memory-utilization"),
        ("--max-modellen", "vllm", "--max-model-len"),
        ("--mem-fraction-sttaic", "sglang", "--mem-fraction-static"),
        ("--n-gpu-layer", "llamacpp", "--n-gpu-layers"),
        ("--max-num-seq", None, "--max-num-seqs"),
    ],
)
def test_a_slip_names_the_flag_that_was_meant(
    word: str, engine: str | None, right: str
) -> None:
    assert meant(word, engine) == right


@pytest.mark.parametrize(
    "word",
    [
        "--enable-return-everything",
        "--disable-expert-parallel",  # Not a slip of --enable-expert-parallel.
        "--max-model-len",  # Known, so the slip is elsewhere.
        "-x",
        "serve",
        "--",
    ],
)
def test_what_is_no_slip_names_nothing(word: str) -> None:
    assert meant(word, "vllm") is None


def test_two_flags_that_are_as_near_name_neither() -> None:
    assert meant("--gda-prefill-backend", "vllm") is None


@pytest.mark.parametrize(
    ("left", "right", "n"),
    [
        ("", "", 0),
        ("abc", "acb", 1),
        ("abc", "ab", 1),
        ("abc", "axcd", 2),
        ("", "ab", 2),
    ],
)
def test_slips_are_counted(left: str, right: str, n: int) -> None:
    assert n_slips(left, right) == n == n_slips(right, left)


def test_a_flag_of_another_release_is_only_to_be_removed() -> None:
    line = b"main.py: error: unrecognized arguments: --frobnicate-cache 3\n"
    found = diagnose(parse_log(line, "vllm"), exit_code=2)
    (only,) = found.fixes
    assert (only.flag, only.direction) == ("--frobnicate-cache", "remove")
    assert "mean" not in found.why
