import pytest
from tests.load.scripted import Exchange, Script, ScriptedServer, answer
from tests.load.specs import spec_for

from stepscope.clock import ManualClock
from stepscope.load.patience import patient_probe
from stepscope.load.probe import ProbeResult

DATE = "Fri, 15 Jan 2027 08:00:30 GMT"  # half a minute after the manual clock's wall


def status(code: int, *fields: str) -> Script:
    head = "\r\n".join((f"HTTP/1.1 {code} X", "content-length: 2", *fields))
    return lambda e: e.write(f"{head}\r\n\r\n{{}}".encode())


def reset(exchange: Exchange) -> None:
    exchange.reset()


def hang_up(exchange: Exchange) -> None:
    exchange.hang_up()


def probed(*scripts: Script) -> tuple[ProbeResult, float]:
    """Return what a server shows that answers well after ``scripts``, and the wait."""

    def script(exchange: Exchange) -> None:
        if exchange.number < len(scripts):
            scripts[exchange.number](exchange)
        else:
            exchange.write(answer())

    clock = ManualClock()
    with ScriptedServer(script) as server:
        found = patient_probe(spec_for(server.url), clock)
    return found, clock.now_ns() / 1e9


@pytest.mark.parametrize(
    ("script", "wait_s"),
    [
        (status(500), 1),
        (status(503), 1),
        (status(503, "retry-after: 0"), 1),
        (status(429, "retry-after: 7"), 7),
        (status(429, f"retry-after: {DATE}"), 30),
        (status(429, "retry-after: soon"), 1),
        (reset, 1),
        (hang_up, 1),
    ],
)
def test_what_may_pass_is_asked_again_when_the_server_says(
    script: Script, wait_s: float
) -> None:
    found, waited_s = probed(script)
    assert found.failure is None
    assert found.n_tries == 2
    assert found.failed_before
    assert waited_s == wait_s


def test_four_tries_in_seven_seconds_are_all_and_the_last_reason_counts() -> None:
    found, waited_s = probed(status(500), reset, status(503), status(502))
    assert (found.failure, found.http_status, found.n_tries) == ("http-status", 502, 4)
    assert waited_s == 7


@pytest.mark.parametrize(
    "script",
    [status(400), status(404), status(501), status(429, "retry-after: 3600")],
    ids=["400", "404", "501", "an hour"],
)
def test_what_will_not_pass_is_believed_at_once(script: Script) -> None:
    found, waited_s = probed(script)
    assert found.failure is not None
    assert (found.n_tries, waited_s) == (1, 0)
