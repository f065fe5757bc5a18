"""Collectives between processors: two real ranks under torch 2.x and gloo.

Rank 1 slept 10 ms before each all-reduce, rank 0 5 ms; before the first both started.
"""

from pathlib import Path

import numpy as np

from stepscope.timeline.hostsync import match_host
from stepscope.timeline.load import load_traces
from stepscope.timeline.steps import find_steps

DATA = Path(__file__).parents[1] / "data" / "timelines"


def test_real_gloo_ranks_wait_for_the_one_that_slept_longer() -> None:
    ranks = load_traces([DATA / f"gloo_rank{i}.json.gz" for i in (0, 1)])
    (match,) = match_host(ranks, find_steps(ranks[0]), np.zeros(2, dtype=np.int64))
    assert (match.name, match.on_host) == ("gloo:all_reduce", True)
    waited = match.wait_ns[1:] / 1e6
    assert ((waited[:, 0] > 5) & (waited[:, 0] < 5.4)).all()
    assert (waited[:, 1] == 0).all()


def test_ranks_whose_clocks_differ_wait_as_long() -> None:
    ranks = load_traces([DATA / f"gloo_rank{i}.json.gz" for i in (0, 1)])
    ahead = np.array([0, 3_000_000], dtype=np.int64)
    (match,) = match_host(ranks, find_steps(ranks[0]), ahead)
    (plain,) = match_host(ranks, find_steps(ranks[0]), np.zeros(2, dtype=np.int64))
    assert np.array_equal(match.start_ns + ahead, plain.start_ns)


def test_collectives_that_end_before_the_last_arrival_are_not_the_same() -> None:
    ranks = load_traces([DATA / f"gloo_rank{i}.json.gz" for i in (0, 1)])
    apart = np.array([0, 90_000_000], dtype=np.int64)
    assert match_host(ranks, find_steps(ranks[0]), apart) == ()
