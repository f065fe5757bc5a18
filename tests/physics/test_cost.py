"""Money and energy."""

import pytest
from hypothesis import given, strategies as st

from stepscope.errors import RecipeError
from stepscope.physics.cost import (
    Spell,
    joules_per_token,
    prices,
    session_cost,
    usd_per_million,
)
from stepscope.recipe.records import Cost

NODE = Cost(
    usd_per_gpu_hour=0.001972 * 3600, n_gpus=8, usd_per_core_hour=0.047, n_cores=32,
    usd_per_gib_hour=0.008, memory_gib=768,
)  # fmt: skip


def test_the_posts_node_hour_and_prices_come_out() -> None:
    assert round(NODE.usd_per_hour, 2) == 64.44
    # The post divides $64 and $64.44 in turn; its 12.30 lies between.
    low, high = (usd_per_million(usd, 1451.5).usd for usd in (64.0, NODE.usd_per_hour))
    assert (round(low, 2), round(high, 2)) == (12.25, 12.33)
    assert low < 12.30 < high
    assert round(usd_per_million(64.0, 48_159).usd, 2) == 0.37


def test_the_interval_is_the_throughputs_turned_over() -> None:
    price = usd_per_million(36.0, 1000, (900, 1100))
    assert price.usd == pytest.approx(10)
    assert price.ci95 is not None
    low, high = price.ci95
    assert low < price.usd < high
    assert low == pytest.approx(10 / 1.1)
    assert high == pytest.approx(10 / 0.9)


def test_an_interval_that_reaches_zero_gives_none() -> None:
    assert usd_per_million(36.0, 1000, (-5, 1100)).ci95 is None


def test_no_tokens_have_no_price() -> None:
    with pytest.raises(RecipeError, match="throughput"):
        usd_per_million(36.0, 0)
    with pytest.raises(RecipeError, match="throughput"):
        joules_per_token(700, 1, 0)


def test_failed_boots_are_paid_and_called_waste() -> None:
    spells = (
        Spell(kind="failed-boot", seconds=1800),
        Spell(kind="boot", seconds=900),
        Spell(kind="measured", seconds=900),
    )
    bill = session_cost(Cost(usd_per_gpu_hour=10, n_gpus=1), spells)
    assert bill.usd == pytest.approx(10)
    assert bill.usd_by_kind["failed-boot"] == pytest.approx(5)
    assert bill.wasted_pct == pytest.approx(75)


@given(seconds=st.lists(st.floats(0, 1e5), max_size=5))
def test_kinds_and_components_both_sum_to_the_bill(seconds: list[float]) -> None:
    spells = tuple(Spell(kind=f"k{i}", seconds=s) for i, s in enumerate(seconds))
    bill = session_cost(NODE, spells)
    assert sum(bill.usd_by_kind.values()) == pytest.approx(bill.usd)
    assert sum(bill.usd_by_component.values()) == pytest.approx(bill.usd)


def test_a_session_without_time_wastes_nothing_that_could_be_told() -> None:
    assert session_cost(NODE, ()).wasted_pct is None


def test_energy_is_power_over_rate() -> None:
    assert joules_per_token(578, 8, 33_680) == pytest.approx(0.1373, abs=1e-4)


def test_prices_have_sources_and_known_devices() -> None:
    table = prices()
    assert table
    assert all(p.usd_per_gpu_hour > 0 and p.source for p in table)
    assert {p.gpu for p in prices("NVIDIA B300")} == {"B300"}
    assert prices("nothing") == ()


def test_a_users_own_table_replaces_the_shipped_one() -> None:
    mine = """
    [provider.ours]
    source = "contract"
    date = "2026-01"
    usd_per_gpu_hour = { H200 = 2.0 }
    """
    (only,) = prices(text=mine)
    assert (only.provider, only.gpu, only.usd_per_gpu_hour) == ("ours", "H200", 2.0)


@pytest.mark.parametrize("text", ["[", "[provider.x]\nsource='a'", "provider = 3"])
def test_a_table_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(RecipeError, match="price table"):
        prices(text=text)
