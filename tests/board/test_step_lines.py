"""A server asked for a line a step that wrote none is not asked for it again."""

import gzip
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from stepscope.analysis.across.steplines import FLAG, step_line_findings
from stepscope.parse.serverlog import parse_log
from stepscope.run.serverlog import LogEvent, ServerLog

Bench = Any  # tests/board/conftest.py; a conftest can not be imported
LOGS = Path(__file__).parents[1] / "data" / "logs" / "h200"

LOGGED = ServerLog(
    engine="vllm",
    version="0.26.0",
    n_lines=1,
    events=(LogEvent(kind="iteration", line=1, text=""),),
)


@cache
def dp2() -> ServerLog:
    """vLLM 0.26.0 on two H200s with the flag on and two API servers: no such line."""
    return parse_log(gzip.decompress((LOGS / "dp2-ep2.log.gz").read_bytes()), "vllm")


def test_a_launch_that_logged_no_step_is_named_once(bench: Bench) -> None:
    launch = bench.launch(command=("vllm", "serve", FLAG), log=dp2())
    (found,) = step_line_findings(bench.run(launches=(launch,)))
    assert (found.code, found.launch) == ("step-lines-missing", "base-l0")
    assert "--api-server-count 1" in found.hint


@pytest.mark.parametrize(
    "over",
    [
        {"command": ("vllm", "serve")},
        {"ready": False},
        {"log": None},
        {"log": LOGGED},
    ],
    ids=["not asked", "never ready", "no log", "logged"],
)
def test_nothing_else_is_named(bench: Bench, over: dict[str, Any]) -> None:
    launch = bench.launch(**{"command": ("vllm", "serve", FLAG), "log": dp2(), **over})
    assert not step_line_findings(bench.run(launches=(launch,)))


@pytest.mark.parametrize("name", ["frontend", "prefill", "scheduler"])
def test_what_would_decide_asks_for_one_api_server(bench: Bench, name: str) -> None:
    asked = bench.launch(command=("vllm", "serve", FLAG), log=dp2())
    result = bench.result(
        engine_step_ms=None, prefill_share_of_steps=None, client_tpot_error_pct=None
    )
    texts = {
        key: bench.entry(name, bench.run(launches=(launch,)), result).would_decide or ""
        for key, launch in (("asked", asked), ("not", bench.launch()))
    }
    assert "--api-server-count 1" in texts["asked"]
    assert f"add {FLAG}" in texts["not"]
