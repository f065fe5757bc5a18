"""A timeline that the run already holds is named instead of a new capture."""

from typing import Any

from stepscope.run.run import TraceRef

Bench = Any  # tests/board/conftest.py; a conftest can not be imported


def test_a_trace_at_this_concurrency_is_named(bench: Bench) -> None:
    run = bench.run(traces=(TraceRef(path="t/c16.json.gz", concurrency=16),))
    entry = bench.entry("kernel-gaps", run)
    assert entry.status == "untestable"
    assert "stepscope trace t/c16.json.gz" in (entry.would_decide or "")


def test_a_trace_at_another_concurrency_does_not_help(bench: Bench) -> None:
    run = bench.run(traces=(TraceRef(path="t/c8.json.gz", concurrency=8),))
    assert "capture" in (bench.entry("kernel-gaps", run).would_decide or "")
