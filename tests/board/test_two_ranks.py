"""Two real runs on two H200s: data-parallel ranks that share their experts.

One request more on a rank makes both run the graph of 128 instead of 32, so that cells
of one load are of two kinds; random weights send most tokens to few experts.
"""

import gzip
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from stepscope.analysis.across.stack import token_stacks
from stepscope.analysis.analyze import analyze
from stepscope.analysis.compare.compare import compare
from stepscope.analysis.compare.measured import Measured, doubtful
from stepscope.analysis.records import Analysis, CellResult
from stepscope.board.judge import judge
from stepscope.board.planning.choose import Budget
from stepscope.board.planning.plan import plan
from stepscope.board.records import Board, BoardEntry
from stepscope.report.stack import token_stack
from stepscope.run.run import Run

Bench = Any  # tests/board/conftest.py; a conftest can not be imported
DATA = Path(__file__).parents[1] / "data" / "ranks"


@cache
def run_of(name: str) -> Run:
    packed = gzip.decompress((DATA / f"{name}.run.gz").read_bytes())
    return msgspec.msgpack.decode(packed, type=Run)


@cache
def analysis_of(name: str) -> Analysis:
    return analyze(run_of(name))


@cache
def board_of(name: str) -> Board:
    return judge(run_of(name), analysis_of(name))


def cell(name: str, which: str) -> CellResult:
    return next(c for c in analysis_of(name).cells if c.name == which)


def entry(name: str, hypothesis: str) -> BoardEntry:
    return next(e for e in board_of(name).entries if e.hypothesis == hypothesis)


def words(one: BoardEntry) -> str:
    return " ".join(e.reasoning for e in one.evidence)


def test_the_traced_step_is_not_read_for_a_cell_that_had_another() -> None:
    """r0 decodes in 7.8 ms, in the graph of 128; the timeline's load in 6.1, in 32."""
    read = [e for e in board_of("slow").entries if "traced" in words(e)]
    assert read == []
    assert [s.traced for s in analysis_of("slow").stacks] == [False]
    (said,) = [
        f for f in analysis_of("slow").findings if f.code == "trace-of-another-step"
    ]
    assert said.cell == "baseline-c64-r0"
    assert "7.8 ms" in said.message
    assert "6.1 ms" in said.message


def test_a_timeline_of_the_same_step_is_still_read() -> None:
    assert "traced" in words(entry("base", "imbalance"))
    assert [s.traced for s in analysis_of("base").stacks] == [True]
    codes = {f.code for f in analysis_of("base").findings}
    assert "trace-of-another-step" not in codes


def planned(name: str) -> tuple[list[str], str]:
    """Return the measurements on offer and the recipe's text."""
    found = plan(run_of(name), analysis_of(name), board_of(name), Budget(None, None))
    assert found.recipe is not None
    return [c.id for c in found.candidates], found.recipe


def test_a_tokens_time_is_told_of_the_rank_that_the_others_wait_for() -> None:
    """Rank 0 works for the 2 ms in which rank 1 waits, and both steps are as long."""
    (stack,) = analysis_of("base").stacks
    assert stack.rank == 0
    figure = token_stack("baseline", analysis_of("base").stacks, 0)
    assert figure is not None
    assert "of rank 0 at 64" in figure.note
    (step,) = analysis_of("base").traced
    swapped = msgspec.structs.replace(
        step,
        ranks=tuple(
            msgspec.structs.replace(r, step_ms=r.step_ms + 0.1 * r.rank)
            for r in step.ranks
        ),
    )
    cells = [cell("base", "baseline-c64-r0")]
    (again,) = token_stacks(cells, (), [swapped])
    assert again.rank == 0


def test_plan_takes_the_timeline_again_where_it_was_of_another_step() -> None:
    assert "trace" in planned("slow")[0]
    assert "trace" not in planned("base")[0]


def test_the_dram_counter_is_of_the_gpu_that_reads_most() -> None:
    """GPU 0 reads 20 % of its peak, GPU 1 half of that: 10.6 % is of neither."""
    one = cell("base", "baseline-c64-r0").telemetry
    assert one is not None
    first = min(r.sent_at_ns for c in run_of("base").cells for r in c.requests
                if c.name == "baseline-c64-r0")  # fmt: skip
    last = max(r.last_content_at_ns or 0 for c in run_of("base").cells
               for r in c.requests if c.name == "baseline-c64-r0")  # fmt: skip
    medians = [
        np.median(
            [
                s.dram_bw_pct or 0.0
                for s in run_of("base").samples.gpu
                if s.gpu == gpu and first <= s.at_ns <= last
            ]
        )
        for gpu in (0, 1)
    ]
    assert medians == pytest.approx([20.1, 10.3], abs=0.1)
    assert one.dram_bw_pct_median == pytest.approx(medians[0])


@pytest.mark.parametrize("name", ["base", "slow"])
def test_a_floor_that_the_counter_refutes_is_no_solid_number(name: str) -> None:
    """3.53 ms at full bandwidth need 40 % of it over the cell; 20 % were read."""
    board = board_of(name)
    assert not [text for text in board.solid if "byte floor" in text]
    (open_one,) = [n for n in board.not_solid if "byte floor" in n.claim]
    assert "DRAM counter" in open_one.why
    assert "routing" in open_one.what_would_settle_it
    assert entry(name, "bandwidth").share_of_step_pct is None
    assert "bandwidth" not in {c.hypothesis for c in board.ceilings}
    (stack,) = analysis_of(name).stacks
    assert not [p.name for p in stack.parts if p.name.startswith("floor")]
    assert sum(p.ms for p in stack.parts) == pytest.approx(stack.tpot_ms)


def test_one_timeline_of_the_cells_own_step_is_enough() -> None:
    """A second capture that met the same step settles it: no third is asked for."""
    run, analysis = run_of("slow"), analysis_of("slow")
    (step,) = analysis.traced
    own = cell("slow", "baseline-c64-r0").itl_ms.median
    again = msgspec.structs.replace(step, untraced_step_ms=own)
    both = msgspec.structs.replace(analysis, traced=(step, again))
    found = plan(run, both, judge(run, both), Budget(None, None))
    assert "trace" not in [c.id for c in found.candidates]


@pytest.mark.parametrize("name", ["base", "slow"])
def test_no_second_api_server_is_offered_where_there_are_two(name: str) -> None:
    """Data parallelism of two starts two: the patch would be the baseline again."""
    ids, recipe = planned(name)
    assert "api-servers" not in ids
    assert "api-server-count = 2" not in recipe


def test_steps_are_to_be_logged_with_one_api_server() -> None:
    ids, recipe = planned("base")
    assert "one-frontend" in ids
    assert "api-server-count = 1" in recipe
    assert "iteration_details = true" in recipe


def test_more_blocks_of_two_kinds_are_not_said_to_decide() -> None:
    found = plan(
        run_of("base"), analysis_of("base"), board_of("base"), Budget(None, None)
    )
    (one,) = [c for c in found.candidates if c.id == "warm-up"]
    assert {s.how for s in one.settles} == {"bears-on"}
    assert "uneven-ranks" in one.reason
    assert one.title.endswith("at concurrency 64")


def test_one_size_is_named_once() -> None:
    found = plan(
        run_of("slow"), analysis_of("slow"), board_of("slow"), Budget(None, None)
    )
    (one,) = [c for c in found.candidates if c.id == "eager"]
    assert one.title.endswith("(--enforce-eager) at 64")


def test_a_rise_is_not_said_to_be_still_to_come() -> None:
    (said,) = [
        f for f in analysis_of("base").findings if f.code == "warmup-not-converged"
    ]
    assert "may still rise" not in said.message
    assert "38.5 % faster than the 3 before" in said.message


def test_blocks_that_became_slower_are_not_said_to_agree() -> None:
    """9482, 9512, 8391 and then 6939, 6327, 8110: not rising, and not alike."""
    one = entry("slow", "warm-up")
    assert one.status == "ruled-out"
    assert "agreed" not in words(one)
    assert "no faster" in words(one)
    assert "6,330 to 9,510" in words(one)


def test_the_clients_ceiling_is_its_processor_where_that_is_the_busier() -> None:
    """Its loop was busy for 6.3 %, and its process used 15.7 % of a core."""
    (found,) = [c for c in board_of("base").ceilings if c.hypothesis == "client"]
    assert found.output_tokens_per_s == pytest.approx(7205.8 / 0.1573, rel=1e-3)


def test_power_that_differs_between_gpus_is_not_told_as_one() -> None:
    (said,) = [t for t in board_of("base").solid if " W a GPU" in t]
    assert "255" in said
    assert "408" in said


def test_a_core_of_two_api_servers_together_is_no_full_core(bench: Bench) -> None:
    """42 and 31 % here; two of 50 % each would be a core between them."""
    seen = bench.telemetry(
        process_cpu_pct={"api-server": 101.0},
        busiest_thread_cpu_pct={"api-server": 50.0},
    )
    said = bench.entry("frontend", None, bench.result(telemetry=seen))
    assert not [e for e in said.evidence if "CPU of the API server" in e.quantity]


def uneven(name: str) -> dict[str, str]:
    found = [f for f in analysis_of(name).findings if f.code == "uneven-ranks"]
    return {f.cell or "": f.message for f in found}


def test_a_rank_with_one_request_more_is_named_with_the_graph_that_it_costs() -> None:
    """Its own steps say so: 7 ms with 33 on a rank, 5.3 ms with 32 on each."""
    told = uneven("base")
    assert "31 to 33 on a rank in 2 of 2 scrapes" in told["baseline-c64-r0"]
    assert (
        "the graph of 128, where an even 32 would run that of 32"
        in told["baseline-c64-r0"]
    )
    slow = {c.name: (c.tpot_ms.mean or 0.0) > 6.5 for c in analysis_of("base").cells}
    assert {name: name in told for name in slow} == slow


def test_more_warm_up_is_not_promised_to_settle_blocks_of_two_kinds() -> None:
    (said,) = [
        f for f in analysis_of("base").findings if f.code == "warmup-not-converged"
    ]
    assert "uneven-ranks: baseline-warm2" in said.hint


def test_ranks_that_were_alike_are_not_called_uneven() -> None:
    assert "baseline-c64-r0" in uneven("slow")
    assert "baseline-c64-untraced" not in uneven("slow")


def test_a_comparison_carries_that_ranks_were_not_alike() -> None:
    sides = [
        Measured(
            run_of(n),
            analysis_of(n).cells,
            frozenset(),
            n,
            doubts=doubtful(analysis_of(n).findings),
        )
        for n in ("base", "slow")
    ]
    found = compare(sides, "base:baseline", ("slow:baseline",))
    codes = [f.code for f in found.findings]
    assert "uneven-ranks" in codes
