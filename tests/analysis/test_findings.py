from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import pytest

from stepscope.analysis.analyze import analyze
from stepscope.analysis.records import Analysis
from stepscope.recipe.records import Cost
from stepscope.run.client import ClientHealth
from stepscope.run.requests import Request
from stepscope.run.run import Cell, Launch, Run, Summary
from stepscope.run.samples import GpuSample, MetricsSnapshot, ProcessSample, Samples
from stepscope.run.serverlog import LogEvent, ServerLog

MS = 1_000_000
S = 1_000_000_000
START = 10 * S
Served = Callable[..., tuple[Request, ...]]
MakeCell = Callable[..., Cell]
MakeRun = Callable[..., Run]
Codes = Callable[..., list[str]]
Scrape = Callable[..., MetricsSnapshot]
TPOT = "vllm__request_time_per_output_token_seconds"


def change(request: Request, **over: Any) -> Request:
    return msgspec.structs.replace(request, **over)


def found(analysis: Analysis, code: str) -> str:
    """The message of the only finding of that code."""
    (one,) = [f.message for f in analysis.findings if f.code == code]
    return one


def test_a_sound_cell_is_valid_and_only_lacks_samples(
    served: Served, cell_of: MakeCell, run_of: MakeRun, codes: Codes
) -> None:
    analysis = analyze(run_of(cell_of(served(64, 8))))
    (cell,) = analysis.cells
    assert cell.valid
    assert codes(analysis) == ["few-samples"]


def starving(role: str, ran_pct: float, waited_pct: float) -> Samples:
    """One process, sampled every 100 ms, whose busiest thread ran and waited so."""
    rows = (
        ProcessSample(
            at_ns=i * 100 * MS,
            pid=1,
            role=role,
            name=role,
            cpu_ns=int(i * ran_pct * MS),
            busiest_thread_cpu_ns=int(i * ran_pct * MS),
            busiest_thread_id=1,
            busiest_thread_waited_ns=int(i * waited_pct * MS),
        )
        for i in range(600)
    )
    return Samples(process=tuple(rows))


@pytest.mark.parametrize(
    ("role", "ran_pct", "waited_pct", "told"),
    [
        ("worker", 27, 73, True),
        ("api-server", 3, 43, True),
        ("server", 95, 4, False),
        # It polls and yields: ready always, and it needs nothing.
        ("engine-core", 3, 97, False),
        ("client", 10, 60, False),
    ],
)
def test_a_thread_of_the_server_without_a_core_is_told(
    served: Served, cell_of: MakeCell, run_of: MakeRun, codes: Codes, *,
    role: str, ran_pct: float, waited_pct: float, told: bool,
) -> None:  # fmt: skip
    samples = starving(role, ran_pct, waited_pct)
    analysis = analyze(run_of(cell_of(served(64, 8)), samples=samples))
    assert ("cpu-starved" in codes(analysis)) is told
    if told:
        message = found(analysis, "cpu-starved")
        assert f"{waited_pct} % of the window, and ran for {ran_pct} %" in message


def test_whole_waves_say_nothing_and_broken_ones_say_how_full_the_slots_were(
    served: Served, cell_of: MakeCell, run_of: MakeRun, codes: Codes
) -> None:
    whole = analyze(run_of(cell_of(served(96, 32), concurrency=32)))
    assert "partial-waves" not in codes(whole)
    broken = analyze(run_of(cell_of(served(100, 32), concurrency=32)))
    message = found(broken, "partial-waves")
    assert "3.125 waves, the last with 4" in message
    assert "0.781 of the slots" in message
    # A hundred whole waves and four requests more are no matter.
    many = analyze(run_of(cell_of(served(804, 8))))
    assert "partial-waves" not in codes(many)


@pytest.mark.parametrize(
    ("client_ms", "says", "valid"),
    [(10.0, False, True), (10.4, True, True), (11.4, True, False)],
)
def test_the_clients_gap_warns_above_three_and_voids_above_five_percent(
    served: Served, cell_of: MakeCell, run_of: MakeRun, codes: Codes, scrape: Scrape,
    *, client_ms: float, says: bool, valid: bool,
) -> None:  # fmt: skip
    cell = cell_of(
        served(64, 8, tpot_ms=client_ms),
        metrics_before=scrape(**{f"{TPOT}_sum": 0.0, f"{TPOT}_count": 0}),
        metrics_after=scrape(**{f"{TPOT}_sum": 0.64, f"{TPOT}_count": 64}),
    )
    analysis = analyze(run_of(cell))
    (result,) = analysis.cells
    assert result.client_tpot_error_pct == pytest.approx(client_ms * 10 - 100, abs=0.01)
    assert ("client-bound" in codes(analysis)) is says
    assert result.valid is valid
    assert result.void_reasons == (() if valid else ("client-bound",))


def test_answers_of_one_token_which_vllm_counts_as_zero_convict_no_client(
    served: Served, cell_of: MakeCell, run_of: MakeRun, codes: Codes, scrape: Scrape
) -> None:
    single = [
        msgspec.structs.replace(r, index=64 + r.index)
        for r in served(32, 8, tokens=1, start=30_000_000_000)
    ]
    cell = cell_of(
        (*served(64, 8, tpot_ms=10.0), *single),
        metrics_before=scrape(**{f"{TPOT}_sum": 0.0, f"{TPOT}_count": 0}),
        metrics_after=scrape(**{f"{TPOT}_sum": 0.64, f"{TPOT}_count": 96}),
    )
    analysis = analyze(run_of(cell))
    assert analysis.cells[0].server_tpot_ms == pytest.approx(10.0)
    assert "client-bound" not in codes(analysis)


def test_a_server_that_served_others_too_convicts_no_client(
    served: Served, cell_of: MakeCell, run_of: MakeRun, codes: Codes, scrape: Scrape
) -> None:
    cell = cell_of(
        served(64, 8, tpot_ms=20.0),
        metrics_before=scrape(
            **{f"{TPOT}_sum": 0.0, f"{TPOT}_count": 0}, vllm__generation_tokens_total=0
        ),
        metrics_after=scrape(
            **{f"{TPOT}_sum": 1.0, f"{TPOT}_count": 100},
            vllm__generation_tokens_total=2_000,
        ),
    )
    analysis = analyze(run_of(cell))
    assert analysis.cells[0].client_tpot_error_pct is None
    assert analysis.cells[0].valid
    assert "other-traffic" in codes(analysis)


def test_a_limited_client_says_so_without_voiding(
    served: Served, cell_of: MakeCell, run_of: MakeRun, codes: Codes
) -> None:
    health = ClientHealth(
        processes=1, loop="uvloop", stamps="user", delay_ms=None, unstamped_pct=None,
        merged_reads_pct=None, busy_pct=99.0, cpu_pct_max=100.0,
        late_sends_ms_p99=None, held_pct=None, chunks_per_s_peak=None,
        tokens_per_chunk_mean=None, verdict="limited", reasons=("loop busy 99 %",),
    )  # fmt: skip
    analysis = analyze(run_of(cell_of(served(64, 8), client=health)))
    assert "loop busy 99 %" in found(analysis, "client-bound")
    assert analysis.cells[0].valid


def test_merged_chunks_point_at_the_frontend_unless_drafts_explain_them(
    served: Served, cell_of: MakeCell, run_of: MakeRun, codes: Codes, scrape: Scrape
) -> None:
    requests = served(64, 8, chunk_every=2)
    plain = analyze(run_of(cell_of(requests)))
    assert "frontend-bound" in codes(plain)
    drafts = "vllm__spec_decode_num_drafts_total"
    accepted = "vllm__spec_decode_num_accepted_tokens_total"
    drafted = analyze(
        run_of(
            cell_of(
                requests,
                metrics_before=scrape(**{drafts: 0, accepted: 0}),
                metrics_after=scrape(**{drafts: 100, accepted: 90}),
            )
        )
    )
    assert "frontend-bound" not in codes(drafted)
    assert drafted.cells[0].tokens_per_step_and_sequence == pytest.approx(1.9)


def test_a_stall_is_found_where_it_lies_and_a_waves_rhythm_is_none(
    served: Served, cell_of: MakeCell, run_of: MakeRun, codes: Codes
) -> None:
    rhythm = analyze(run_of(cell_of(served(32, 8, ttft_ms=900.0))))
    assert "stall" not in codes(rhythm)
    ttft = np.full(32, 40.0)
    ttft[:8] = 1_900.0
    held = analyze(run_of(cell_of(served(32, 8, ttft_ms=ttft))))
    message = found(held, "stall")
    assert "from 0.00 s into the cell" in message
    assert "any of 8 requests" in message
    assert "first wave 1900 ms, of the others 40 ms" in message


def test_two_groups_of_ttft_are_found_after_the_first_wave(
    served: Served, cell_of: MakeCell, run_of: MakeRun, codes: Codes
) -> None:
    rng = np.random.default_rng(4)
    ttft = 100 * np.exp(rng.normal(0, 0.05, 128))
    one = analyze(run_of(cell_of(served(128, 8, ttft_ms=ttft))))
    assert "bimodal-ttft" not in codes(one)
    ttft[rng.choice(np.arange(8, 128), 18, replace=False)] *= 9
    two = analyze(run_of(cell_of(served(128, 8, ttft_ms=ttft))))
    assert "holds 15 % of requests" in found(two, "bimodal-ttft")
    ttft = 100 * np.exp(rng.normal(0, 0.05, 128))
    ttft[:8] *= 9
    first = analyze(run_of(cell_of(served(128, 8, ttft_ms=ttft))))
    assert "bimodal-ttft" not in codes(first)
    # The first prompt of each wave goes alone, the other seven wait for it.
    ttft = np.where(np.arange(128) % 8 == 0, 30.0, 100.0)
    rhythm = analyze(run_of(cell_of(served(128, 8, ttft_ms=ttft))))
    assert "bimodal-ttft" not in codes(rhythm)


def test_counts_that_contradict_the_request_void_the_cell(
    served: Served, cell_of: MakeCell, run_of: MakeRun, codes: Codes
) -> None:
    short = tuple(change(r, output_tokens=15) for r in served(64, 8))
    void = analyze(run_of(cell_of(short)))
    assert void.cells[0].void_reasons == ("token-count-mismatch",)
    one = (change(short[0], output_tokens=19), *served(64, 8)[1:])
    warned = analyze(run_of(cell_of(one)))
    assert "token-count-mismatch" in codes(warned)
    assert warned.cells[0].valid


def test_answers_that_stop_early_are_no_mismatch(
    served: Served, cell_of: MakeCell, run_of: MakeRun, codes: Codes
) -> None:
    stopped = tuple(
        change(r, output_tokens=15, n_chunks=15, finish_reason="stop")
        for r in served(64, 8)
    )
    analysis = analyze(run_of(cell_of(stopped)))
    assert "though ignore_eos was asked" in found(analysis, "early-stop")
    assert analysis.cells[0].valid
    allowed = tuple(change(r, finish_reason=None) for r in stopped)
    quiet = analyze(run_of(cell_of(allowed, ignore_eos=False)))
    assert codes(quiet).count("early-stop") == 1
    assert quiet.cells[0].valid


def test_more_chunks_than_tokens_void_the_cell(
    served: Served, cell_of: MakeCell, run_of: MakeRun
) -> None:
    requests = tuple(
        change(r, output_tokens=10, requested_output_tokens=10) for r in served(64, 8)
    )
    analysis = analyze(run_of(cell_of(requests, tokens=10)))
    assert analysis.cells[0].void_reasons == ("token-count-mismatch",)


def test_a_lost_request_voids_the_cell_but_not_an_interrupted_one(
    served: Served, cell_of: MakeCell, run_of: MakeRun, codes: Codes
) -> None:
    requests = served(64, 8)[:-1]
    void = analyze(run_of(cell_of(requests, n_prompts=64)))
    assert void.cells[0].void_reasons == ("little-violated",)
    cut = analyze(run_of(cell_of(requests, n_prompts=64, status="interrupted")))
    assert cut.cells[0].void_reasons == ()
    assert not cut.cells[0].valid
    assert "cell-interrupted" in codes(cut)


def test_more_in_flight_than_slots_voids_the_cell(
    served: Served, cell_of: MakeCell, run_of: MakeRun
) -> None:
    analysis = analyze(run_of(cell_of(served(64, 16), concurrency=8)))
    assert analysis.cells[0].void_reasons == ("little-violated",)


def test_a_summary_that_cannot_be_is_void_and_a_good_one_has_an_occupancy(
    cell_of: MakeCell, run_of: MakeRun
) -> None:
    stats = {"ttft_ms": {"mean": 100.0}, "tpot_ms": {"mean": 10.0}}
    good = Summary(
        n_completed=80, n_failed=0, duration_s=12.0, input_tokens=None,
        output_tokens=80 * 101, stats=stats,
    )  # fmt: skip
    (cell,) = analyze(run_of(cell_of(summary=good, n_prompts=80))).cells
    assert cell.occupancy == pytest.approx(80 * 1.1 / 12 / 8)
    assert cell.little_residual is None
    assert cell.steady_output_tokens_per_s == pytest.approx(8 * 101 / 1.1)
    assert cell.valid
    bad = msgspec.structs.replace(good, duration_s=6.0)
    (cell,) = analyze(run_of(cell_of(summary=bad, n_prompts=80))).cells
    assert cell.void_reasons == ("little-violated",)


def test_a_client_gap_is_seen_in_a_summary_too(
    cell_of: MakeCell, run_of: MakeRun, scrape: Scrape
) -> None:
    summary = Summary(
        n_completed=80, n_failed=0, duration_s=12.0, input_tokens=None,
        output_tokens=8080, stats={"tpot_ms": {"mean": 11.0}},
    )  # fmt: skip
    cell = cell_of(
        summary=summary,
        n_prompts=80,
        metrics_before=scrape(**{f"{TPOT}_sum": 0.0, f"{TPOT}_count": 0}),
        metrics_after=scrape(**{f"{TPOT}_sum": 0.8, f"{TPOT}_count": 80}),
    )
    assert analyze(run_of(cell)).cells[0].void_reasons == ("client-bound",)


def test_instants_that_run_backwards_void_the_cell(
    served: Served, cell_of: MakeCell, run_of: MakeRun
) -> None:
    first, *rest = served(64, 8)
    stepped = change(first, first_content_at_ns=first.sent_at_ns - 5 * MS)
    analysis = analyze(run_of(cell_of((stepped, *rest))))
    assert "clock-step" in analysis.cells[0].void_reasons


def test_samples_whose_clock_goes_back_in_the_cell_void_it(
    served: Served, cell_of: MakeCell, run_of: MakeRun
) -> None:
    at = [START + i * 20 * MS for i in range(100)]
    at[50:] = [t - 300 * MS for t in at[50:]]
    samples = Samples(gpu=tuple(GpuSample(at_ns=t, gpu=0, util_pct=1.0) for t in at))
    cell = cell_of(served(64, 8))
    analysis = analyze(run_of(cell, samples=samples))
    assert analysis.cells[0].void_reasons == ("clock-step",)


def test_failed_requests_are_counted_by_kind(
    served: Served, cell_of: MakeCell, run_of: MakeRun
) -> None:
    good = served(64, 8)
    bad = tuple(change(r, failure="stall") for r in good[:3])
    bad += (change(good[3], failure="reset"),)
    analysis = analyze(run_of(cell_of((*bad, *good[4:]))))
    assert analysis.cells[0].failure_kinds == {"stall": 3, "reset": 1}
    assert "4 of 64 requests failed (3 stall, 1 reset)" in found(
        analysis, "failed-requests"
    )


def test_a_failed_cell_is_listed_with_nothing_in_it(
    cell_of: MakeCell, run_of: MakeRun, codes: Codes
) -> None:
    cell = cell_of(status="failed", failure="the server died", n_prompts=64)
    analysis = analyze(run_of(cell))
    (result,) = analysis.cells
    assert result.output_tokens_per_s is None
    assert result.tpot_ms.mean is None
    assert not result.valid
    assert codes(analysis) == ["cell-failed"]


@pytest.mark.parametrize(
    ("at_s", "error_s", "hit"),
    [(9, 1, False), (9.5, 1, True), (10.5, 1, True), (30, 1, False), (8, 1, False)],
)
def test_a_compilation_counts_where_its_second_touches_the_span(
    served: Served, cell_of: MakeCell, run_of: MakeRun, codes: Codes,
    at_s: float, error_s: int, hit: bool,
) -> None:  # fmt: skip
    event = LogEvent(
        kind="jit", line=7, text="compiled fused_moe", at_ns=round(at_s * S),
        error_ns=error_s * S,
    )  # fmt: skip
    log = ServerLog(engine="vllm", version=None, n_lines=9, events=(event,))
    launch = Launch(name="base-l0", configuration="base", ready=True, log=log)
    analysis = analyze(run_of(cell_of(served(64, 8)), launches=(launch,)))
    assert ("jit-during-measurement" in codes(analysis)) is hit


def test_a_late_thinning_of_the_load_is_not_steady(
    served: Served, cell_of: MakeCell, run_of: MakeRun, codes: Codes
) -> None:
    steady = served(160, 8)
    assert "not-steady" not in codes(analyze(run_of(cell_of(steady))))
    late = tuple(
        change(
            r,
            sent_at_ns=r.sent_at_ns + (i // 8) * 40 * MS,
            first_content_at_ns=(r.first_content_at_ns or 0) + (i // 8) * 40 * MS,
            last_content_at_ns=(r.last_content_at_ns or 0) + (i // 8) * 40 * MS,
            ended_at_ns=r.ended_at_ns + (i // 8) * 40 * MS,
        )
        for i, r in enumerate(steady)
    )
    analysis = analyze(run_of(cell_of(late)))
    assert "not-steady" in codes(analysis)
    assert "slots-empty" in codes(analysis)


def test_a_drift_of_the_gaps_is_not_steady(
    served: Served, cell_of: MakeCell, run_of: MakeRun, codes: Codes
) -> None:
    rng = np.random.default_rng(2)
    noise = rng.normal(1, 0.01, 640)
    still = served(640, 8, tpot_ms=10 * noise, tokens=40)
    assert "not-steady" not in codes(analyze(run_of(cell_of(still, tokens=40))))
    drift = served(640, 8, tpot_ms=10 * noise * np.linspace(1, 1.2, 640), tokens=40)
    analysis = analyze(run_of(cell_of(drift, tokens=40)))
    assert "from the first to the second half" in found(analysis, "not-steady")


def test_prefix_hits_preemptions_and_a_restart_are_told(
    served: Served, cell_of: MakeCell, run_of: MakeRun, codes: Codes, scrape: Scrape
) -> None:
    names = (
        "vllm__prefix_cache_queries_total", "vllm__prefix_cache_hits_total",
        "vllm__num_preemptions_total", "vllm__generation_tokens_total",
    )  # fmt: skip
    before = scrape(**dict.fromkeys(names, 0.0))
    after = scrape(**dict(zip(names, (6400, 640, 3, 1280), strict=True)))
    cell = cell_of(served(64, 8), metrics_before=before, metrics_after=after)
    analysis = analyze(run_of(cell))
    assert "10.0 % of prompt tokens" in found(analysis, "prefix-cache-hits")
    assert "3 requests were preempted" in found(analysis, "preemptions")
    cell = cell_of(served(64, 8), metrics_before=after, metrics_after=before)
    assert "server-restarted" in codes(analyze(run_of(cell)))


def test_a_price_needs_money_and_a_rate(
    served: Served, cell_of: MakeCell, run_of: MakeRun
) -> None:
    cost = Cost(usd_per_gpu_hour=7.2, n_gpus=8)
    requests = served(64, 8, ttft_ms=10.0, tpot_ms=10.0)
    (cell,) = analyze(run_of(cell_of(requests), cost=cost)).cells
    assert cell.output_tokens_per_s == pytest.approx(800)
    assert cell.usd_per_million_output_tokens == pytest.approx(57.6 / 3600 / 800 * 1e6)
    (cell,) = analyze(run_of(cell_of(requests))).cells
    assert cell.usd_per_million_output_tokens is None
