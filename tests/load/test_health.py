import msgspec
import pytest

from stepscope.load.health import client_health
from stepscope.load.messages import Tally
from stepscope.load.spread import Spread
from stepscope.run.client import ClientHealth

MS = 1_000_000
S = 1_000 * MS


def spread(*values_ns: int) -> bytes:
    result = Spread()
    for value in values_ns:
        result.add(value)
    return result.to_bytes()


def tally(**changes: object) -> Tally:
    """A worker that did well: TPOT 10 ms, 30 % busy, all slots in use."""
    good = Tally(
        loop="uvloop",
        n_ok=10,
        n_failed=0,
        n_reads=1_000,
        n_unstamped=0,
        n_merged=0,
        n_late_merged=0,
        delays=spread(*[50_000] * 1_000),
        late_sends=spread(*[100_000] * 10),
        busy_ns=3 * S,
        cpu_ns=3 * S,
        wall_ns=10 * S,
        held_ns=40 * S,
        blocked_ns=0,
        asked_ns=40 * S,
        chunks_by_second={1: 500, 2: 500},
        n_chunks=1_000,
        output_tokens=1_000,
        tpot_sum_ns=100.0 * MS,
        n_tpot=10,
        clock_step_ns=0,
    )
    return msgspec.structs.replace(good, **changes)


def test_a_client_that_kept_up_is_ok() -> None:
    health = client_health([tally()], 1)
    assert (health.verdict, health.reasons) == ("ok", ())
    assert health.stamps == "kernel"
    assert health.busy_pct == health.cpu_pct_max == 30
    assert health.held_pct == 100
    assert health.delay_ms is not None
    assert health.delay_ms.mean == health.delay_ms.max == 0.05


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"busy_ns": 9 * S}, "busy"),
        ({"cpu_ns": 9 * S}, "core"),
        ({"held_ns": 38 * S}, "slots"),
        ({"n_merged": 20, "n_late_merged": 20}, "several chunks"),
        ({"delays": spread(*[11 * MS] * 1_000)}, "p99 delay"),
        # With our own stamps a delay of 2 % of a step is an error of 2 %.
        ({"n_unstamped": 1_000, "delays": spread(*[200_000] * 1_000)}, "user stamps"),
    ],
)
def test_each_way_of_falling_behind_is_named(
    changes: dict[str, object], word: str
) -> None:
    health = client_health([tally(**changes)], 1)
    assert health.verdict == "limited"
    assert len(health.reasons) == 1
    assert word in health.reasons[0]


@pytest.mark.parametrize(
    "changes",
    [
        # The kernel's stamps do not carry the delay.
        {"delays": spread(*[5 * MS] * 1_000)},
        # Slots that wait for the server to accept them are not the client's fault.
        {"held_ns": 30 * S, "blocked_ns": 10 * S},
        # Merged by the server: they had not waited here.
        {"n_merged": 900},
    ],
)
def test_what_the_server_does_is_not_held_against_the_client(
    changes: dict[str, object],
) -> None:
    assert client_health([tally(**changes)], 1).verdict == "ok"


def test_workers_are_merged_and_the_busiest_one_counts() -> None:
    other = tally(
        busy_ns=5 * S,
        cpu_ns=6 * S,
        n_merged=200,
        chunks_by_second={2: 300, 3: 10},
        output_tokens=3_000,
        delays=spread(*[MS] * 1_000),
        held_ns=39 * S,
    )
    health = client_health([tally(), other], 2)
    assert health.busy_pct == 50
    assert health.cpu_pct_max == 60
    assert health.merged_reads_pct == 10
    assert health.chunks_per_s_peak == 800
    assert health.tokens_per_chunk_mean == 2
    assert health.held_pct == pytest.approx(98.75)
    assert health.delay_ms is not None
    assert health.delay_ms.mean == pytest.approx(0.525)
    assert health.delay_ms.p99 == pytest.approx(1.0, rel=0.011)


def test_with_no_worker_left_nothing_is_known_and_it_is_limited() -> None:
    health = client_health([], 2, ["client worker 0 was killed (SIGKILL)"])
    assert health.verdict == "limited"
    unknown = {"loop", "stamps", "verdict", "reasons", "processes", "nodes"}
    for name in ClientHealth.__struct_fields__:
        if name not in unknown:
            assert getattr(health, name) is None, name


def test_a_spread_knows_mean_and_maximum_exactly_and_quantiles_to_one_percent() -> None:
    values = [1_000 + 37 * i for i in range(10_000)]
    result = Spread()
    for i, value in enumerate(values):
        result.add(value)
        if i % 1_000 == 0:
            result.fold()
    assert result.mean_ns == sum(values) / len(values)
    assert result.max_ns == values[-1]
    for q in (0.01, 0.5, 0.99):
        found = result.quantile_ns(q)
        assert found is not None
        assert found == pytest.approx(values[int(q * len(values))], rel=0.011)


def test_an_empty_spread_has_no_figures() -> None:
    empty = Spread()
    assert (empty.mean_ns, empty.max_ns, empty.quantile_ns(0.99)) == (None, None, None)
