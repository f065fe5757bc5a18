"""The published post, replayed: what it could conclude, and what it got wrong."""

from functools import cache
from pathlib import Path

import pytest

from stepscope.findings import Finding
from stepscope.importers.open import open_any
from stepscope.report.document import AnalyzeDocument, document

POST = Path(__file__).parents[2] / "examples" / "post"


@cache
def post() -> AnalyzeDocument:
    return document(open_any(POST))


def claim(name: str) -> Finding:
    return next(f for f in post().findings if f.message.startswith(f"{name}: "))


def found(code: str, cell: str | None = None) -> list[Finding]:
    return [f for f in post().findings if f.code == code and cell in (None, f.cell)]


@pytest.mark.parametrize(
    ("name", "code", "says"),
    [
        ("idle", "claim-not-shown", "between 11.2 and 84.6 %"),
        ("partial-waves", "claim-holds", "0.792"),
        ("graph-estimate", "claim-not-shown", "contains the graph estimate"),
        ("attention-breaks", "claim-not-shown", "PIECEWISE graphs only"),
        ("tpot-is-the-step", "claim-differs", "30.6 ms"),
        ("floor-low", "claim-differs", "2.07 ms"),
        ("floor-high", "claim-differs", "6.08 ms"),
        ("expert-bytes", "claim-differs", "269 GiB"),
        ("dense-bytes", "claim-differs", "8.52 GB"),
        ("kv-cost", "claim-differs", "948.6 MB"),
        ("not-imbalance", "claim-not-shown", "waits in a collective is busy"),
        ("not-compute", "claim-not-shown", "untestable of compute"),
        ("not-power", "claim-not-shown", "untestable of power"),
        ("candidates", "claim-not-shown", "open on this evidence: client, frontend"),
        ("minimum-utilization", "claim-differs", "at most 0.881"),
        ("short-context-1024", "claim-not-shown", "undetermined"),
        ("full-decode-1024", "claim-not-shown", "undetermined"),
        ("short-context-512", "claim-not-shown", "never measured in one session"),
    ],
)
def test_each_claim_of_the_post_is_held_against_its_evidence(
    name: str, code: str, says: str
) -> None:
    finding = claim(name)
    assert finding.code == code
    assert says in finding.message


def test_its_utilization_is_not_that_of_the_run() -> None:
    (one,) = found("telemetry-window-mismatch", "c2048")
    assert "up to 42 % of the samples are not of it" in one.message
    assert "15 to 89 % inside the run" in one.message


def test_its_own_command_is_three_waves_and_a_rest() -> None:
    (one,) = found("partial-waves")
    assert one.cell == "recipe_c32"
    assert "3.125 waves" in one.message


def test_prefill_is_in_its_tpot_at_the_highest_concurrency() -> None:
    (one,) = found("prefill-in-tpot")
    assert one.cell == "c2048"


def test_no_cause_is_supported_and_the_client_was_never_on_trial() -> None:
    own = [e for e in post().board if e.scope.configuration == "baseline"]
    assert not [e for e in own if e.status == "supported"]
    client = [e for e in own if e.hypothesis == "client"]
    assert {e.status for e in client} == {"untestable"}


def test_two_unrelated_changes_that_move_alike_convict_the_baseline() -> None:
    (one,) = found("shared-baseline")
    assert "concurrency 1024" in one.message
    assert {c.verdict for c in post().comparisons} == {"undetermined"}


def test_what_it_could_claim_is_solid() -> None:
    told = " ".join(post().solid)
    assert "33.2 times the throughput" in told
    assert "level 17.2 ms" in told


def test_both_failed_starts_keep_their_cause() -> None:
    causes = {boot.verdict["cause"] for boot in post().boot if not boot.ready}
    assert causes == {"gpu-oom-warmup-after-kv", "host-oom-kill"}
