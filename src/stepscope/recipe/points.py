"""The workload points of a sweep: each concurrency, each rate, a ramp or a replay."""

from dataclasses import dataclass

from stepscope.recipe.rates import n_requests, ramp_rate
from stepscope.recipe.records import Recipe, Sweep, Workload

#: Seeds of open loops lie above those of closed ones, whose cells differ by less.
_OPEN_SEEDS = 1_000_000_000_000
#: In flight while it warms up, where nobody says.
_WARM_CONCURRENCY = 16
#: Lengths while it warms up, where the dataset brings its own: its prompts must not be
#: in a prefix cache before they are measured.
_WARM_IN, _WARM_OUT = 256, 64


@dataclass(frozen=True, slots=True)
class Point:
    """A point.

    Attributes:
        label: How its cells are called.
        n_repeats: How often it is measured on one launch.
        seed: Keeps its prompts apart from those of other points.
        workload: What is asked, without a seed.
    """

    label: str
    n_repeats: int
    seed: int
    workload: Workload


def points_of(sweep: Sweep) -> tuple[Point, ...]:
    """Return all points: closed loops from low to high as written, then open ones."""
    closed = [Point(f"c{c}", n, c, closed_loop(sweep, c)) for c, n in sweep.concurrency]
    return (*closed, *_rates(sweep), *_alone(sweep))


def closed_loop(sweep: Sweep, concurrency: int) -> Workload:
    """Return a closed loop of whole waves."""
    n = sweep.n_prompts or sweep.waves * concurrency
    return _workload(sweep, concurrency=concurrency, n_prompts=n)


def warm_up_of(recipe: Recipe) -> Workload:
    """Return one wave of warm-up."""
    sweep = recipe.sweep
    concurrency = recipe.warm_up.concurrency or max(
        (c for c, _ in sweep.concurrency),
        default=sweep.max_concurrency or _WARM_CONCURRENCY,
    )
    if sweep.dataset == "random":
        return _workload(sweep, concurrency=concurrency, n_prompts=concurrency)
    return Workload(
        concurrency=concurrency,
        n_prompts=concurrency,
        input_tokens=_WARM_IN,
        output_tokens=_WARM_OUT,
        endpoint=sweep.endpoint,
        ignore_eos=sweep.ignore_eos,
        temperature=sweep.temperature,
    )


def _rates(sweep: Sweep) -> list[Point]:
    return [
        Point(
            label=f"q{rate:g}",
            n_repeats=n,
            seed=_OPEN_SEEDS + round(1000 * rate),
            workload=_workload(
                sweep,
                n_prompts=n_requests(sweep, rate),
                request_rate=rate,
                arrival=sweep.arrivals,
                burstiness=None if sweep.arrivals == "constant" else sweep.burstiness,
                max_concurrency=sweep.max_concurrency,
            ),
        )
        for rate, n in sweep.request_rate
    ]


def _alone(sweep: Sweep) -> list[Point]:
    """Return the point of arrivals that have no single rate."""
    if sweep.arrivals == "recorded":
        label, ramp, n = "replay", None, sweep.n_prompts or 1
    elif sweep.arrivals in ("linear", "exponential"):
        label, n = "ramp", n_requests(sweep, ramp_rate(sweep))
        ramp = (sweep.ramp_start_rps or 0.0, sweep.ramp_end_rps or 0.0)
    else:
        return []
    work = _workload(
        sweep,
        n_prompts=n,
        arrival=sweep.arrivals,
        burstiness=None if ramp is None else sweep.burstiness,
        max_concurrency=sweep.max_concurrency,
        ramp_rps=ramp,
    )
    return [Point(label, 1, _OPEN_SEEDS, work)]


def _workload(sweep: Sweep, **own: object) -> Workload:
    shared: dict[str, object] = {
        "concurrency": None,
        "input_tokens": sweep.input_tokens,
        "output_tokens": sweep.output_tokens,
        "dataset": sweep.dataset,
        "endpoint": sweep.endpoint,
        "ignore_eos": sweep.ignore_eos,
        "temperature": sweep.temperature,
        "input_range": sweep.input_range,
        "output_range": sweep.output_range,
        "prefix_tokens": sweep.prefix_tokens,
        "dataset_path": sweep.dataset_path,
    }
    return Workload(**(shared | own))  # type: ignore[arg-type]  # by name
