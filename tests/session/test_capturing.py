"""Kernel timelines of a run: when they are taken, and what becomes of a failure."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.session.scripted_session import Impatient, Notes

from stepscope.archive.reader import open_run
from stepscope.clock import SystemClock
from stepscope.recipe.expand import expand, select
from stepscope.recipe.loader import load_recipe
from stepscope.run.requests import Request
from stepscope.run.run import Run
from stepscope.session.execute import Order, execute
from stepscope.session.halt import Halt
from stepscope.session.phases.capturing import Pace, pace_of
from stepscope.session.phases.tracefiles import is_whole, ranks_of

FAKE = Path(__file__).parent / "fake_vllm.py"
RECIPE = """
name = "traced"
engine = "vllm"
model = "m"
executable = [{python}, {fake}]
[baseline.environment]
{environment}
[workload]
input_tokens = 8
output_tokens = 10
concurrency = [2]
[warm_up]
blocks = 0
[capture]
concurrency = [2]
seconds = 0.2
stop_timeout_s = 2
"""


def taken(
    folder: Path, halt: Halt | None = None, **environment: str
) -> tuple[Run, list[str]]:
    """Run the recipe against the fake; return the run and what the server saw.

    With ``halt`` a person gives up while the server writes.
    """
    events = folder / "events"
    environment["FAKE_EVENTS"] = str(events)
    text = RECIPE.format(
        python=json.dumps(sys.executable),
        fake=json.dumps(str(FAKE)),
        environment="\n".join(f"{k} = {json.dumps(v)}" for k, v in environment.items()),
    )
    order = Order(expand(load_recipe(text, "r.toml")), text, folder / "run")
    observer = Notes([]) if halt is None else Impatient(halt, "POST /stop_profile")
    execute(order, clock=SystemClock(), observer=observer, halt=halt or Halt())
    return open_run(folder / "run"), events.read_text().split("\n")


def test_a_timeline_is_taken_after_all_measurements_in_mid_load(tmp_path: Path) -> None:
    run, events = taken(tmp_path)
    (trace,) = run.traces
    assert (trace.concurrency, trace.rank) == (2, 0)
    assert (trace.cell, trace.launch) == ("baseline-c2-trace", "baseline-trace-l0")
    assert is_whole(Path(trace.path))
    assert "traces/baseline-c2-trace/" in trace.path
    assert (Path(trace.path).parent / "profiler_out_0.txt").exists()
    boots = [i for i, event in enumerate(events) if event.startswith("boot")]
    assert [events[i] for i in boots] == ["boot False", "boot True"]
    start, stop = events.index("/start_profile"), events.index("/stop_profile")
    assert boots[1] < start < stop
    assert "request" in events[stop:], "the load had ended when the profiler stopped"
    assert not [f for f in run.findings if f.code.startswith("trace-")]


def test_loads_around_a_profiler_are_no_measurements(tmp_path: Path) -> None:
    run, _ = taken(tmp_path, FAKE_MODE="silent")
    captures = {c.name: c for c in run.cells if c.capture is not None}
    assert {name: c.capture for name, c in captures.items()} == {
        "baseline-c2-untraced": "untraced",
        "baseline-c2-trace": "traced",
    }
    assert all(c.warm_up and c.status == "done" for c in captures.values())
    (found,) = [f for f in run.findings if f.code == "trace-not-taken"]
    assert found.cell == "baseline-c2-trace"
    assert run.traces == ()
    assert run.complete


@pytest.mark.parametrize(
    ("mode", "why"),
    [
        ("refuse", "POST /start_profile: HTTP 404"),
        ("torn", "host_7.rank0.pt.trace.json.gz was not written to its end"),
    ],
)
def test_a_timeline_that_fails_fails_nothing_else(
    tmp_path: Path, mode: str, why: str
) -> None:
    run, _ = taken(tmp_path, FAKE_MODE=mode)
    assert run.traces == ()
    (found,) = [f for f in run.findings if f.code == "trace-not-taken"]
    assert why in found.message
    assert {c.status for c in run.cells} == {"done"}


def test_nobody_waits_for_a_slow_server_after_ctrl_c(tmp_path: Path) -> None:
    halt = Halt()
    run, events = taken(tmp_path, halt, FAKE_MODE="slow")
    assert "/stop_profile" in events
    assert not run.complete
    statuses = {c.name: c.status for c in run.cells}
    assert statuses.pop("baseline-c2-trace") == "interrupted"
    assert set(statuses.values()) == {"done"}
    assert [f.code for f in run.findings if f.code.startswith("trace-")] == [
        "trace-not-taken"
    ]


def test_an_old_vllm_is_told_by_its_environment(tmp_path: Path) -> None:
    run, _ = taken(tmp_path, FAKE_VERSION="0.11.2")
    (launch,) = [x for x in run.launches if x.name == "baseline-trace-l0"]
    assert "--profiler-config" not in launch.command
    assert launch.environment["VLLM_TORCH_PROFILER_DIR"].endswith(
        "traces/baseline-trace-l0"
    )
    assert len(run.traces) == 1


def test_the_pace_is_that_of_the_requests_without_the_clients_start() -> None:
    def request(sent: int, step: int, **over: Any) -> Request:
        fields: dict[str, Any] = {
            "index": 0,
            "sent_at_ns": sent,
            "first_content_at_ns": sent + 50,
            "last_content_at_ns": sent + 50 + 9 * step,
            "ended_at_ns": sent + 1000,
            "output_tokens": 10,
        }
        return Request(**{**fields, **over})

    sound = [request(5000, 10), request(6000, 12), request(7000, 11)]
    failed = request(8000, 900, failure="reset")
    assert pace_of([*sound, failed]) == Pace(step_ns=11, wave_ns=50 + 9 * 11)
    assert pace_of([failed, request(0, 5, output_tokens=1)]) is None


def test_only_a_traced_cell_brings_its_peer_and_its_warm_up() -> None:
    text = RECIPE.format(python='"p"', fake='"f"', environment="")
    plan = expand(load_recipe(text.replace("blocks = 0", "blocks = 1"), "r.toml"))
    (launch,) = select(plan, "*-c2-trace").launches
    assert [c.name for c in launch.cells] == [
        "baseline-warm1", "baseline-c2-untraced", "baseline-c2-trace",
    ]  # fmt: skip
    assert launch.traced


def test_ranks_are_read_from_names_and_else_from_their_order() -> None:
    assert ranks_of(["w_rank1.json", "w_rank0.json"]) == [1, 0]
    assert ranks_of(["17-TP-1.trace.json.gz", "17-TP-0.trace.json.gz"]) == [1, 0]
    assert ranks_of(["TP-0-DP-0.json", "TP-0-DP-1.json"]) == [0, 1]
    assert ranks_of(["a.json"]) == [0]
