"""Money and energy: per hour, per token, per session."""

import tomllib
from functools import cache
from importlib.resources import files
from typing import Any

import msgspec

from stepscope.errors import RecipeError
from stepscope.physics.hardware import find_gpu
from stepscope.recipe.records import Cost

SECONDS_PER_HOUR = 3600.0
MILLION = 1e6


class Price(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What one provider asks, USD; None where it does not sell the part alone."""

    provider: str
    gpu: str
    usd_per_gpu_hour: float
    usd_per_core_hour: float | None
    usd_per_gib_hour: float | None
    source: str


@cache
def _table(text: str | None = None) -> dict[str, Any]:
    if text is None:
        text = (
            files("stepscope.physics").joinpath("data/prices.toml").read_text("utf-8")
        )
    return tomllib.loads(text)


def prices(gpu: str | None = None, *, text: str | None = None) -> tuple[Price, ...]:
    """Return all known prices, of one GPU or of all.

    Args:
        gpu: Name, as tolerant as ``find_gpu``.
        text: TOML of the same form that replaces the shipped table.

    Raises:
        RecipeError: ``text`` is no such TOML.
    """
    try:
        providers = _table(text).get("provider", {})
        found = [
            Price(
                provider=name,
                gpu=device,
                usd_per_gpu_hour=float(usd),
                usd_per_core_hour=entry.get("usd_per_core_hour"),
                usd_per_gib_hour=entry.get("usd_per_gib_hour"),
                source=f"{entry['source']}, {entry['date']}",
            )
            for name, entry in providers.items()
            for device, usd in entry["usd_per_gpu_hour"].items()
        ]
    except (tomllib.TOMLDecodeError, KeyError, TypeError, AttributeError) as error:
        raise RecipeError(
            "price table", f"not readable ({error})", "the form of data/prices.toml"
        ) from error
    wanted = find_gpu(gpu) if gpu else None
    if gpu is None:
        return tuple(found)
    name = wanted.name if wanted else gpu
    return tuple(p for p in found if p.gpu == name)


class TokenPrice(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """USD a million tokens; ``ci95`` is None where the throughput has no interval."""

    usd: float
    ci95: tuple[float, float] | None


def usd_per_million(
    usd_per_hour: float,
    tokens_per_s: float,
    tokens_per_s_ci95: tuple[float, float] | None = None,
) -> TokenPrice:
    """Return the price of a million tokens at a steady throughput.

    Formula: USD/h / 3600 / (tokens/s) x 1e6. The interval is the throughput's, turned
        over; the price per hour is taken as exact.
    Assumes: the node serves at that rate all the time it is paid for. Output and
        input are priced each on its own rate: both prices charge the whole node.

    Raises:
        RecipeError: The throughput is not positive.
    """
    if tokens_per_s <= 0:
        raise RecipeError("throughput", f"{tokens_per_s} tokens/s", "more than 0")

    def price(rate: float) -> float:
        return usd_per_hour / SECONDS_PER_HOUR / rate * MILLION

    interval = None
    if tokens_per_s_ci95 is not None and tokens_per_s_ci95[0] > 0:
        interval = (price(tokens_per_s_ci95[1]), price(tokens_per_s_ci95[0]))
    return TokenPrice(usd=price(tokens_per_s), ci95=interval)


class Spell(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A stretch of paid time: ``boot``, ``failed-boot``, ``measured`` or ``idle``."""

    kind: str
    seconds: float


class SessionCost(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True
):
    """A session's bill.

    Attributes:
        usd: All of it.
        usd_by_kind: By what the time was spent on; sums to ``usd``.
        usd_by_component: ``gpu``, ``core`` and ``memory``; sums to ``usd``.
        wasted_pct: Part that was not measured.
    """

    usd: float
    usd_by_kind: dict[str, float]
    usd_by_component: dict[str, float]
    wasted_pct: float | None


def session_cost(price: Cost, spells: tuple[Spell, ...]) -> SessionCost:
    """Return the bill of a session: every second is paid, failed boots too."""
    hours = sum(s.seconds for s in spells) / SECONDS_PER_HOUR
    by_kind: dict[str, float] = {}
    for spell in spells:
        usd = spell.seconds / SECONDS_PER_HOUR * price.usd_per_hour
        by_kind[spell.kind] = by_kind.get(spell.kind, 0.0) + usd
    total = sum(by_kind.values())
    return SessionCost(
        usd=total,
        usd_by_kind=by_kind,
        usd_by_component={
            "gpu": hours * price.usd_per_gpu_hour * price.n_gpus,
            "core": hours * price.usd_per_core_hour * price.n_cores,
            "memory": hours * price.usd_per_gib_hour * price.memory_gib,
        },
        wasted_pct=(
            100 * (1 - by_kind.get("measured", 0.0) / total) if total > 0 else None
        ),
    )


def joules_per_token(power_w: float, n_gpus: int, tokens_per_s: float) -> float:
    """Return the energy of one token, joules.

    Assumes: ``power_w`` is one GPU's mean over the same window as the throughput.
    Leaves out: host, network, cooling and conversion losses.
    """
    if tokens_per_s <= 0:
        raise RecipeError("throughput", f"{tokens_per_s} tokens/s", "more than 0")
    return power_w * n_gpus / tokens_per_s
