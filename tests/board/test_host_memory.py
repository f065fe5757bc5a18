"""A process that vanished is not yet one that was killed for want of memory."""

from typing import Any

import pytest
from tests.board.test_post import post

from stepscope.analysis.boot.records import BootResult
from stepscope.analysis.records import Analysis
from stepscope.board.judge import judge

Bench = Any  # tests/board/conftest.py; a conftest can not be imported

PROOF = {"flag": "dmesg / memory.events", "value": "look for oom_kill"}


def test_a_start_that_died_without_a_word_leaves_it_standing() -> None:
    (entry,) = [
        e
        for e in post().board
        if e.hypothesis == "host-memory" and e.scope.configuration == "400-gib-host"
    ]
    assert entry.status == "standing"
    assert entry.evidence[0].value == "host-oom-kill"
    assert entry.would_decide is not None
    assert "dmesg" in entry.would_decide


@pytest.mark.parametrize(
    ("fixes", "status"), [([], "supported"), ([PROOF], "standing")]
)
def test_a_verdict_that_wants_proof_supports_nothing(
    bench: Bench, fixes: list[dict[str, str]], status: str
) -> None:
    boot = BootResult(
        launch="base-l0",
        ready=False,
        seconds_to_ready=None,
        phases=(),
        ledger={},
        verdict={"cause": "host-oom-kill", "why": "it was killed", "fixes": fixes},
    )
    run = bench.run(cells=(), launches=(bench.launch(ready=False),))
    board = judge(run, Analysis(cells=(), boot=(boot,)))
    (entry,) = [e for e in board.entries if e.hypothesis == "host-memory"]
    assert entry.status == status
