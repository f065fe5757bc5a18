"""Every hypothesis: a case for it, a case against it, and a contradiction."""

from typing import Any

import pytest
from tests.board.healthy import health

from stepscope.analysis.across.records import FloorPoint, RepeatGroup
from stepscope.analysis.boot.records import BootResult
from stepscope.analysis.records import Analysis
from stepscope.board.judge import judge
from stepscope.board.records import HYPOTHESES
from stepscope.board.rules import RULES
from stepscope.findings import Finding
from stepscope.run.client import Delay
from stepscope.run.samples import HostSample, MetricsSnapshot, MetricValue, Samples
from stepscope.run.serverlog import Ledger, LogEvent, ServerLog

Bench = Any  # tests/board/conftest.py; a conftest can not be imported

STEP_NS = 10_000_000
BUNCHED = (0, 2 * STEP_NS) * 49 + (0,)


LIMITED = health(verdict="limited", delay_ms=Delay(mean=2.0, p99=9.0, max=20.0))


def log(**over: Any) -> ServerLog:
    fields: dict[str, Any] = {"engine": "vllm", "version": "0.26.0", "n_lines": 1}
    return ServerLog(**{**fields, **over})


def floor(floor_ms: float) -> FloorPoint:
    return FloorPoint(
        configuration="base",
        concurrency=16,
        seqs_per_rank=15.5,
        coverage=None,
        bytes_per_rank=1e10,
        floor_ms=floor_ms,
        step_ms=9.9,
        times_floor=9.9 / floor_ms,
    )


def metrics(at_ns: int, **values: float) -> MetricsSnapshot:
    return MetricsSnapshot(
        at_ns=at_ns,
        values=tuple(
            MetricValue(name=f"vllm:{name}", labels={}, value=value)
            for name, value in values.items()
        ),
    )


class TestTheBoardAsAWhole:
    def test_every_hypothesis_has_rules_under_its_own_id(self) -> None:
        assert tuple(RULES) == HYPOTHESES
        assert all(RULES[name].id == name for name in HYPOTHESES)

    def test_every_rule_says_what_it_needs_when_it_decides_and_what_it_can_not_see(
        self,
    ) -> None:
        for hypothesis in RULES.values():
            names = [rule.name for rule in hypothesis.rules]
            assert len(names) == len(set(names))
            for rule in hypothesis.rules:
                assert rule.measurement
                assert rule.threshold
                assert rule.blind

    def test_no_hypothesis_is_silent_about_any_configuration(
        self, bench: Bench
    ) -> None:
        launches = (bench.launch(), bench.launch(name="x-l0", configuration="x"))
        board = bench.board(bench.run(launches=launches))
        for configuration in ("base", "x"):
            told = {
                e.hypothesis
                for e in board.entries
                if e.scope.configuration == configuration
            }
            assert told == set(HYPOTHESES)

    def test_a_run_that_measured_nothing_supports_nothing(self, bench: Bench) -> None:
        run = bench.run(cells=(), n_gpus=8)
        board = judge(run, Analysis(cells=()))
        assert {e.status for e in board.entries} == {"untestable"}
        assert board.solid == ()
        assert "Nothing was measured" in board.sentences[0]

    def test_a_cell_without_any_side_measurement_decides_nothing(
        self, bench: Bench
    ) -> None:
        bare = bench.result(
            server_tpot_ms=None,
            client_tpot_error_pct=None,
            engine_step_ms=None,
            chunks_per_token=None,
            tokens_per_step_and_sequence=None,
            prefill_share_of_steps=None,
            decode_efficiency=None,
        )
        board = bench.board(bench.run(n_gpus=8, cells=(bench.cell(requests=()),)), bare)
        assert {e.status for e in board.entries} == {"untestable"}
        assert all(e.would_decide for e in board.entries)

    def test_neighbours_of_equal_status_become_one_regime(self, bench: Bench) -> None:
        gaps = {1: 0.1, 2: 0.4, 4: 9.0, 8: 0.2}
        cells = tuple(bench.cell(f"c{c}", c) for c in gaps)
        results = tuple(
            bench.result(name=f"c{c}", concurrency=c, client_tpot_error_pct=gap)
            for c, gap in gaps.items()
        )
        board = bench.board(bench.run(cells=cells), *results)
        client = [e for e in board.entries if e.hypothesis == "client"]
        scopes = [
            (e.status, e.scope.concurrency_from, e.scope.concurrency_to) for e in client
        ]
        assert scopes == [
            ("ruled-out", 1, 2),
            ("standing", 4, 4),
            ("ruled-out", 8, 8),
        ]

    def test_a_ruled_out_regime_shows_its_largest_share(self, bench: Bench) -> None:
        cells = tuple(bench.cell(f"c{c}", c) for c in (1, 2))
        results = tuple(
            bench.result(name=f"c{c}", concurrency=c, client_tpot_error_pct=gap)
            for c, gap in ((1, 0.5), (2, 2.5))
        )
        entry = bench.entry("client", bench.run(cells=cells), *results)
        assert entry.share_of_step_pct == 2.5

    def test_repeats_that_disagree_leave_the_hypothesis_standing(
        self, bench: Bench
    ) -> None:
        cells = (bench.cell("a"), bench.cell("b"))
        hot = bench.telemetry(dram_bw_pct=85.0)
        cold = bench.telemetry(dram_bw_pct=10.0)
        entry = bench.entry(
            "bandwidth",
            bench.run(cells=cells),
            bench.result(name="a", telemetry=hot),
            bench.result(name="b", telemetry=cold),
        )
        assert entry.status == "standing"
        assert "disagree" in (entry.would_decide or "")

    def test_there_are_at_most_three_sentences(self, bench: Bench) -> None:
        assert 1 <= len(bench.board().sentences) <= 3

    def test_without_support_the_verdict_says_that_no_cause_is_shown(
        self, bench: Bench
    ) -> None:
        board = bench.board()
        assert not [e for e in board.entries if e.status == "supported"]
        assert any("No cause of the step time is shown" in s for s in board.sentences)


class TestVoidCells:
    def void(self, bench: Bench, **over: Any) -> Any:
        return bench.result(
            valid=False,
            void_reasons=("client-bound",),
            client_tpot_error_pct=9.0,
            telemetry=bench.telemetry(dram_bw_pct=95.0, tensor_pct=95.0),
            **over,
        )

    def test_a_void_cell_convicts_the_client(self, bench: Bench) -> None:
        run = bench.run(cells=(bench.cell(requests=bench.requests(BUNCHED)),))
        assert bench.entry("client", run, self.void(bench)).status == "supported"

    def test_a_void_cell_supports_nothing_else(self, bench: Bench) -> None:
        board = bench.board(bench.run(), self.void(bench))
        others = [e for e in board.entries if e.hypothesis != "client"]
        assert not [e for e in others if e.status == "supported"]
        (bandwidth,) = [e for e in others if e.hypothesis == "bandwidth"]
        assert bandwidth.status == "untestable"
        assert "void" in (bandwidth.would_decide or "")

    def test_a_void_cell_does_not_acquit_the_client(self, bench: Bench) -> None:
        mismatch = bench.result(valid=False, void_reasons=("token-count-mismatch",))
        assert bench.entry("client", bench.run(), mismatch).status == "standing"

    def test_what_the_layout_rules_out_holds_for_void_cells_too(
        self, bench: Bench
    ) -> None:
        entry = bench.entry("rank-wait", bench.run(), self.void(bench))
        assert entry.status == "ruled-out"


class TestClient:
    def test_bunched_stamps_of_unmerged_chunks_convict_it(self, bench: Bench) -> None:
        run = bench.run(cells=(bench.cell(requests=bench.requests(BUNCHED)),))
        entry = bench.entry("client", run, bench.result(client_tpot_error_pct=9.0))
        assert entry.status == "supported"
        assert entry.share_of_step_pct == pytest.approx(8.3, abs=0.1)

    def test_agreement_with_the_server_acquits_it(self, bench: Bench) -> None:
        assert bench.entry("client").status == "ruled-out"

    def test_a_gap_alone_does_not_convict_it(self, bench: Bench) -> None:
        entry = bench.entry(
            "client", bench.run(), bench.result(client_tpot_error_pct=9.0)
        )
        assert entry.status == "standing"

    def test_merged_chunks_do_not_convict_it(self, bench: Bench) -> None:
        run = bench.run(cells=(bench.cell(requests=bench.requests(BUNCHED)),))
        merged = bench.result(client_tpot_error_pct=9.0, chunks_per_token=0.8)
        assert bench.entry("client", run, merged).status == "standing"

    def test_measured_delay_convicts_it(self, bench: Bench) -> None:
        run = bench.run(cells=(bench.cell(client=LIMITED),))
        entry = bench.entry("client", run, bench.result(client_tpot_error_pct=None))
        assert entry.status == "supported"

    def test_a_bound_from_user_stamps_decides_nothing(self, bench: Bench) -> None:
        user = health(stamps="user")
        run = bench.run(cells=(bench.cell(client=user),))
        entry = bench.entry("client", run, bench.result(client_tpot_error_pct=None))
        assert entry.status == "untestable"

    def test_the_kernels_stamps_acquit_it_however_they_bunch(
        self, bench: Bench
    ) -> None:
        cell = bench.cell(client=health(), requests=bench.requests(BUNCHED))
        gap = bench.result(client_tpot_error_pct=9.0)
        entry = bench.entry("client", bench.run(cells=(cell,)), gap)
        assert entry.status == "ruled-out"

    def test_a_client_that_says_limited_is_not_acquitted_by_agreement(
        self, bench: Bench
    ) -> None:
        cell = bench.cell(client=health(verdict="limited"))
        entry = bench.entry("client", bench.run(cells=(cell,)))
        assert entry.status == "standing"


class TestFrontend:
    def test_merged_chunks_with_a_gap_support_it(self, bench: Bench) -> None:
        merged = bench.result(chunks_per_token=0.7, client_tpot_error_pct=20.0)
        entry = bench.entry("frontend", bench.run(), merged)
        assert entry.status == "supported"
        assert entry.share_of_step_pct == pytest.approx(16.7, abs=0.1)

    def test_merging_without_a_gap_leaves_it_standing(self, bench: Bench) -> None:
        merged = bench.result(chunks_per_token=0.7)
        assert bench.entry("frontend", bench.run(), merged).status == "standing"

    def test_speculative_decoding_merges_by_nature(self, bench: Bench) -> None:
        spec = bench.result(
            chunks_per_token=0.5,
            client_tpot_error_pct=20.0,
            tokens_per_step_and_sequence=2.0,
        )
        assert bench.entry("frontend", bench.run(), spec).status != "supported"

    def test_three_clocks_that_agree_rule_it_out(self, bench: Bench) -> None:
        assert bench.entry("frontend").status == "ruled-out"

    def test_stamps_of_the_engine_that_agree_rule_it_out_alone(
        self, bench: Bench
    ) -> None:
        blind = bench.result(engine_step_ms=None)
        entry = bench.entry("frontend", bench.run(), blind)
        assert entry.status == "ruled-out"
        assert "the engine itself stamps" in entry.evidence[0].reasoning

    def test_stamps_of_the_frontend_do_not_rule_it_out(self, bench: Bench) -> None:
        blind = bench.result(engine_step_ms=None)
        entry = bench.entry("frontend", bench.run(engine="sglang"), blind)
        assert entry.status == "standing"

    @pytest.mark.parametrize(
        "over",
        [
            {"client_tpot_error_pct": 4.0},
            {"client_tpot_error_pct": None},
            {"chunks_per_token": 0.97},
        ],
    )
    def test_without_that_agreement_it_is_not_ruled_out(
        self, bench: Bench, over: dict[str, Any]
    ) -> None:
        blind = bench.result(engine_step_ms=None, **over)
        assert bench.entry("frontend", bench.run(), blind).status != "ruled-out"


class TestScheduler:
    def run(self, bench: Bench, elapsed_ms: float) -> Any:
        events = tuple(
            LogEvent(
                kind="iteration",
                line=i + 1,
                text="",
                at_ns=40_000_000 + i * STEP_NS,
                numbers={"elapsed_ms": elapsed_ms, "context_requests": 0.0},
            )
            for i in range(80)
        )
        return bench.run(launches=(bench.launch(log=log(events=events)),))

    def test_an_engine_that_waits_for_its_gpu_rules_it_out(self, bench: Bench) -> None:
        assert bench.entry("scheduler", self.run(bench, 9.5)).status == "ruled-out"

    def test_a_result_that_is_already_there_does_not_support_it_alone(
        self, bench: Bench
    ) -> None:
        entry = bench.entry("scheduler", self.run(bench, 0.1))
        assert entry.status == "standing"
        assert entry.evidence[0].value == pytest.approx(1.01, abs=0.01)

    def test_low_utilization_does_not_support_it_alone(self, bench: Bench) -> None:
        idle = bench.result(telemetry=bench.telemetry(util_pct=45.0))
        assert bench.entry("scheduler", bench.run(), idle).status == "standing"

    def test_without_either_it_is_untestable(self, bench: Bench) -> None:
        entry = bench.entry("scheduler")
        assert entry.status == "untestable"
        assert "A kernel timeline" in (entry.would_decide or "")


class TestLaunching:
    @pytest.mark.parametrize("name", ["launch", "graph-launch", "kernel-gaps"])
    def test_only_a_timeline_decides_on_a_gpu(self, bench: Bench, name: str) -> None:
        entry = bench.entry(name)
        assert entry.status == "untestable"
        assert "stepscope trace" in (entry.would_decide or "")

    @pytest.mark.parametrize("name", ["launch", "graph-launch", "kernel-gaps"])
    def test_without_a_gpu_they_do_not_apply(self, bench: Bench, name: str) -> None:
        run = bench.run(engine="embedded", gpu=None, n_gpus=0)
        entry = bench.entry(name, run)
        assert entry.status == "ruled-out"
        assert "not applicable" in entry.evidence[0].reasoning

    @pytest.mark.parametrize("name", ["launch", "graph-launch"])
    def test_full_graphs_in_the_log_rule_nothing_out(
        self, bench: Bench, name: str
    ) -> None:
        full = log(resolved={"cudagraph_mode": "FULL"})
        entry = bench.entry(name, bench.run(launches=(bench.launch(log=full),)))
        assert entry.status == "standing"

    def test_eager_mode_rules_out_graph_launching_only(self, bench: Bench) -> None:
        eager = log(resolved={"cudagraph_mode": "NONE"})
        run = bench.run(launches=(bench.launch(log=eager),))
        assert bench.entry("graph-launch", run).status == "ruled-out"
        assert bench.entry("launch", run).status == "standing"


class TestRanks:
    NAMES = ("rank-wait", "imbalance", "communication")

    @pytest.mark.parametrize("name", NAMES)
    def test_one_rank_rules_them_out(self, bench: Bench, name: str) -> None:
        assert bench.entry(name).status == "ruled-out"

    @pytest.mark.parametrize("name", NAMES)
    def test_a_tight_utilization_spread_does_not(self, bench: Bench, name: str) -> None:
        from stepscope.recipe.records import Layout

        tight = bench.result(telemetry=bench.telemetry(util_spread_points=0.8))
        entry = bench.entry(name, bench.run(n_gpus=8, layout=Layout(dp=8)), tight)
        assert entry.status == "standing"

    @pytest.mark.parametrize("name", NAMES)
    def test_an_unrecorded_layout_does_not(self, bench: Bench, name: str) -> None:
        run = bench.run(engine="url", gpu=None, n_gpus=None, launches=())
        assert bench.entry(name, run).status == "untestable"


class TestBandwidth:
    def test_floor_and_counter_of_the_same_launch_support_it(
        self, bench: Bench
    ) -> None:
        cell = bench.result(telemetry=bench.telemetry(dram_bw_pct_median=66.0))
        entry = bench.entry("bandwidth", bench.run(), cell, floor=(floor(7.4),))
        assert entry.status == "supported"
        assert entry.share_of_step_pct == pytest.approx(74.7, abs=0.1)

    def test_the_floor_alone_does_not(self, bench: Bench) -> None:
        entry = bench.entry("bandwidth", None, floor=(floor(9.0),))
        assert entry.status == "standing"
        assert entry.share_of_step_pct == pytest.approx(90.9, abs=0.1)

    def test_a_low_floor_does_not_rule_it_out(self, bench: Bench) -> None:
        entry = bench.entry("bandwidth", None, floor=(floor(1.0),))
        assert entry.status == "standing"

    def test_a_low_counter_rules_it_out(self, bench: Bench) -> None:
        cell = bench.result(telemetry=bench.telemetry(dram_bw_pct=20.0))
        assert bench.entry("bandwidth", bench.run(), cell).status == "ruled-out"

    def test_a_counter_of_too_few_samples_is_not_read(self, bench: Bench) -> None:
        few = bench.telemetry(dram_bw_pct=95.0, n_samples_in_window=3)
        cell = bench.result(telemetry=few)
        assert bench.entry("bandwidth", bench.run(), cell).status == "untestable"

    def test_a_busy_counter_on_a_gpu_that_reads_idle_leaves_it_standing(
        self, bench: Bench
    ) -> None:
        cell = bench.result(telemetry=bench.telemetry(dram_bw_pct=80.0, util_pct=20.0))
        entry = bench.entry("bandwidth", bench.run(), cell)
        assert entry.status == "standing"
        assert "contradict" in (entry.would_decide or "")

    def test_utilization_over_a_loose_window_rules_nothing_out(
        self, bench: Bench
    ) -> None:
        cell = bench.result(telemetry=bench.telemetry(util_pct=30.0))
        loose = Finding(
            code="telemetry-window-mismatch",
            severity="warning",
            message="m",
            cell=cell.name,
        )
        assert bench.entry("bandwidth", bench.run(), cell).status == "ruled-out"
        entry = bench.entry("bandwidth", bench.run(), cell, findings=(loose,))
        assert entry.status == "untestable"


class TestCompute:
    def cpu(self, bench: Bench, total: float, thread: float | None, **over: Any) -> Any:
        busiest = {} if thread is None else {"server": thread}
        telemetry = bench.telemetry(
            n_samples_total=0,
            n_samples_in_window=0,
            process_cpu_pct={"server": total},
            busiest_thread_cpu_pct=busiest,
            **over,
        )
        run = bench.run(engine="embedded", gpu=None, n_gpus=0)
        return bench.entry("compute", run, bench.result(telemetry=telemetry))

    def test_busy_tensor_pipes_support_it(self, bench: Bench) -> None:
        cell = bench.result(telemetry=bench.telemetry(tensor_pct=70.0))
        assert bench.entry("compute", bench.run(), cell).status == "supported"

    def test_idle_tensor_pipes_and_idle_sms_rule_it_out(self, bench: Bench) -> None:
        cell = bench.result(
            telemetry=bench.telemetry(tensor_pct=3.0, sm_active_pct=20.0)
        )
        assert bench.entry("compute", bench.run(), cell).status == "ruled-out"

    def test_idle_tensor_pipes_alone_do_not(self, bench: Bench) -> None:
        cell = bench.result(
            telemetry=bench.telemetry(tensor_pct=3.0, sm_active_pct=85.0)
        )
        assert bench.entry("compute", bench.run(), cell).status == "standing"

    def test_busy_tensor_pipes_on_an_idle_gpu_contradict(self, bench: Bench) -> None:
        cell = bench.result(telemetry=bench.telemetry(tensor_pct=70.0, util_pct=10.0))
        assert bench.entry("compute", bench.run(), cell).status == "standing"

    def test_one_busy_thread_of_a_cpu_engine_supports_it(self, bench: Bench) -> None:
        entry = self.cpu(bench, 101.0, 97.0)
        assert entry.status == "supported"
        assert "arithmetic from stalls" in entry.evidence[0].reasoning

    def test_several_busy_threads_may_spin_and_leave_it_standing(
        self, bench: Bench
    ) -> None:
        assert self.cpu(bench, 200.0, 99.0).status == "standing"

    def test_a_process_whose_threads_are_unknown_leaves_it_standing(
        self, bench: Bench
    ) -> None:
        assert self.cpu(bench, 99.0, None).status == "standing"

    @pytest.mark.parametrize(
        ("over", "status"),
        [
            ({"busiest_thread_waited_pct": {"server": 0.3}}, "ruled-out"),
            ({"host_cpu_pct": 15.0}, "ruled-out"),
            ({"host_cpu_pct": 100.0}, "standing"),
            ({}, "standing"),
            (
                {"host_cpu_pct": 100.0, "busiest_thread_waited_pct": {"server": 0.3}},
                "ruled-out",
            ),
        ],
    )
    def test_an_idle_process_rules_it_out_where_it_had_a_core(
        self, bench: Bench, over: dict[str, Any], status: str
    ) -> None:
        assert self.cpu(bench, 20.0, 18.0, **over).status == status

    def test_a_busy_server_thread_says_nothing_where_a_gpu_computes(
        self, bench: Bench
    ) -> None:
        telemetry = bench.telemetry(
            process_cpu_pct={"server": 100.0}, busiest_thread_cpu_pct={"server": 99.0}
        )
        cell = bench.result(telemetry=telemetry)
        assert bench.entry("compute", bench.run(), cell).status == "untestable"


class TestPower:
    def entry(self, bench: Bench, **over: Any) -> Any:
        cell = bench.result(telemetry=bench.telemetry(**over))
        return bench.entry("power", bench.run(), cell)

    def test_a_cap_that_holds_the_clock_down_supports_it(self, bench: Bench) -> None:
        entry = self.entry(
            bench,
            throttle_reasons=("sw-power-cap",),
            sm_clock_mhz=1700.0,
            sm_clock_max_mhz=1980.0,
        )
        assert entry.status == "supported"
        # The clock bounds the share from above, and a share that supports is a
        # lower bound.
        assert entry.share_of_step_pct is None
        assert entry.evidence[1].value == pytest.approx(14.1, abs=0.1)

    def test_no_limiting_reason_rules_it_out(self, bench: Bench) -> None:
        assert self.entry(bench, throttle_reasons=("gpu-idle",)).status == "ruled-out"

    def test_a_reason_that_did_not_move_the_clock_rules_it_out(
        self, bench: Bench
    ) -> None:
        entry = self.entry(
            bench,
            throttle_reasons=("sw-power-cap",),
            sm_clock_mhz=1970.0,
            sm_clock_max_mhz=1980.0,
        )
        assert entry.status == "ruled-out"

    def test_without_reasons_headroom_and_full_clock_rule_it_out(
        self, bench: Bench
    ) -> None:
        entry = self.entry(
            bench,
            power_w=500.0,
            power_limit_w=700.0,
            sm_clock_mhz=1975.0,
            sm_clock_max_mhz=1980.0,
        )
        assert entry.status == "ruled-out"

    def test_near_the_cap_it_stands(self, bench: Bench) -> None:
        entry = self.entry(
            bench,
            power_w=620.0,
            power_limit_w=700.0,
            sm_clock_mhz=1975.0,
            sm_clock_max_mhz=1980.0,
        )
        assert entry.status == "standing"

    def test_what_the_clock_offset_leaves_open_counts(self, bench: Bench) -> None:
        entry = self.entry(
            bench,
            power_w=500.0,
            power_w_range=(400.0, 600.0),
            power_limit_w=700.0,
            sm_clock_mhz=1975.0,
            sm_clock_max_mhz=1980.0,
        )
        assert entry.status == "standing"

    def test_power_without_a_clock_maximum_leaves_it_standing(
        self, bench: Bench
    ) -> None:
        assert self.entry(bench, power_w=300.0).status == "standing"

    def test_without_a_gpu_it_is_untestable(self, bench: Bench) -> None:
        run = bench.run(engine="embedded", gpu=None, n_gpus=0)
        assert bench.entry("power", run).status == "untestable"


class TestKvCapacity:
    def run(
        self,
        bench: Bench,
        preemptions: float | None,
        usage: float,
        waiting: float = 0.0,
    ) -> Any:
        cell = bench.cell()
        if preemptions is not None:
            cell = bench.cell(
                metrics_before=metrics(0, num_preemptions_total=5.0),
                metrics_after=metrics(1, num_preemptions_total=5.0 + preemptions),
            )
        scrapes = tuple(
            metrics(
                40_000_000 + i * 100_000_000,
                kv_cache_usage_perc=usage,
                num_requests_waiting=waiting,
            )
            for i in range(5)
        )
        return bench.run(cells=(cell,), samples=Samples(metrics=scrapes))

    def test_a_full_cache_while_requests_wait_supports_it(self, bench: Bench) -> None:
        entry = bench.entry("kv-capacity", self.run(bench, None, 0.99, 12.0))
        assert entry.status == "supported"

    def test_requests_that_wait_for_prefill_before_the_cache_is_full_do_not(
        self, bench: Bench
    ) -> None:
        seen = [(0.3, 14.0), (0.6, 2.0), (0.8, 0.0), (0.97, 0.0), (0.97, 0.0)]
        scrapes = tuple(
            metrics(
                40_000_000 + i * 100_000_000,
                kv_cache_usage_perc=usage,
                num_requests_waiting=waiting,
            )
            for i, (usage, waiting) in enumerate(seen)
        )
        run = bench.run(samples=Samples(metrics=scrapes))
        assert bench.entry("kv-capacity", run).status == "standing"

    def test_preemptions_support_it(self, bench: Bench) -> None:
        assert (
            bench.entry("kv-capacity", self.run(bench, 3.0, 0.9)).status == "supported"
        )

    def test_room_in_the_cache_rules_it_out(self, bench: Bench) -> None:
        assert (
            bench.entry("kv-capacity", self.run(bench, 0.0, 0.2)).status == "ruled-out"
        )

    def test_preemptions_with_room_in_every_scrape_contradict(
        self, bench: Bench
    ) -> None:
        entry = bench.entry("kv-capacity", self.run(bench, 3.0, 0.2))
        assert entry.status == "standing"
        assert "contradict" in (entry.would_decide or "")

    def test_requests_that_all_fit_rule_it_out(self, bench: Bench) -> None:
        roomy = log(ledger=Ledger(kv_tokens=100_000))
        run = bench.run(launches=(bench.launch(log=roomy),))
        assert bench.entry("kv-capacity", run).status == "ruled-out"

    def test_requests_that_may_not_fit_leave_it_standing(self, bench: Bench) -> None:
        tight = log(ledger=Ledger(kv_tokens=3_300))
        run = bench.run(launches=(bench.launch(log=tight),))
        assert bench.entry("kv-capacity", run).status == "standing"

    def test_a_boot_that_failed_for_it_supports_it(self, bench: Bench) -> None:
        run = bench.run(cells=(), launches=(bench.launch(ready=False),))
        boot = BootResult(
            launch="base-l0",
            ready=False,
            seconds_to_ready=None,
            phases=(),
            ledger={},
            verdict={"cause": "no-kv-memory", "why": "nothing was left"},
        )
        board = judge(run, Analysis(cells=(), boot=(boot,)))
        status = {e.hypothesis: e.status for e in board.entries}
        assert status["kv-capacity"] == "supported"
        assert status["host-memory"] == "untestable"


class TestHostMemory:
    def run(
        self,
        bench: Bench,
        command: tuple[str, ...] = ("vllm", "serve", "m"),
        **over: Any,
    ) -> Any:
        host = HostSample(at_ns=1, memory_total_bytes=100 << 30)
        return bench.run(
            samples=Samples(host=(host,)),
            launches=(bench.launch(command=command),),
            **over,
        )

    def entry(self, bench: Bench, run: Any, peak_gib: float) -> Any:
        cell = bench.result(telemetry=bench.telemetry(host_memory_peak_gib=peak_gib))
        return bench.entry("host-memory", run, cell)

    def test_room_and_nothing_offloaded_rule_it_out(self, bench: Bench) -> None:
        assert self.entry(bench, self.run(bench), 20.0).status == "ruled-out"

    def test_offloading_leaves_it_standing(self, bench: Bench) -> None:
        command = ("vllm", "serve", "m", "--cpu-offload-gb", "20")
        assert self.entry(bench, self.run(bench, command), 20.0).status == "standing"

    def test_a_full_host_leaves_it_standing(self, bench: Bench) -> None:
        assert self.entry(bench, self.run(bench), 97.0).status == "standing"

    def test_an_unknown_command_leaves_it_standing(self, bench: Bench) -> None:
        assert self.entry(bench, self.run(bench, ()), 20.0).status == "standing"


class TestPrefill:
    def test_many_long_steps_support_it(self, bench: Bench) -> None:
        cell = bench.result(prefill_share_of_steps=0.4, itl_ms=bench.stats(10.0, 7.0))
        entry = bench.entry("prefill", bench.run(), cell)
        assert entry.status == "supported"
        assert entry.share_of_step_pct == pytest.approx(30.0)

    def test_few_steps_rule_it_out(self, bench: Bench) -> None:
        assert bench.entry("prefill").status == "ruled-out"

    def test_many_steps_that_do_not_lengthen_tpot_leave_it_standing(
        self, bench: Bench
    ) -> None:
        cell = bench.result(prefill_share_of_steps=0.4)
        assert bench.entry("prefill", bench.run(), cell).status == "standing"

    def test_gaps_of_merged_chunks_are_no_steps(self, bench: Bench) -> None:
        cell = bench.result(
            prefill_share_of_steps=0.4,
            itl_ms=bench.stats(10.0, 7.0),
            chunks_per_token=0.5,
        )
        assert bench.entry("prefill", bench.run(), cell).status == "standing"

    def test_few_steps_acquit_it_only_where_they_are_known_to_be_short(
        self, bench: Bench
    ) -> None:
        cell = bench.result(prefill_share_of_steps=0.005, chunks_per_token=0.5)
        assert bench.entry("prefill", bench.run(), cell).status == "standing"

    def test_ttft_alone_decides_nothing(self, bench: Bench) -> None:
        cell = bench.result(prefill_share_of_steps=None, decode_efficiency=0.3)
        assert bench.entry("prefill", bench.run(), cell).status == "standing"


class TestWarmUp:
    def repeats(self, *values: float) -> RepeatGroup:
        return RepeatGroup(
            configuration="base",
            session="s0",
            concurrency=16,
            metric="tpot_ms",
            cells=("base-c16-r0", "b", "c"),
            values=values,
            mean=10.0,
            ci95=(9.9, 10.1),
            cv_pct=1.0,
        )

    def finding(self, code: str) -> Finding:
        return Finding(code=code, severity="warning", message="m", cell="base-c16-r0")

    def test_compiling_while_measured_supports_it(self, bench: Bench) -> None:
        found = self.finding("jit-during-measurement")
        assert bench.entry("warm-up", None, findings=(found,)).status == "supported"

    def test_repeats_that_agree_rule_it_out(self, bench: Bench) -> None:
        group = self.repeats(10.1, 10.0, 10.0)
        assert bench.entry("warm-up", None, groups=(group,)).status == "ruled-out"

    def test_a_slow_first_repeat_leaves_it_standing(self, bench: Bench) -> None:
        group = self.repeats(11.0, 10.0, 10.0)
        assert bench.entry("warm-up", None, groups=(group,)).status == "standing"

    def test_two_repeats_decide_nothing(self, bench: Bench) -> None:
        group = self.repeats(10.1, 10.0)
        assert bench.entry("warm-up", None, groups=(group,)).status == "untestable"

    def test_agreement_and_compiling_contradict(self, bench: Bench) -> None:
        group = self.repeats(10.1, 10.0, 10.0)
        found = self.finding("jit-during-measurement")
        entry = bench.entry("warm-up", None, groups=(group,), findings=(found,))
        assert entry.status == "standing"


def test_the_busiest_process_is_the_one_that_computes(bench: Bench) -> None:
    cpu = {"engine-core": 15.0, "worker": 95.0}
    telemetry = bench.telemetry(process_cpu_pct=cpu, busiest_thread_cpu_pct=cpu)
    run = bench.run(gpu=None, n_gpus=0)
    entry = bench.entry("compute", run, bench.result(telemetry=telemetry))
    assert (entry.status, entry.share_of_step_pct) == ("supported", 95.0)
