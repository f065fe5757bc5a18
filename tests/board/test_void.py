"""What a void point says is one thing in every row."""

from typing import Any

from tests.board.test_post import post

from stepscope.run.serverlog import ServerLog

Bench = Any  # tests/board/conftest.py; a conftest can not be imported


def test_a_setting_in_the_log_is_no_measurement_of_a_void_point(bench: Bench) -> None:
    log = ServerLog(
        engine="vllm",
        version="0.26.0",
        n_lines=1,
        resolved={"cudagraph_mode": "FULL_AND_PIECEWISE"},
    )
    run = bench.run(launches=(bench.launch(log=log),))
    void = bench.result(valid=False, void_reasons=("client-bound",))
    told = {e.hypothesis: e for e in bench.board(run, void).entries}
    for name in ("launch", "graph-launch", "kernel-gaps", "scheduler"):
        assert told[name].status == "untestable"
        assert "Every cell here is void" in (told[name].would_decide or "")
    # What can not be there at all is not there in a void cell either.
    assert told["rank-wait"].status == "ruled-out"


def test_nor_is_it_one_of_a_configuration_that_measured_nothing() -> None:
    told = {
        (e.scope.configuration, e.hypothesis): e.status
        for e in post().board
        if e.scope.configuration in ("as-published", "400-gib-host")
    }
    for name in ("launch", "graph-launch", "kernel-gaps"):
        assert told["as-published", name] == "untestable"
        assert told["400-gib-host", name] == "untestable"
