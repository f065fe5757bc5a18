"""``capture`` of a recipe: iteration lines in the log, and kernel timelines."""

from collections.abc import Mapping, Sequence
from typing import Any

from stepscope.recipe.problems import Problems, shown
from stepscope.recipe.records import Configuration, Tracing

#: Engines whose own profiler can be switched.
_TRACES = ("vllm", "sglang")


def check_capture(
    problems: Problems,
    data: Mapping[str, Any],
    concurrency: Sequence[tuple[int, int]],
    configurations: Sequence[Configuration],
) -> None:
    """Note what ``capture`` asks that the rest of the recipe can not give."""
    engine, asked = data.get("engine"), data.get("capture")
    words, table = _words(asked), asked if isinstance(asked, dict) else {}
    if "iteration-details" in words and engine != "vllm":
        problems.add("capture", "iteration-details", "only vllm can log them")
    if "trace" in words and engine not in _TRACES and table.get("tool") != "nsys":
        expected = f"only {' and '.join(_TRACES)} can be told to take one"
        do = 'Set tool = "nsys" in [capture]: it records any server'
        problems.add("capture", "trace", expected, do)
    measured = [c for c, _ in concurrency]
    workload = data.get("workload")
    if (
        "trace" in words
        and isinstance(workload, dict)
        and not workload.get("concurrency")
    ):
        do = "Take timelines of a recipe with workload.concurrency"
        problems.add("capture", "trace", "expected a closed loop", do)
    for number in _list(table.get("concurrency")):
        if measured and number not in measured:
            expected = f"one of workload.concurrency: {measured}"
            do = "A trace is read beside the measured cell of its concurrency"
            problems.add("capture.concurrency", shown(number), expected, do)
    names = [c.name for c in configurations]
    for name in _list(table.get("configurations")):
        if isinstance(name, str) and name not in names:
            expected = "expected one of " + ", ".join(names)
            problems.add("capture.configurations", shown(name), expected)
    if "steps" in table and "seconds" in table:
        problems.add("capture.seconds", "given beside steps", "one of the two")


def read_capture(
    data: Mapping[str, Any], concurrency: Sequence[tuple[int, int]]
) -> tuple[tuple[str, ...], Tracing | None]:
    """Return the words of ``capture``, and the timelines that it asks for.

    Without a list of its own a trace is taken at the lowest and at the highest
    concurrency that is measured.
    """
    asked = data.get("capture", ())
    words = _words(asked)
    if "trace" not in words:
        return words, None
    table = dict(asked) if isinstance(asked, dict) else {}
    table.pop("iteration_details", None)
    points = table.pop("concurrency", None)
    if points is None:
        measured = sorted(c for c, _ in concurrency)
        points = dict.fromkeys((measured[0], measured[-1]))
    for name in ("seconds", "stop_timeout_s"):
        if name in table:
            table[name] = float(table[name])
    table["configurations"] = tuple(table.get("configurations", ()))
    return words, Tracing(concurrency=tuple(dict.fromkeys(points)), **table)


def _words(asked: object) -> tuple[str, ...]:
    """Return what is asked for; a table is about traces unless it says nothing else."""
    if isinstance(asked, dict):
        details = ("iteration-details",) if asked.get("iteration_details") else ()
        only_details = set(asked) == {"iteration_details"}
        return details if only_details else (*details, "trace")
    return tuple(asked) if isinstance(asked, list | tuple) else ()


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else []
