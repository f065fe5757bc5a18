"""From a workload of a plan to what the client is to do."""

from typing import cast

from stepscope.load.arrivals import Arrivals
from stepscope.load.spec import Source
from stepscope.recipe.records import Dataset, Workload


def arrivals_of(work: Workload) -> Arrivals | None:
    """Return when a workload's requests are due; None: a closed loop."""
    if work.arrival is None:
        return None
    start, end = work.ramp_rps or (None, None)
    return Arrivals(
        kind=work.arrival,
        rate=work.request_rate,
        burstiness=1.0 if work.burstiness is None else work.burstiness,
        start_rps=start,
        end_rps=end,
    )


def concurrency_of(work: Workload) -> int | None:
    """Return the requests in flight: kept there, or in an open loop the most."""
    if work.arrival is not None:
        return work.max_concurrency
    return work.concurrency or work.n_prompts


def source_of(work: Workload) -> Source:
    """Return where a workload's prompts come from.

    A ``timed_trace`` counts seconds and blocks of 16 tokens, Mooncake's milliseconds
    and blocks of 512.
    """
    plain = work.dataset == "timed_trace"
    return Source(
        name=cast("Dataset", work.dataset),
        path=work.dataset_path,
        input_range=work.input_range,
        output_range=work.output_range,
        prefix_tokens=work.prefix_tokens,
        block_tokens=16 if plain else 512,
        time_unit_s=1.0 if plain else 0.001,
    )
