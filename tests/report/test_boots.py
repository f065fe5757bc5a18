"""What is said of starts: cold and warm, money, retries, break-even."""

from stepscope.analysis.boot.records import BootResult, BreakEven, StartupCost
from stepscope.analysis.records import Analysis
from stepscope.report.boots import boots, startup_lines
from stepscope.run.run import AppliedFix, Run, Timeline

RUN = Run(id="r", engine="vllm", timeline=Timeline(kind="monotonic"))
FIX = AppliedFix(
    flag="max-model-len",
    before=None,
    value=4096,
    cause="kv-smaller-than-context",
    failed_launch="a-l0",
)


def boot(**over: object) -> BootResult:
    fields: dict[str, object] = {
        "launch": "a-l0",
        "ready": True,
        "seconds_to_ready": 60.0,
        "phases": ({"name": "compile", "seconds": 9.0, "overlaps": ["load_weights"]},),
        "ledger": {},
        "verdict": {},
        **over,
    }
    return BootResult(**fields)  # type: ignore[arg-type]  # a test's own keywords


def note(**over: object) -> str:
    analysis = Analysis(cells=(), boot=(boot(**over),))
    return boots(RUN, analysis)[0].note


def test_a_start_says_its_price_and_what_it_repeats() -> None:
    assert note() == ""
    assert note(cold=True, startup_usd=1.234) == "The first start for 1.23 USD."
    assert note(cold=False, unnamed_s=12.0).startswith("A later start. 12.0 s of it")
    told = note(retry_of="a-l0", applied_fixes=(FIX,))
    assert "It repeats a-l0" in told
    assert "--max-model-len 4096 instead of the default" in told
    assert "not to make it faster" in told
    assert note(ready=False, retried_by="a-l0-try1").endswith("again as a-l0-try1.")


def test_a_phase_names_what_ran_at_the_same_time() -> None:
    (told,) = boots(RUN, Analysis(cells=(), boot=(boot(),)))
    assert told.phases == (("compile", "9.00", "load_weights"),)


def test_equal_stamps_are_less_than_a_second_and_not_none() -> None:
    phases = ({"name": "kv_alloc", "seconds": 0.0, "overlaps": []},)
    (told,) = boots(RUN, Analysis(cells=(), boot=(boot(phases=phases),)))
    assert told.phases == (("kv_alloc", "below 1", ""),)


def test_what_no_clock_tells_is_no_exponent() -> None:
    phases = ({"name": "ready", "seconds": 3.1e-05, "overlaps": []},)
    (told,) = boots(RUN, Analysis(cells=(), boot=(boot(phases=phases),)))
    assert told.phases == (("ready", "below 0.001", ""),)


def test_a_ledger_without_an_amount_is_no_table() -> None:
    empty = boot(ledger={"device_inferred": False, "kv_gib": None})
    (told,) = boots(RUN, Analysis(cells=(), boot=(empty,)))
    assert told.ledger == ()


def test_a_ledger_is_told_in_words() -> None:
    full = boot(ledger={"kv_gib": 65.4, "kv_tokens": 714128, "device_inferred": False})
    (told,) = boots(RUN, Analysis(cells=(), boot=(full,)))
    assert told.ledger == (
        ("KV cache", "65.4", "GiB"),
        ("tokens in the KV cache", "714,128", ""),
    )


def test_starts_are_summed_up_and_only_established_break_evens_are_told() -> None:
    cost = StartupCost(
        configuration="a",
        session="s0",
        cold_s=100.0,
        warm_s=50.0,
        n_warm=2,
        cold_usd=1.0,
        warm_usd=None,
    )
    after = BreakEven(
        a="a", b="b", concurrency=16, verdict="after", hours=0.5, why="b is ahead"
    )
    unknown = BreakEven(a="a", b="b", concurrency=1, verdict="undetermined")
    analysis = Analysis(cells=(), startup=(cost,), break_even=(after, unknown))
    assert startup_lines(analysis) == [
        "a, to start: first 100 s (1.00 USD), later 50.0 s",
        "b against a at concurrency 16: b is ahead, 0.50 hours after both are started",
    ]
