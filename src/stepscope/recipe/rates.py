"""Open loops in a recipe: which rates, how requests come, and how many they are."""

import math
import re
from collections.abc import Mapping
from typing import Any, get_args

from stepscope.recipe.problems import Problems, shown
from stepscope.recipe.records import Dataset, Sweep, Workload
from stepscope.recipe.schema import MOST

_REPEATED = re.compile(r"([0-9]{1,7}(?:\.[0-9]{1,6})?)x([0-9]{1,4})")
_MOST_RATE = 1_000_000.0
#: Arrivals that make one point of their own, and not one a rate.
_ONE_POINT = ("linear", "exponential", "recorded")
#: Keys that a closed loop has no use for.
_OPEN = (
    "arrivals", "burstiness", "duration_s", "max_concurrency", "ramp_start_rps",
    "ramp_end_rps",
)  # fmt: skip
Rates = tuple[tuple[float, int], ...]
_TIMED = ("mooncake", "timed_trace", "burstgpt")
_LENGTHS = ("input_tokens", "output_tokens")


def read_rates(problems: Problems, data: Mapping[str, Any]) -> Rates:
    """Return each rate with its repeats, and note what is wrong with the open loop."""
    workload = data.get("workload")
    if not isinstance(workload, dict):
        return ()
    found: list[tuple[float, int]] = []
    entries = workload.get("request_rate")
    for i, entry in enumerate(entries if isinstance(entries, list) else []):
        pair = _pair(entry)
        path = f"workload.request_rate[{i}]"
        if pair is None:
            do = 'Write 8 or 0.5 for once, "8x3" for three repeats'
            problems.add(path, shown(entry), 'expected R or "RxN"', do)
        elif not 0 < pair[0] <= _MOST_RATE or not 1 <= pair[1] <= 100:
            expected = f"expected up to {MOST} requests a second and 1 to 100 repeats"
            problems.add(path, shown(entry), expected)
        elif pair[0] in {rate for rate, _ in found}:
            problems.add(path, f"{pair[0]:g} again", "expected each once")
        else:
            found.append(pair)
    _check(problems, workload, tuple(found))
    return tuple(found)


def _pair(entry: object) -> tuple[float, int] | None:
    if isinstance(entry, (int, float)) and not isinstance(entry, bool):
        return float(entry), 1
    match = _REPEATED.fullmatch(entry) if isinstance(entry, str) else None
    return None if match is None else (float(match[1]), int(match[2]))


def _check(
    problems: Problems,
    workload: Mapping[str, Any],
    rates: tuple[tuple[float, int], ...],
) -> None:
    arrivals = workload.get("arrivals")
    alone = arrivals in _ONE_POINT
    if (
        not any(key in workload for key in ("concurrency", "request_rate"))
        and not alone
    ):
        do = "concurrency = [1, 8] for a closed loop, request_rate = [2, 4] for an open"
        problems.add("workload.concurrency", "missing", "expected a load", do)
    if alone and "request_rate" in workload:
        found = f"given beside arrivals = {shown(arrivals)}"
        problems.add("workload.request_rate", found, "", "Remove one of them")
    if arrivals in ("linear", "exponential"):
        _check_ramp(problems, workload)
    _check_unused(problems, workload, arrivals, alone=alone)
    if arrivals == "recorded" and workload.get("dataset") not in _TIMED:
        expected = f"expected a dataset that has times: {', '.join(_TIMED)}"
        problems.add("workload.arrivals", '"recorded"', expected)
    if arrivals == "recorded" and "n_prompts" not in workload:
        expected = "expected how many requests of the trace to send"
        problems.add("workload.n_prompts", "missing", expected)
    _check_dataset(problems, workload)
    n_prompts, duration = workload.get("n_prompts"), workload.get("duration_s", 60.0)
    most = max((rate for rate, _ in rates), default=0.0)
    if n_prompts is None and isinstance(duration, (int, float)):
        if most * duration > MOST:
            found = f"{most:g} requests a second for {duration:g} s"
            problems.add("workload.duration_s", found, f"expected at most {MOST}")
        for rate, _ in rates:
            if rate * duration < 1:
                found = f"no request comes in {duration:g} s at {rate:g} a second"
                problems.add("workload.duration_s", found, "", "Make it longer")
    elif "duration_s" in workload:
        problems.add("workload.duration_s", "given beside n_prompts", "one of the two")


def _check_unused(
    problems: Problems, workload: Mapping[str, Any], arrivals: object, *, alone: bool
) -> None:
    """Refuse what no cell would obey: a reader would believe that it was."""
    if "request_rate" not in workload and not alone:
        for key in _OPEN:
            if key in workload:
                found = "only an open loop has it, and no request_rate is given"
                problems.add(f"workload.{key}", found, "", "Remove it, or add a rate")
        return
    if "burstiness" in workload and arrivals in ("constant", "recorded"):
        found = f"given beside arrivals = {shown(arrivals)}"
        problems.add("workload.burstiness", found, "", "Remove one of them")
    for key in ("ramp_start_rps", "ramp_end_rps"):
        if key in workload and arrivals not in ("linear", "exponential"):
            expected = 'expected arrivals = "linear" or "exponential" with it'
            problems.add(f"workload.{key}", "no rate rises", expected)


def _check_ramp(problems: Problems, workload: Mapping[str, Any]) -> None:
    start, end = (workload.get(f"ramp_{x}_rps") for x in ("start", "end"))
    if not isinstance(start, (int, float)) or not isinstance(end, (int, float)):
        expected = "expected ramp_start_rps and ramp_end_rps"
        problems.add("workload.arrivals", "a rate that rises", expected)
    elif start > end or not end or (not start and workload["arrivals"] != "linear"):
        found = f"from {start:g} to {end:g} requests a second"
        problems.add("workload.ramp_end_rps", found, "expected a rate that rises")


def _check_dataset(problems: Problems, workload: Mapping[str, Any]) -> None:
    dataset = workload.get("dataset", "random")
    if dataset == "random":
        for key in _LENGTHS:
            if key not in workload:
                expected = "expected a whole number: random prompts have no other"
                problems.add(f"workload.{key}", "missing", expected)
        if "dataset_path" in workload:
            do = "Remove it, or name the dataset"
            problems.add("workload.dataset_path", "random reads no file", "", do)
        return
    if dataset not in get_args(Dataset):
        return  # said already; what such a set would need is not known
    if "dataset_path" not in workload:
        problems.add("workload.dataset_path", "missing", f"the file for {dataset}")
    for key in ("input_tokens", "input_range", "output_range", "prefix_tokens"):
        if key in workload:
            found = f"dataset {dataset} brings its own prompts"
            problems.add(f"workload.{key}", found, "", "Remove it")


def n_requests(sweep: Sweep, rate: float) -> int:
    """Return how many requests a point of this mean rate sends."""
    return sweep.n_prompts or max(1, math.ceil(rate * sweep.duration_s))


def ramp_rate(sweep: Sweep) -> float:
    """Return the mean rate of one that rises, requests a second.

    Source: the rate is a function of the request's number, as ``vllm bench serve``
        has it, so that the mean gap is the mean of 1/rate over the requests.
    """
    end = sweep.ramp_end_rps or 1.0
    start = max(sweep.ramp_start_rps or 0.0, end / 100)
    if start >= end:
        return end
    if sweep.arrivals == "exponential":
        return math.log(end / start) / (1 / start - 1 / end)
    return (end - start) / math.log(end / start)


def load_words(work: Workload) -> str:
    """Return what keeps a cell's server busy, in a few words."""
    if work.arrival is None and work.request_rate is None:
        return f"concurrency {work.concurrency}"
    if work.ramp_rps is not None:
        low, high = work.ramp_rps
        said = f"{low:g} to {high:g} requests/s, {work.arrival}"
    elif work.arrival == "recorded":
        said = "recorded arrivals"
    else:
        said = f"{work.request_rate:g} requests/s{_kind(work)}"
    if work.max_concurrency is not None:
        said += f", at most {work.max_concurrency} in flight"
    return said


def _kind(work: Workload) -> str:
    if work.arrival == "constant":
        return ", evenly"
    if work.burstiness is None or work.burstiness == 1:
        return ", Poisson"
    return f", burstiness {work.burstiness:g}"


def work_words(work: Workload) -> str:
    """Return what each request is, in a few words."""
    if work.dataset != "random":
        out = "" if work.output_tokens is None else f", {work.output_tokens} tokens out"
        return f"{work.dataset} from {work.dataset_path}{out}"
    return f"{work.input_tokens} tokens in, {work.output_tokens} out"
