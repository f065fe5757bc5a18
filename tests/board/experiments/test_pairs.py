"""Which configurations are an experiment, and when noise keeps it silent."""

from typing import Any

import pytest

from stepscope.board.experiments.pairs import pairs_of
from stepscope.findings import Finding
from stepscope.run.serverlog import ServerLog

Two = Any  # tests/board/experiments/conftest.py

VLLM = ("vllm", "serve", "m", "--port", "1")
EAGER = {"command": (*VLLM, "--enforce-eager")}
PLAIN = {"command": ("vllm", "serve", "m", "--port", "2")}


def resolved(**values: Any) -> ServerLog:
    return ServerLog(engine="vllm", version="0.26.0", n_lines=1, resolved=values)


CHANGES = [
    ("graphs", {}, {"command": (*VLLM, "--enforce-eager")}),
    (
        "graphs",
        {"command": (*VLLM, "--compilation-config", '{"cudagraph_mode": "FULL"}')},
        {"command": (*VLLM, "--enforce-eager")},
    ),
    ("cpus", {}, {"cpus": "0-7"}),
    ("api-servers", {"command": (*VLLM, "--api-server-count", "4")}, {}),
    (
        "context",
        {"command": (*VLLM, "--max-model-len", "2048")},
        {"command": (*VLLM, "--max-model-len=32768")},
    ),
    (
        "parallelism",
        {"command": (*VLLM, "--data-parallel-size", "4")},
        {"command": (*VLLM, "--tensor-parallel-size", "4")},
    ),
    ("offload", {}, {"command": (*VLLM, "--cpu-offload-gb", "8")}),
    (
        "async-scheduling",
        {"command": (*VLLM, "--async-scheduling")},
        {"command": (*VLLM, "--no-async-scheduling")},
    ),
    (
        "threads",
        {"environment": {"OMP_NUM_THREADS": "8"}},
        {"environment": {"OMP_NUM_THREADS": "4"}},
    ),
]


@pytest.mark.parametrize(("change", "light", "heavy"), CHANGES)
def test_one_change_makes_a_pair_with_the_slower_side_last(
    two: Two, change: str, light: dict[str, Any], heavy: dict[str, Any]
) -> None:
    for base, other, names in (
        (light, heavy, ("base", "other")),
        (heavy, light, ("other", "base")),
    ):
        run, analysis = two.of(
            [10.0], [20.0], base={**PLAIN, **base}, other={**PLAIN, **other}
        )
        (pair,) = pairs_of(run, analysis)
        assert (pair.change.id, pair.light, pair.heavy) == (change, *names)


@pytest.mark.parametrize(
    "other",
    [
        {"cpus": "0", "command": (*VLLM, "--enforce-eager")},
        {"command": (*VLLM, "--enforce-eager", "--max-num-seqs", "8")},
        {"command": (*VLLM, "--max-num-seqs", "8")},
        {"command": PLAIN["command"], "environment": {"A": "1"}},
        {"command": ("vllm", "serve", "another", "--enforce-eager")},
        PLAIN,
    ],
)
def test_two_changes_none_or_one_that_tells_nothing_apart_make_no_pair(
    two: Two, other: dict[str, Any]
) -> None:
    run, analysis = two.of([10.0], [20.0], base=PLAIN, other=other)
    assert pairs_of(run, analysis) == ()


def test_what_the_log_resolves_besides_is_a_second_change(two: Two) -> None:
    base = {**PLAIN, "log": resolved(cudagraph_mode="FULL", attention_backend="A")}
    other = {**EAGER, "log": resolved(cudagraph_mode="NONE", attention_backend="B")}
    run, analysis = two.of([10.0], [20.0], base=base, other=other)
    assert pairs_of(run, analysis) == ()
    other["log"] = resolved(cudagraph_mode="NONE", attention_backend="A")
    run, analysis = two.of([10.0], [20.0], base=base, other=other)
    assert len(pairs_of(run, analysis)) == 1


def test_sessions_are_not_paired(two: Two) -> None:
    cells = {"other_session": "s1"}
    run, analysis = two.of([10.0], [20.0], base=PLAIN, other=EAGER, cells=cells)
    assert pairs_of(run, analysis) == ()


def test_a_cell_that_was_compiled_meanwhile_is_left_out(two: Two) -> None:
    run, analysis = two.of([10.0], [20.0], base=PLAIN, other=EAGER)
    cold = Finding(
        code="jit-during-measurement",
        severity="warning",
        message="m",
        cell="base-c16-r0",
    )
    from msgspec.structs import replace

    assert pairs_of(run, replace(analysis, findings=(cold,))) == ()


@pytest.mark.parametrize(
    ("base_ms", "other_ms", "error", "moved"),
    [
        ([10.0], [12.1], 1.0, "longer"),
        ([10.0], [11.9], 1.0, "needs-launches"),
        ([10.0], [12.1], 4.0, "needs-launches"),
        ([10.0], [12.1], None, "needs-launches"),
        ([20.0], [10.0], 1.0, "shorter"),
        ([10.0], [10.0], 1.0, "needs-launches"),
    ],
)
def test_one_launch_counts_only_far_outside_noise(
    two: Two, base_ms: list[float], other_ms: list[float], error: float, moved: str
) -> None:
    cells = {"batch_means_error_pct": error}
    run, analysis = two.of(base_ms, other_ms, base=PLAIN, other=EAGER, cells=cells)
    (pair,) = pairs_of(run, analysis)
    assert pair.rows[0].effect.moved == moved
    assert not pair.rows[0].effect.interval


SAME = [10.0, 10.01, 9.99, 10.0]


@pytest.mark.parametrize(
    ("other_ms", "launches", "moved"),
    [
        ([10.5, 10.51, 10.49, 10.5], True, "longer"),
        (SAME, True, "unchanged"),
        # Repeats on one launch hold nothing of what differs between launches.
        ([10.5, 10.51, 10.49, 10.5], False, "needs-launches"),
        (SAME, False, "needs-launches"),
        ([20.0, 20.01, 19.99, 20.0], False, "longer"),
        ([10.0, 14.0, 9.0, 11.0], True, "needs-launches"),
    ],
)
def test_repeats_are_read_as_the_comparison_reads_them(
    two: Two, other_ms: list[float], launches: bool, moved: str
) -> None:
    run, analysis = two.of(SAME, other_ms, base=PLAIN, other=EAGER, launches=launches)
    (pair,) = pairs_of(run, analysis)
    effect = pair.rows[0].effect
    assert effect.moved == moved
    assert effect.low <= effect.ratio <= effect.high


def test_launches_of_a_side_that_differ_in_settings_make_no_pair(two: Two) -> None:
    from msgspec.structs import replace

    run, analysis = two.of(SAME, SAME, base=PLAIN, other=EAGER, launches=True)
    changed = replace(run.launches[0], cpus="0")
    run = replace(run, launches=(changed, *run.launches[1:]))
    assert pairs_of(run, analysis) == ()


def test_a_cell_whose_processors_others_held_decides_nothing(two: Two) -> None:
    from msgspec.structs import replace

    starved = Finding(
        code="cpu-starved", severity="warning", message="m", cell="base-c16-r0"
    )
    for other, moved in ((EAGER, "needs-launches"), ({**PLAIN, "cpus": "0"}, "longer")):
        run, analysis = two.of([10.0], [50.0], base=PLAIN, other=other)
        (pair,) = pairs_of(run, replace(analysis, findings=(starved,)))
        assert pair.rows[0].effect.moved == moved
