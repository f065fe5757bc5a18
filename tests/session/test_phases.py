"""The order of phases, and what becomes of a session when one of them fails."""

import errno
import threading
from typing import SupportsIndex

import msgspec
import pytest
from tests.session.scripted_session import (
    PROBED,
    RECIPE,
    ScriptedSite,
    World,
    broken_off,
)

from stepscope.archive.reader import open_run
from stepscope.errors import SessionError
from stepscope.load.probe import ProbeResult
from stepscope.load.spec import LoadResult, LoadSpec
from stepscope.run.frames import frame
from stepscope.run.requests import Request
from stepscope.session.server import Left, Stopped


def test_every_launch_goes_through_its_phases_in_this_order(world: World) -> None:
    world.run()
    one_launch = [
        "[boot]",
        "start",
        "watch",
        "GET /health",
        "[probe]",
        "probe request",
        "[ask]",
        *["probe request"] * 4,
        "[warm-up]",
        "GET /metrics",
        "drive {}-warm0",
        "GET /metrics",
        "[measure]",
        "GET /metrics",
        "drive {}-c1-r0",
        "GET /metrics",
        "[measure]",
        "GET /metrics",
        "drive {}-c2-r0",
        "GET /metrics",
        "unwatch",
        "[stop]",
        "end server",
    ]
    expected = ["[preflight]"]
    for name in ("baseline", "other"):
        expected += [event.format(name) for event in one_launch]
    assert world.site.events == expected


def test_a_session_that_went_well_is_complete(world: World) -> None:
    outcome = world.run()
    run = open_run(world.out)
    assert (outcome.n_measured, outcome.failures) == (4, ())
    assert run.complete
    assert {cell.status for cell in run.cells} == {"done"}
    assert [len(cell.requests) for cell in run.cells] == [2] * 6
    assert all(cell.metrics_before and cell.metrics_after for cell in run.cells)
    assert [x.exit_code for x in run.launches] == [0, 0]
    assert run.launches[0].probe["streams"] is True


def test_cells_are_counted_over_the_whole_run(world: World) -> None:
    world.run()
    assert [n for _, n, _ in world.notes.cells] == [1, 2, 3, 4, 5, 6]
    assert {total for _, _, total in world.notes.cells} == {6}


def test_a_boot_is_ready_when_its_own_path_says_so(world: World) -> None:
    world.site.boots = [5, 1]
    world.run()
    first = open_run(world.out).launches[0]
    assert first.started_at_ns is not None
    assert first.ready_at_ns is not None
    assert first.ready_at_ns - first.started_at_ns == 400_000_000


def test_a_boot_that_dies_fails_its_cells_and_the_next_launch_goes_on(
    world: World,
) -> None:
    world.site.boots = [-7, 1]
    world.site.log = b"INFO loading\nValueError: no room for KV\nbye\n"
    outcome = world.run()
    run = open_run(world.out)
    first, second = run.launches
    why = "ValueError: no room for KV"
    assert first.ready is False
    assert first.exit_code == 7
    assert first.failure == f"exit code 7 before it was ready: {why}"
    failed = [c for c in run.cells if c.launch == first.name]
    assert {c.status for c in failed} == {"failed"}
    assert all(why in (c.failure or "") for c in failed)
    assert second.ready
    assert outcome.n_measured == 2
    assert run.complete


def test_a_boot_that_is_never_ready_ends_at_the_timeout(world: World) -> None:
    world.site.boots = [10**9, 10**9]
    outcome = world.run("readiness_timeout_s = 30\n" + RECIPE)
    run = open_run(world.out)
    assert outcome.n_measured == 0
    assert "not ready after 30 s" in (run.launches[0].failure or "")
    took = (run.launches[0].stopped_at_ns or 0) - (run.launches[0].started_at_ns or 0)
    assert took == 30_000_000_000
    assert world.site.events.count("end server") == 2


def test_a_server_that_dies_in_a_cell_fails_that_cell_and_the_rest_of_its_launch(
    world: World,
) -> None:
    def dies(site: ScriptedSite, spec: LoadSpec, stop: threading.Event) -> LoadResult:
        site.last_server.code = -9
        assert stop.wait(10), "nobody noticed that the server died"
        return broken_off(site)

    world.site.drives["baseline-c1-r0"] = dies
    world.site.log = b"CUDA error: illegal memory access\n"
    outcome = world.run()
    cells = {c.name: c for c in open_run(world.out).cells}
    assert cells["baseline-warm0"].status == "done"
    assert cells["baseline-c1-r0"].status == "failed"
    assert cells["baseline-c2-r0"].status == "failed"
    for name in ("baseline-c1-r0", "baseline-c2-r0"):
        assert "server died, killed by SIGKILL" in (cells[name].failure or "")
        assert "illegal memory access" in (cells[name].failure or "")
    assert cells["baseline-c1-r0"].metrics_after is None
    assert "drive baseline-c2-r0" not in world.site.events
    assert outcome.n_measured == 2


def test_a_cell_without_one_good_request_has_failed(world: World) -> None:
    def refused(
        site: ScriptedSite, spec: LoadSpec, stop: threading.Event
    ) -> LoadResult:
        return msgspec.structs.replace(broken_off(site), stopped=False)

    world.site.drives["baseline-c1-r0"] = refused
    outcome = world.run()
    cell = next(c for c in open_run(world.out).cells if c.name == "baseline-c1-r0")
    assert (cell.status, cell.failure) == ("failed", "all 1 requests failed")
    assert outcome.n_measured == 3


def test_how_the_first_request_failed_is_said_with_the_cell(world: World) -> None:
    lost = (
        Request(index=0, sent_at_ns=1, ended_at_ns=9, failure="closed"),
        Request(
            index=1,
            sent_at_ns=2,
            ended_at_ns=5,
            failure="header-timeout",
            failure_detail="no response header\nin 2 s",
        ),
    )

    def silent(site: ScriptedSite, spec: LoadSpec, stop: threading.Event) -> LoadResult:
        folder = world.out / "cells" / "baseline-c1-r0"
        (folder / "requests-0.journal").write_bytes(
            b"".join(frame(msgspec.msgpack.encode(request)) for request in lost)
        )
        return msgspec.structs.replace(broken_off(site), stopped=False, n_failed=2)

    world.site.drives["baseline-c1-r0"] = silent
    world.run()
    cell = next(c for c in open_run(world.out).cells if c.name == "baseline-c1-r0")
    assert cell.failure == (
        "all 2 requests failed, the first by header-timeout: no response header in 2 s"
    )


def test_being_asked_to_stop_interrupts_the_cell_and_ends_the_server(
    world: World,
) -> None:
    def asked(site: ScriptedSite, spec: LoadSpec, stop: threading.Event) -> LoadResult:
        world.halt.ask()
        assert stop.wait(10), "the client was not told to stop"
        return broken_off(site, n_ok=1)

    world.site.drives["baseline-c1-r0"] = asked
    outcome = world.run()
    run = open_run(world.out)
    assert outcome.interrupted
    assert run.complete is False
    statuses = {c.name: c.status for c in run.cells}
    assert statuses == {
        "baseline-warm0": "done",
        "baseline-c1-r0": "interrupted",
        "baseline-c2-r0": "interrupted",
    }
    assert world.site.events[-1] == "end server"
    assert [x.name for x in run.launches] == ["baseline-l0"]


def test_a_full_disk_is_one_line_and_the_server_is_ended(world: World) -> None:
    def fills(site: ScriptedSite, spec: LoadSpec, stop: threading.Event) -> LoadResult:
        raise OSError(errno.ENOSPC, "No space left on device", "samples.journal")

    world.site.drives["baseline-c1-r0"] = fills
    with pytest.raises(SessionError) as caught:
        world.run()
    assert str(caught.value).startswith("samples.journal: No space left on device")
    assert "--resume" in str(caught.value)
    assert world.site.events[-1] == "end server"
    assert open_run(world.out).complete is False


def test_an_unknown_model_is_one_line_that_names_those_there_are(
    world: World,
) -> None:
    world.site.probed = msgspec.structs.replace(
        PROBED, http_status=404, failure="http-status", failure_detail="no such model"
    )
    outcome = world.run()
    assert outcome.n_measured == 0
    assert len(outcome.failures) == 2
    assert "HTTP 404" in outcome.failures[0]
    assert "there is a, b" in outcome.failures[0]
    assert not any(event.startswith("drive") for event in world.site.events)


BUSY = msgspec.structs.replace(
    PROBED, http_status=503, failure="rate-limited", failure_detail="HTTP 503: loading"
)


def test_a_probe_that_fails_once_costs_no_boot_and_is_told(world: World) -> None:
    world.site.probes = [BUSY, BUSY]
    began_ns = world.clock.now_ns()
    outcome = world.run()
    assert (outcome.n_measured, outcome.failures) == (4, ())
    assert world.clock.now_ns() - began_ns > 3 * 10**9
    run = open_run(world.out)
    (finding,) = [f for f in run.findings if f.code == "probe-retried"]
    assert "at try 3" in finding.message
    assert "HTTP 503: loading" in finding.message
    assert run.launches[0].probe["n_tries"] == 3


def test_a_probe_that_keeps_failing_ends_with_its_last_reason(world: World) -> None:
    last = msgspec.structs.replace(BUSY, failure_detail="HTTP 503: the last")
    world.site.probes = [BUSY, BUSY, BUSY]
    world.site.probed = last
    outcome = world.run()
    assert outcome.n_measured == 0
    assert "HTTP 503: the last (4 tries)" in outcome.failures[0]


def test_a_server_that_ends_between_two_probes_is_waited_for_no_longer(
    world: World,
) -> None:
    class Dying(list[ProbeResult]):
        def pop(self, index: SupportsIndex = -1) -> ProbeResult:
            world.site.last_server.code = 9
            return BUSY

    world.site.probes = Dying([BUSY])
    outcome = world.run()
    assert "the server ended" in outcome.failures[0]


def test_a_server_that_does_not_stream_is_measured_and_said_so(world: World) -> None:
    world.site.probed = msgspec.structs.replace(PROBED, streams=False, n_chunks=1)
    outcome = world.run()
    assert outcome.n_measured == 4
    codes = [f.code for f in open_run(world.out).findings]
    assert codes.count("not-streaming") == 2


def test_a_server_without_usage_is_not_measured(world: World) -> None:
    world.site.probed = msgspec.structs.replace(
        PROBED, usage=False, output_tokens=None, failure="no-usage"
    )
    outcome = world.run()
    assert outcome.n_measured == 0
    assert "usage" in outcome.failures[0]


def test_what_outlives_its_server_is_a_finding(world: World) -> None:
    world.site.end = Stopped(
        leftovers=(Left(pid=4242, name="VLLM::EngineCore"),),
        alive=(Left(pid=4243, name="stuck"),),
    )
    world.run()
    found = [f for f in open_run(world.out).findings if f.code == "orphan-process"]
    assert [f.severity for f in found] == ["warning", "error"] * 2
    assert "4242" in found[0].message
    assert "kill -9 4243" in found[1].hint


def test_the_raw_answer_of_the_probe_is_kept(world: World) -> None:
    world.run()
    raw = world.out / "launches" / "baseline-l0" / "probe.raw"
    assert raw.read_bytes() == PROBED.raw
