"""What moved and unmoved steps say of causes, and what they leave alone."""

from typing import Any

import pytest

from stepscope.analysis.across.records import FloorPoint
from stepscope.board.judge import judge
from stepscope.board.records import BoardEntry

Bench = Any  # tests/board/conftest.py
Two = Any  # tests/board/experiments/conftest.py

VLLM = ("vllm", "serve", "m")
PLAIN = {"command": VLLM}
EAGER = {"command": (*VLLM, "--enforce-eager")}
SAME = [10.0, 10.01, 9.99, 10.0]


def entry(board: Any, hypothesis: str, configuration: str) -> BoardEntry:
    (found,) = [
        e
        for e in board.entries
        if (e.hypothesis, e.scope.configuration) == (hypothesis, configuration)
    ]
    return found  # type: ignore[no-any-return]


def of_experiment(found: BoardEntry) -> list[str]:
    return [e.quantity for e in found.evidence if "against" in e.reasoning]


class TestGraphsAgainstEager:
    @pytest.mark.parametrize(
        ("util", "status"),
        [(20.0, "supported"), (60.0, "standing"), (None, "standing")],
    )
    def test_launching_is_convicted_where_the_device_was_idle(
        self, two: Two, bench: Bench, util: float | None, status: str
    ) -> None:
        cells = {"other_telemetry": bench.telemetry(util_pct=util)}
        run, analysis = two.of([10.0], [50.0], base=PLAIN, other=EAGER, cells=cells)
        found = entry(judge(run, analysis), "launch", "other")
        assert found.status == status
        if status == "supported":
            assert found.share_of_step_pct == pytest.approx(80.0)

    def test_below_the_larger_part_it_stands_with_its_share(
        self, two: Two, bench: Bench
    ) -> None:
        cells = {"other_telemetry": bench.telemetry(util_pct=20.0)}
        run, analysis = two.of([10.0], [25.0], base=PLAIN, other=EAGER, cells=cells)
        found = entry(judge(run, analysis), "launch", "other")
        assert (found.status, found.share_of_step_pct) == ("standing", 60.0)

    def test_periods_of_the_engine_must_agree(self, two: Two, bench: Bench) -> None:
        cells = {
            "other_telemetry": bench.telemetry(util_pct=20.0),
            "other_engine_step_ms": 20.0,
        }
        run, analysis = two.of([10.0], [50.0], base=PLAIN, other=EAGER, cells=cells)
        assert entry(judge(run, analysis), "launch", "other").status == "standing"

    def test_the_side_with_graphs_is_convicted_of_nothing(self, two: Two) -> None:
        run, analysis = two.of([10.0], [50.0], base=PLAIN, other=EAGER)
        board = judge(run, analysis)
        assert entry(board, "launch", "base").status == "standing"
        assert entry(board, "scheduler", "base").status == "untestable"

    def test_the_loop_can_not_take_longer_than_the_step_with_graphs(
        self, two: Two
    ) -> None:
        run, analysis = two.of([10.0], [50.0], base=PLAIN, other=EAGER)
        found = entry(judge(run, analysis), "scheduler", "other")
        assert (found.status, found.share_of_step_pct) == ("ruled-out", 20.0)

    def test_that_bound_says_nothing_where_the_steps_are_near(self, two: Two) -> None:
        run, analysis = two.of([10.0], [20.0], base=PLAIN, other=EAGER)
        assert entry(judge(run, analysis), "scheduler", "other").status == "standing"

    def test_an_unchanged_step_acquits_launching_on_both_sides(self, two: Two) -> None:
        run, analysis = two.of(SAME, SAME, base=PLAIN, other=EAGER, launches=True)
        board = judge(run, analysis)
        for side in ("base", "other"):
            found = entry(board, "launch", side)
            assert found.status == "ruled-out"
            assert found.share_of_step_pct is not None
            assert 0 < found.share_of_step_pct < 2

    def test_one_launch_that_reads_the_same_acquits_nobody(self, two: Two) -> None:
        run, analysis = two.of([10.0], [10.0], base=PLAIN, other=EAGER)
        board = judge(run, analysis)
        assert entry(board, "launch", "other").status == "untestable"
        assert [f.code for f in board.findings] == ["needs-launches"]

    def test_where_no_gpu_takes_part_it_says_nothing_of_launching(
        self, two: Two
    ) -> None:
        run, analysis = two.of(
            [10.0], [50.0], base=PLAIN, other=EAGER, gpu=None, n_gpus=0
        )
        board = judge(run, analysis)
        assert of_experiment(entry(board, "launch", "other")) == []
        assert board.experiments[0].said == ()


HALF = {**PLAIN, "cpus": "0-7"}


class TestProcessors:
    def test_an_unchanged_step_acquits_the_number_of_processors_alone(
        self, two: Two
    ) -> None:
        run, analysis = two.of(SAME, SAME, base=PLAIN, other=HALF, launches=True)
        board = judge(run, analysis)
        for hypothesis in ("scheduler", "launch"):
            found = entry(board, hypothesis, "base")
            assert found.status == "standing"
            text = " ".join(e.reasoning for e in found.evidence)
            assert "the number of processors does not limit it" in text
            assert "is not acquitted" in text

    def test_a_longer_step_convicts_no_part_of_the_host(self, two: Two) -> None:
        run, analysis = two.of([10.0], [50.0], base=PLAIN, other=HALF)
        board = judge(run, analysis)
        statuses = {
            e.status for e in board.entries if e.hypothesis in ("scheduler", "launch")
        }
        assert "supported" not in statuses
        assert "ruled-out" not in statuses


FOUR = {"command": ("embedded", "--threads", "4")}
PAIR = {"command": ("embedded", "--threads", "2")}
CPU = {"engine": "embedded", "gpu": None, "n_gpus": 0}


class TestThreads:
    def judged(
        self, two: Two, bench: Bench, ms: tuple[float, float], cpu: float
    ) -> Any:
        told = {"process_cpu_pct": {"server": cpu}}
        cells = {
            "base_telemetry": bench.telemetry(**told),
            "other_telemetry": bench.telemetry(process_cpu_pct={"server": cpu / 2}),
        }
        run, analysis = two.of(
            [ms[0]], [ms[1]], base=FOUR, other=PAIR, cells=cells, **CPU
        )
        return judge(run, analysis)

    def test_work_that_threads_share_is_convicted_where_cpu_times_agree(
        self, two: Two, bench: Bench
    ) -> None:
        # S = 2 ms, W/4 = 8 ms: with two threads 18 ms.
        board = self.judged(two, bench, (10.0, 18.0), 320.0)
        found = entry(board, "compute", "base")
        assert (found.status, found.share_of_step_pct) == ("supported", 80.0)
        heavy = entry(board, "compute", "other")
        assert heavy.share_of_step_pct == pytest.approx(100 * 16 / 18, abs=0.1)

    def test_a_longer_step_without_cpu_time_convicts_nobody(
        self, two: Two, bench: Bench
    ) -> None:
        board = self.judged(two, bench, (10.0, 18.0), 100.0)
        assert entry(board, "compute", "base").status == "standing"

    def test_fewer_threads_that_are_faster_show_that_the_others_waited(
        self, two: Two, bench: Bench
    ) -> None:
        board = self.judged(two, bench, (40.0, 10.0), 390.0)
        found = entry(board, "compute", "base")
        assert (found.status, found.share_of_step_pct) == ("ruled-out", 25.0)
        assert "waiting" in " ".join(e.reasoning for e in found.evidence)

    def test_fewer_processors_than_threads_convict_nobody(
        self, two: Two, bench: Bench
    ) -> None:
        cells = {"telemetry": bench.telemetry(process_cpu_pct={"server": 1600.0})}
        run, analysis = two.of(
            [10.0],
            [40.0],
            base=FOUR,
            other={**FOUR, "cpus": "0-7"},
            cells=cells,
            **CPU,
        )
        board = judge(run, analysis)
        assert board.experiments[0].change == "cpus"
        assert entry(board, "compute", "base").status == "standing"


class TestOthers:
    def test_a_step_that_offloading_makes_is_gone_without_it(self, two: Two) -> None:
        other = {"command": (*VLLM, "--cpu-offload-gb", "8")}
        run, analysis = two.of([10.0], [50.0], base=PLAIN, other=other)
        found = entry(judge(run, analysis), "host-memory", "other")
        assert (found.status, found.share_of_step_pct) == ("supported", 80.0)

    def test_a_second_api_server_that_changes_nothing_acquits_the_frontend(
        self, two: Two
    ) -> None:
        base = {"command": (*VLLM, "--api-server-count", "2")}
        cells = {"server_tpot_ms": None}
        run, analysis = two.of(
            SAME, SAME, base=base, other=PLAIN, cells=cells, launches=True
        )
        assert entry(judge(run, analysis), "frontend", "other").status == "ruled-out"

    @pytest.mark.parametrize(
        ("floor_ms", "status"), [(5.0, "ruled-out"), (0.01, "standing")]
    )
    def test_synchronous_scheduling_that_adds_nothing_needs_a_busy_device(
        self, two: Two, floor_ms: float, status: str
    ) -> None:
        from msgspec.structs import replace

        run, analysis = two.of(
            SAME,
            SAME,
            base={"command": (*VLLM, "--async-scheduling")},
            other={"command": (*VLLM, "--no-async-scheduling")},
            launches=True,
        )
        floors = tuple(
            FloorPoint(
                configuration=side,
                concurrency=16,
                seqs_per_rank=16.0,
                coverage=None,
                bytes_per_rank=1e10,
                floor_ms=floor_ms,
                step_ms=10.0,
                times_floor=10 / floor_ms,
            )
            for side in ("base", "other")
        )
        found = entry(judge(run, replace(analysis, floor=floors)), "scheduler", "other")
        assert found.status == status

    @pytest.mark.parametrize(
        ("light", "heavy"),
        [
            (("--data-parallel-size", "4"), ("--tensor-parallel-size", "4")),
            (("--max-model-len", "2048"), ("--max-model-len", "65536")),
        ],
    )
    def test_a_change_that_moves_several_causes_at_once_decides_none(
        self, two: Two, light: tuple[str, ...], heavy: tuple[str, ...]
    ) -> None:
        run, analysis = two.of(
            [10.0],
            [50.0],
            base={"command": (*VLLM, *light)},
            other={"command": (*VLLM, *heavy)},
        )
        board = judge(run, analysis)
        (one,) = board.experiments
        assert (one.said, one.moved[0].outcome) == ((), "longer")
