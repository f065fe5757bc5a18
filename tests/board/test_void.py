"""What a void point says is one thing in every row."""

from typing import Any

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
