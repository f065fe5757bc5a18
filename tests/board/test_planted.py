"""Small pieces of runs with planted causes: what was once judged wrongly.

The figures are those of real servers: vLLM 0.26 on an H200 (eager and graphs, a KV
cache that is too small, one core for the server, long prompts) and CPU engines.
"""

from typing import Any

import numpy as np
import pytest
from tests.board.healthy import health

from stepscope.analysis.across.records import FloorPoint
from stepscope.findings import Finding
from stepscope.run.client import ClientHealth, Delay
from stepscope.run.requests import Request
from stepscope.run.samples import HostSample, Samples

Bench = Any  # tests/board/conftest.py; a conftest can not be imported
MS = 1_000_000


def kept_up(**over: Any) -> ClientHealth:
    """A client with kernel stamps that read 0.02 ms after the kernel."""
    return health(**{"delay_ms": Delay(mean=0.02, p99=0.2, max=1.0), **over})


def streams(gaps_ms: np.ndarray, first_ms: np.ndarray) -> tuple[Request, ...]:
    """One request a row: its first token, then its gaps."""
    found: list[Request] = []
    for row, first in zip(gaps_ms, first_ms, strict=True):
        at = np.concatenate([[first], first + np.cumsum(row)]) * MS
        offsets = at.astype("<i8")
        found.append(
            Request(
                index=len(found),
                sent_at_ns=0,
                ended_at_ns=int(offsets[-1]),
                first_content_at_ns=int(offsets[0]),
                last_content_at_ns=int(offsets[-1]),
                output_tokens=len(offsets),
                n_chunks=len(offsets),
                chunk_offsets_ns=offsets.tobytes(),
            )
        )
    return tuple(found)


def prefilled(long_ms: float, *, every: int = 20) -> tuple[Request, ...]:
    """Steps of 20 ms; each ``every``-th takes ``long_ms`` and ends one more prompt."""
    steps = np.full(400, 20.0)
    steps[::every] = long_ms
    at = np.concatenate([[0.0], np.cumsum(steps)])
    starts = np.arange(0, 300, every) + 1
    gaps = np.stack([steps[s : s + 100] for s in starts])
    return streams(gaps, at[starts])


class TestLongPrompts:
    """TPOT 18 to 79 % above the engine's decode period, all of it prefill."""

    def seen(self, bench: Bench, hypothesis: str, **over: Any) -> Any:
        run = bench.run(cells=(bench.cell(requests=prefilled(125.0)),))
        fields = {
            "tpot_ms": bench.stats(25.0),
            "server_tpot_ms": 25.1,
            "client_tpot_error_pct": -0.2,
            "engine_step_ms": 20.0,
            "prefill_share_of_steps": None,
        }
        return bench.entry(hypothesis, run, bench.result(**{**fields, **over}))

    def test_prompts_in_the_long_gaps_name_prefill_with_its_share(
        self, bench: Bench
    ) -> None:
        entry = self.seen(bench, "prefill")
        assert entry.status == "supported"
        # 5 of 100 gaps are 105 ms longer, 525 of 2525 ms; of these 75 gaps of all
        # requests 60 end with another's first token.
        assert entry.share_of_step_pct == pytest.approx(0.8 * 100 * 525 / 2525, abs=0.1)

    def test_the_frontend_is_acquitted_since_nothing_was_caught_up(
        self, bench: Bench
    ) -> None:
        assert self.seen(bench, "frontend").status == "ruled-out"

    def test_a_stall_in_the_cell_acquits_nobody(self, bench: Bench) -> None:
        run = bench.run(
            cells=(bench.cell(requests=prefilled(125.0)),),
            findings=(
                Finding(
                    code="stall",
                    severity="warning",
                    message="for 0.96 s no content reached anybody",
                    cell="base-c16-r0",
                ),
            ),
        )
        result = bench.result(server_tpot_ms=25.1, engine_step_ms=20.0)
        entry = bench.entry("frontend", run, result)
        assert entry.status == "standing"
        assert "stall" in entry.would_decide

    def test_tokens_that_come_close_together_acquit_nobody(self, bench: Bench) -> None:
        gaps = np.tile([20.0, 20.0, 39.0, 1.0], (8, 25))
        run = bench.run(cells=(bench.cell(requests=streams(gaps, np.zeros(8))),))
        result = bench.result(server_tpot_ms=23.0, engine_step_ms=20.0)
        assert bench.entry("frontend", run, result).status == "standing"

    def test_one_stall_that_ends_with_a_prompt_is_not_prefill(
        self, bench: Bench
    ) -> None:
        gaps = np.full((64, 100), 18.0)
        gaps[:32, 50] = 960.0
        first = np.where(np.arange(64) < 32, 0.0, 50 * 18.0 + 960.0)
        run = bench.run(cells=(bench.cell(requests=streams(gaps, first)),))
        result = bench.result(prefill_share_of_steps=None, server_tpot_ms=20.4)
        entry = bench.entry("prefill", run, result)
        assert entry.status == "standing"

    def test_stalls_without_prompts_are_not_prefill(self, bench: Bench) -> None:
        gaps = np.full((16, 100), 20.0)
        gaps[:, 10::20] = 125.0
        run = bench.run(cells=(bench.cell(requests=streams(gaps, np.zeros(16))),))
        result = bench.result(prefill_share_of_steps=None, server_tpot_ms=25.0)
        assert bench.entry("prefill", run, result).status == "standing"


class TestOneCoreForTheServer:
    """Client TPOT 11 % above the server's, and the client read at once."""

    def void(self, bench: Bench, hypothesis: str, health: ClientHealth) -> Any:
        run = bench.run(cells=(bench.cell(client=health),))
        lost = bench.result(
            valid=False,
            void_reasons=("client-bound",),
            client_tpot_error_pct=11.1,
            server_tpot_ms=26.0,
            chunks_per_token=0.99,
        )
        return bench.entry(hypothesis, run, lost)

    @pytest.mark.parametrize("hypothesis", ["client", "frontend"])
    def test_what_would_decide_points_to_the_frontend(
        self, bench: Bench, hypothesis: str
    ) -> None:
        entry = self.void(bench, hypothesis, kept_up())
        assert entry.status in ("standing", "untestable")
        assert "it is not the client" in entry.would_decide
        assert "cores of its own" in entry.would_decide

    def test_a_client_that_read_late_is_not_acquitted(self, bench: Bench) -> None:
        late = kept_up(delay_ms=Delay(mean=2.0, p99=9.0, max=20.0))
        entry = self.void(bench, "client", late)
        assert "it is not the client" not in (entry.would_decide or "")

    def test_bunched_kernel_stamps_do_not_convict_the_client(
        self, bench: Bench
    ) -> None:
        gaps = np.tile([20.0, 20.0, 39.0, 1.0], (8, 25))
        cell = bench.cell(client=kept_up(), requests=streams(gaps, np.zeros(8)))
        lost = bench.result(client_tpot_error_pct=9.0, server_tpot_ms=20.0)
        entry = bench.entry("client", bench.run(cells=(cell,)), lost)
        assert entry.status != "supported"


class TestStoppedFrontend:
    """Stop signals for the API server: half of the tokens merge, TPOT stays."""

    def test_merging_that_another_cell_does_not_show_is_the_frontends(
        self, bench: Bench
    ) -> None:
        merged = bench.result(chunks_per_token=0.52)
        single = bench.result(name="base-c1-r0", concurrency=1)
        run = bench.run(cells=(bench.cell(), bench.cell("base-c1-r0", 1)))
        board = bench.board(run, single, merged)
        (entry,) = [
            e
            for e in board.entries
            if e.hypothesis == "frontend" and e.scope.concurrency_from == 16
        ]
        assert entry.status == "supported"

    def test_merging_alone_may_be_text_that_is_held_back(self, bench: Bench) -> None:
        merged = bench.result(chunks_per_token=0.52)
        entry = bench.entry("frontend", bench.run(), merged)
        assert entry.status == "standing"
        assert "at concurrency 1" in entry.would_decide


def test_a_starved_client_is_not_acquitted_because_tpot_agrees(bench: Bench) -> None:
    """Stop signals for the client: TPOT 0.1 % off, sends 150 ms late."""
    starved = kept_up(
        delay_ms=Delay(mean=22.0, p99=150.0, max=160.0),
        verdict="limited",
        reasons=("p99 delay 150 ms",),
    )
    run = bench.run(cells=(bench.cell(client=starved),))
    entry = bench.entry("client", run, bench.result(client_tpot_error_pct=0.1))
    assert entry.status == "supported"
    told = " ".join(bench.board(run, bench.result(client_tpot_error_pct=0.1)).sentences)
    assert "the client sends late (TPOT is the server's)" in told


def test_late_reads_that_hold_back_next_to_nothing_convict_nobody(
    bench: Bench,
) -> None:
    """A demo on a busy machine: read 1.2 ms late beside a TPOT of 7.8 ms."""
    starved = kept_up(
        delay_ms=Delay(mean=1.2, p99=16.5, max=30.0),
        verdict="limited",
        reasons=("p99 delay 16.5 ms",),
    )
    run = bench.run(cells=(bench.cell(client=starved),))
    entry = bench.entry("client", run, bench.result(client_tpot_error_pct=0.1))
    assert entry.status == "standing"


@pytest.mark.parametrize(
    ("stalled", "status"), [(False, "ruled-out"), (True, "standing")]
)
def test_warm_up_is_not_ruled_out_where_a_cell_stalled(
    bench: Bench, *, stalled: bool, status: str
) -> None:
    """After six waves of 64 the first wave of 8 waited for 1.8 s."""
    blocks = tuple(bench.cell(f"base-warm{i}", warm_up=True) for i in range(6))
    stall = Finding(
        code="stall", severity="warning", message="for 1.84 s", cell="base-c16-r0"
    )
    run = bench.run(cells=(*blocks, bench.cell()), findings=(stall,) * stalled)
    assert bench.entry("warm-up", run).status == status


def test_a_full_cgroup_that_is_gone_when_the_run_ends_is_not_acquitted(
    bench: Bench,
) -> None:
    """A run that froze in a cgroup of 200 MiB; the last sample saw the node alone."""
    whole = {"memory_used_bytes": 4 << 30, "memory_total_bytes": 24 << 30}
    full = HostSample(
        at_ns=500 * MS,
        cgroup_memory_bytes=200 << 20,
        cgroup_memory_limit_bytes=200 << 20,
        **whole,
    )
    host = (full, HostSample(at_ns=2000 * MS, **whole))
    run = bench.run(engine="embedded", n_gpus=0, gpu=None, samples=Samples(host=host))
    cell = bench.result(telemetry=bench.telemetry(host_memory_peak_gib=4.0))
    entry = bench.entry("host-memory", run, cell)
    assert entry.status == "standing"
    assert entry.evidence[0].value == pytest.approx(100.0)


class TestCounterBesideFloor:
    """Counter 34 % of peak over a window with prefill, floor 67 % of the step."""

    def judged(self, bench: Bench, counter: float, floor_ms: float) -> str:
        cell = bench.result(telemetry=bench.telemetry(dram_bw_pct_median=counter))
        point = FloorPoint(
            configuration="base",
            concurrency=16,
            seqs_per_rank=16.0,
            coverage=None,
            bytes_per_rank=1e9,
            floor_ms=floor_ms,
            step_ms=9.9,
            times_floor=9.9 / floor_ms,
        )
        entry = bench.entry("bandwidth", bench.run(), cell, floor=(point,))
        return str(entry.status)

    def test_a_low_counter_does_not_rule_out_what_the_floor_demands(
        self, bench: Bench
    ) -> None:
        assert self.judged(bench, 34.0, 6.6) == "standing"

    def test_a_low_counter_rules_out_where_the_floor_allows_it(
        self, bench: Bench
    ) -> None:
        assert self.judged(bench, 20.0, 1.0) == "ruled-out"

    def test_traffic_that_could_be_44_percent_of_a_step_is_not_ruled_out(
        self, bench: Bench
    ) -> None:
        assert self.judged(bench, 39.0, 1.0) == "standing"
