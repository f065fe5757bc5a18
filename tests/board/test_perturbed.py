"""Evidence taken from recorded runs, or planted in them: no verdict may outrun it.

The table of docs/accuracy.md holds for each case what the board says instead, all
sixteen hypotheses over all concurrencies: what is not in a row is as without it.
"""

from functools import cache
from pathlib import Path
from typing import Any

import pytest
from tests.board.cases import CASES
from tests.board.perturbing import S, of_config, of_gpu, recorded, replace, slower
from tests.board.test_timelines import rank, step

from stepscope.analysis.across.records import FloorPoint
from stepscope.analysis.analyze import analyze
from stepscope.analysis.records import Analysis
from stepscope.board.judge import judge
from stepscope.board.records import HYPOTHESES, Board, BoardEntry
from stepscope.recipe.records import Layout
from stepscope.run.run import Machine
from stepscope.run.serverlog import Ledger, ServerLog

Bench = Any  # tests/board/conftest.py; a conftest can not be imported

PAGE = Path(__file__).parents[2] / "docs" / "accuracy.md"
ALL = [(run, name) for run, cases in CASES.items() for name in cases]


@cache
def judged(run: str, name: str) -> tuple[Analysis, Board]:
    changed = CASES[run][name](recorded(run))
    analysis = analyze(changed)
    return analysis, judge(changed, analysis)


def regimes(board: Board) -> dict[str, str]:
    """Return the statuses of each hypothesis with the range that each holds for."""
    told: dict[str, list[str]] = {name: [] for name in HYPOTHESES}
    for entry in board.entries:
        low, high = entry.scope.concurrency_from, entry.scope.concurrency_to
        told[entry.hypothesis].append(
            f"{entry.status} {low}" + ("" if low == high else f" to {high}")
        )
    return {name: ", ".join(ranges) for name, ranges in told.items()}


def row(run: str, name: str) -> str:
    """Return the case as a row of the page."""
    plain, changed = (regimes(judged(run, case)[1]) for case in ("nothing", name))
    said = [f"{h} {changed[h]}" for h in HYPOTHESES if changed[h] != plain[h]]
    if name == "nothing":
        said = [f"{h} {plain[h]}" for h in HYPOTHESES]
    return f"| {name} | {'; '.join(said) or 'as before'} |"


@pytest.mark.parametrize(("run", "name"), ALL)
class TestTheTable:
    def test_the_page_has_what_the_board_says(self, run: str, name: str) -> None:
        section = PAGE.read_text("utf-8").split(f"### {run}\n", 1)[1].split("\n#", 1)[0]
        assert row(run, name) in section.splitlines()

    def test_no_hypothesis_is_silent_at_any_concurrency(
        self, run: str, name: str
    ) -> None:
        analysis, board = judged(run, name)
        measured = {c.concurrency for c in analysis.cells if not c.warm_up}
        for hypothesis in HYPOTHESES:
            own = [e for e in board.entries if e.hypothesis == hypothesis]
            for concurrency in measured:
                assert concurrency is not None
                (one,) = [e for e in own if covers(e, concurrency)]
                decided = one.status in ("supported", "ruled-out")
                assert one.evidence if decided else one.would_decide
                if one.status == "supported" and one.share_of_step_pct is None:
                    assert "No share of" in (one.would_decide or "")

    def test_the_verdict_names_what_is_supported_and_nothing_else(
        self, run: str, name: str
    ) -> None:
        _, board = judged(run, name)
        said = " ".join(board.sentences)
        supported = [e for e in board.entries if e.status == "supported"]
        assert ("Supported by measurement" in said) == bool(supported)
        for entry in supported:
            if entry.share_of_step_pct is not None:
                assert f"at least {entry.share_of_step_pct:.1f} %" in said
        out = said.partition("Ruled out: ")[2].partition(".")[0].split(", ")
        for hypothesis in HYPOTHESES:
            own = {e.status for e in board.entries if e.hypothesis == hypothesis}
            assert (hypothesis in out) == (own == {"ruled-out"} and bool(out[0]))

    def test_what_is_in_doubt_is_not_solid(self, run: str, name: str) -> None:
        _, board = judged(run, name)
        doubted = any(f.code == "floor-doubtful" for f in board.findings)
        solid = any("times its byte floor" in claim for claim in board.solid)
        assert not (doubted and solid)


def covers(entry: BoardEntry, concurrency: int) -> bool:
    low, high = entry.scope.concurrency_from, entry.scope.concurrency_to
    assert low is not None
    assert high is not None
    return low <= concurrency <= high


def test_repeats_that_disagree_are_no_solid_number() -> None:
    run = slower("c64_1", 1.3)(recorded("baseline"))
    few = tuple(c for c in run.cells if c.workload.concurrency in (8, 64))
    changed = type(run)(
        **{f: getattr(run, f) for f in run.__struct_fields__} | {"cells": few}
    )
    board = judge(changed, analyze(changed))
    assert not any("output tokens/s at concurrency 64" in c for c in board.solid)
    (hole,) = [n for n in board.not_solid if "output tokens/s at" in n.claim]
    assert "repeats" in hole.why
    assert "to either side" in hole.why
    # The verdict shows between what they lie.
    assert "3 repeats, 2," in board.sentences[0]


def test_a_broken_counter_is_shown_and_not_read() -> None:
    run = of_gpu(dram_bw_pct=130.0)(recorded("iteration-details"))
    board = judge(run, analyze(run))
    told = [e for e in board.entries if e.hypothesis == "bandwidth"]
    assert all(e.status == "standing" for e in told)
    reasons = " ".join(x.reasoning for e in told for x in e.evidence)
    assert "no share of a peak" in reasons


class TestAFloorNearItsThreshold:
    """What was once supported from 70.0 % on, however uncertain the step."""

    def entry(self, bench: Bench, floor_ms: float, **over: Any) -> Any:
        point = FloorPoint(
            configuration="base", concurrency=16, seqs_per_rank=16.0, coverage=None,
            bytes_per_rank=1e9, floor_ms=floor_ms, step_ms=9.9,
            times_floor=9.9 / floor_ms,
        )  # fmt: skip
        counter = bench.telemetry(dram_bw_pct_median=70.5, util_pct=99.0)
        cell = bench.result(telemetry=counter, **over)
        return bench.entry("bandwidth", bench.run(), cell, floor=(point,))

    @pytest.mark.parametrize(
        ("share_pct", "error_pct", "status"),
        [
            (70.2, 0.4, "supported"),
            (70.2, 2.0, "standing"),
            (71.0, 2.0, "supported"),
            (71.0, 3.0, "standing"),
            (70.2, None, "standing"),
            (71.0, None, "supported"),
            (69.9, 0.1, "standing"),
            (75.0, 5.0, "supported"),
        ],
    )
    def test_its_lower_end_must_reach_the_threshold_to_the_percent(
        self, bench: Bench, share_pct: float, error_pct: float | None, status: str
    ) -> None:
        floor_ms = share_pct / 100 * 9.9
        entry = self.entry(bench, floor_ms, batch_means_error_pct=error_pct)
        assert entry.status == status
        assert "points uncertain" in str(entry.evidence)

    def test_more_than_memory_gives_is_no_floor_of_this_step(
        self, bench: Bench
    ) -> None:
        entry = self.entry(bench, 0.99 * 9.9)
        assert entry.status == "standing"
        assert "no memory gives more" in str(entry.evidence)


class TestTimeWithoutSteps:
    """At a low rate a GPU idles between requests, however busy a step keeps it."""

    def run(self, bench: Bench, *sent_s: float) -> Any:
        (one,) = bench.requests((10_000_000,) * 99)
        requests = [
            replace(
                one,
                index=i,
                sent_at_ns=round(at * S),
                ended_at_ns=one.ended_at_ns + round(at * S),
                first_content_at_ns=(one.first_content_at_ns or 0) + round(at * S),
                last_content_at_ns=(one.last_content_at_ns or 0) + round(at * S),
            )
            for i, at in enumerate(sent_s)
        ]
        return bench.run(cells=(bench.cell(requests=tuple(requests)),))

    def statuses(self, bench: Bench, run: Any, **over: float) -> set[str]:
        cell = bench.result(telemetry=bench.telemetry(**over))
        names = ("bandwidth", "compute")
        return {bench.entry(name, run, cell).status for name in names}

    def test_utilization_rules_out_what_it_bounds_of_a_step(self, bench: Bench) -> None:
        steady = self.run(bench, 0.0, 1.0, 2.0)
        assert self.statuses(bench, steady, util_pct=20.0) == {"ruled-out"}

    def test_and_nothing_where_most_of_the_window_has_no_step(
        self, bench: Bench
    ) -> None:
        rare = self.run(bench, 0.0, 5.0, 10.0)
        assert "ruled-out" not in self.statuses(bench, rare, util_pct=20.0)

    def test_nor_do_counters(self, bench: Bench) -> None:
        rare = self.run(bench, 0.0, 5.0, 10.0)
        low = {"dram_bw_pct": 20.0, "tensor_pct": 5.0, "sm_active_pct": 20.0}
        assert self.statuses(bench, rare, **low) == {"standing"}

    def test_tensor_pipes_that_were_full_between_steps_say_nothing_of_steps(
        self, bench: Bench
    ) -> None:
        long_prompts = self.run(bench, 0.0, 2.0, 4.0)
        hot = bench.result(telemetry=bench.telemetry(tensor_pct=65.0))
        assert bench.entry("compute", long_prompts, hot).status == "standing"


def test_a_client_ahead_of_its_server_is_told() -> None:
    analysis, board = judged("baseline", "client TPOT 17 % below the server's")
    told = [f for f in analysis.findings if f.code == "clocks-disagree"]
    assert {f.cell for f in told} >= {"c8_0", "c64_0"}
    assert not any("TPOT" in claim for claim in board.solid)


class TestRanksThatNobodySaw:
    CAUSE = (("launch", "launch_call"), ("kernel-gaps", "inside_graph"))

    @pytest.mark.parametrize(("name", "cause"), CAUSE)
    def test_one_replica_does_not_acquit_the_others(
        self, bench: Bench, name: str, cause: str
    ) -> None:
        run = bench.run(n_gpus=8, layout=Layout(dp=8))
        found = step(rank(causes={cause: 0.1}, communication_ms=0.5))
        assert bench.entry(name, run, traced=(found,)).status == "standing"

    @pytest.mark.parametrize(("name", "cause"), CAUSE)
    def test_a_rank_of_two_without_collectives_shows_nothing_of_the_other(
        self, bench: Bench, name: str, cause: str
    ) -> None:
        run = bench.run(n_gpus=2, layout=Layout(tp=2))
        found = step(rank(causes={cause: 0.1}))
        assert bench.entry(name, run, traced=(found,)).status == "standing"

    @pytest.mark.parametrize(("name", "cause"), CAUSE)
    def test_a_rank_that_waits_little_bounds_the_other(
        self, bench: Bench, name: str, cause: str
    ) -> None:
        run = bench.run(n_gpus=2, layout=Layout(tp=2))
        found = step(rank(causes={cause: 0.1}, communication_ms=0.5))
        assert bench.entry(name, run, traced=(found,)).status == "ruled-out"

    def test_an_idle_rank_does_not_make_the_device_idle(self, bench: Bench) -> None:
        run = bench.run(n_gpus=2, layout=Layout(tp=2))
        found = step(rank(causes={"host_not_launching_yet": 7.0}))
        assert bench.entry("compute", run, traced=(found,)).status != "ruled-out"

    @pytest.mark.parametrize("name", ["rank-wait", "imbalance", "communication"])
    def test_the_log_goes_before_a_run_that_says_nothing(
        self, bench: Bench, name: str
    ) -> None:
        def launched(tp: int) -> Any:
            told: Any = {
                "tensor_parallel_size": tp,
                "pipeline_parallel_size": 1,
                "data_parallel_size": 1,
            }
            log = ServerLog(engine="vllm", version=None, n_lines=1, resolved=told)
            run = bench.run(n_gpus=None, launches=(bench.launch(log=log),))
            return bench.entry(name, run).status

        assert launched(1) == "ruled-out"
        assert launched(2) == "untestable"


class TestAFloorOfAnotherServer:
    def doubts(self, bench: Bench, **over: Any) -> list[str]:
        run = recorded("iteration-details")
        config = {"model_config": run.model_config, **over}
        board = bench.board(bench.run(**config))
        return [f.message for f in board.findings if f.code == "floor-doubtful"]

    def launched(self, bench: Bench, command: tuple[str, ...] = (), **log: Any) -> Any:
        told = ServerLog(engine="vllm", version=None, n_lines=1, **log)
        return (bench.launch(command=command, log=told),)

    def test_loaded_weights_that_agree_raise_none(self, bench: Bench) -> None:
        sound = self.launched(bench, ledger=Ledger(weights_gib=56.88))
        assert self.doubts(bench, launches=sound) == []

    def test_loaded_weights_of_half_the_size_do(self, bench: Bench) -> None:
        half = self.launched(bench, ledger=Ledger(weights_gib=29.1))
        (one,) = self.doubts(bench, launches=half)
        assert "29.1 GiB" in one

    def test_a_flag_that_quantizes_does(self, bench: Bench) -> None:
        flagged = self.launched(bench, ("vllm", "serve", "m", "--quantization", "fp8"))
        (one,) = self.doubts(bench, launches=flagged)
        assert "fp8" in one

    def test_a_flag_of_another_layout_does(self, bench: Bench) -> None:
        spread = self.launched(bench, ("vllm", "serve", "m", "-tp", "2"))
        (one,) = self.doubts(bench, launches=spread)
        assert "tp = 2" in one

    def test_experts_without_a_number_do(self, bench: Bench) -> None:
        dense = of_config(num_experts=None)(recorded("iteration-details"))
        (one,) = self.doubts(bench, model_config=dense.model_config)
        assert "how many" in one

    def test_a_second_kind_of_gpu_in_the_machine_does_not(self, bench: Bench) -> None:
        machine = Machine(gpus=("NVIDIA L4", "NVIDIA H200"))
        assert self.doubts(bench, machine=machine) == []
        other = Machine(gpus=("NVIDIA L4",))
        assert len(self.doubts(bench, machine=other)) == 1

    def test_memory_that_the_named_gpu_has_not_does(self, bench: Bench) -> None:
        run = recorded("iteration-details")
        (one,) = self.doubts(bench, gpu="NVIDIA H20", samples=run.samples)
        assert "more than NVIDIA H20 has" in one


class TestACpuEngine:
    def status(self, bench: Bench, **over: Any) -> str:
        telemetry = bench.telemetry(n_samples_in_window=0, **over)
        run = bench.run(gpu=None, n_gpus=0)
        found = bench.entry("compute", run, bench.result(telemetry=telemetry))
        return str(found.status)

    def test_a_thread_without_a_core_is_not_a_thread_without_work(
        self, bench: Bench
    ) -> None:
        """A shared machine: 31 % of a core, ready for the other 69 %."""
        assert (
            self.status(
                bench,
                process_cpu_pct={"server": 31.0},
                busiest_thread_cpu_pct={"server": 30.0},
                busiest_thread_waited_pct={"server": 69.0},
            )
            == "standing"
        )

    def test_two_processes_that_burn_a_core_may_poll_for_each_other(
        self, bench: Bench
    ) -> None:
        """vLLM on a CPU: the worker and the engine core take turns."""
        cpu = {"engine-core": 59.0, "worker": 96.0}
        both = {"process_cpu_pct": cpu, "busiest_thread_cpu_pct": cpu}
        assert self.status(bench, **both) == "standing"
