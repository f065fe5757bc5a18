"""TOML text to a Recipe. Every problem is reported at once, with its key path."""

import difflib
import re
import tomllib
from typing import Any

from stepscope.errors import RecipeError
from stepscope.recipe.records import (
    Configuration,
    Cost,
    Probe,
    Recipe,
    Sweep,
    Telemetry,
    WarmUp,
)
from stepscope.recipe.schema import PATCH, TABLES, TOP, Key

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_SECRET = re.compile(r"key|token|secret|password|credential", re.IGNORECASE)
_REPEATED = re.compile(r"(\d+)x(\d+)")
_MOST_CONCURRENCY = 1 << 20


class _Problems:
    """Problems as they are found; raised together."""

    def __init__(self, where: str) -> None:
        self.where = where
        self.found: list[RecipeError] = []

    def add(self, path: str, found: str, expected: str = "", do: str = "") -> None:
        self.found.append(RecipeError(f"{self.where}: {path}", found, expected, do))

    def raise_if_any(self) -> None:
        if self.found:
            first, *rest = self.found
            raise RecipeError(
                first.where, first.found, first.expected, first.do, also=tuple(rest)
            )


def load_recipe(text: str, where: str) -> Recipe:
    """Read a recipe.

    Args:
        text: TOML.
        where: What to call it in messages, usually its path.

    Raises:
        RecipeError: With every problem: the first itself, the others in ``also``.
    """
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise RecipeError(where, str(error), "expected TOML") from error
    problems = _Problems(where)
    _table(problems, "", data, TOP)
    for name, keys in TABLES.items():
        if isinstance(data.get(name), dict):
            _table(problems, f"{name}.", data[name], keys)
    sweep = _concurrency(problems, data)
    configurations = _configurations(problems, data)
    _needs(problems, data)
    problems.raise_if_any()
    return _recipe(data, sweep, configurations)


def _table(
    problems: _Problems, prefix: str, data: dict[str, Any], keys: dict[str, Key]
) -> None:
    for name, value in data.items():
        if name not in keys:
            close = difflib.get_close_matches(name, keys, n=1)
            hint = f'Did you mean "{close[0]}"?' if close else ""
            problems.add(
                f"{prefix}{name}", "unknown key", "known: " + ", ".join(keys), hint
            )
        elif (expected := keys[name].check(value)) is not None:
            problems.add(f"{prefix}{name}", _shown(value), f"expected {expected}")
    for name, key in keys.items():
        if key.required and name not in data:
            problems.add(f"{prefix}{name}", "missing", "it is required")


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _concurrency(
    problems: _Problems, data: dict[str, Any]
) -> tuple[tuple[int, int], ...]:
    workload = data.get("workload")
    entries = workload.get("concurrency") if isinstance(workload, dict) else None
    if not isinstance(entries, list):
        return ()
    found: list[tuple[int, int]] = []
    for i, entry in enumerate(entries):
        path = f"workload.concurrency[{i}]"
        match = _REPEATED.fullmatch(entry) if isinstance(entry, str) else None
        if isinstance(entry, int) and not isinstance(entry, bool):
            pair = (entry, 1)
        elif match:
            pair = (int(match[1]), int(match[2]))
        else:
            problems.add(path, _shown(entry), 'expected 64 or "64x3" (64, three times)')
            continue
        if not 1 <= pair[0] <= _MOST_CONCURRENCY or not 1 <= pair[1] <= 1000:
            problems.add(
                path, _shown(entry), "expected at least 1 and 1 to 1000 repeats"
            )
        elif pair[0] in {c for c, _ in found}:
            problems.add(path, f"{pair[0]} again", f'write it once, as "{pair[0]}x2"')
        else:
            found.append(pair)
    return tuple(found)


def _configurations(
    problems: _Problems, data: dict[str, Any]
) -> tuple[Configuration, ...]:
    base = data.get("baseline")
    base = base if isinstance(base, dict) else {}
    baseline = _configuration(problems, "baseline", "baseline", base)
    found = [baseline]
    patches = data.get("patch")
    for i, patch in enumerate(patches if isinstance(patches, list) else []):
        path = f"patch[{i}]"
        if not isinstance(patch, dict):
            problems.add(path, _shown(patch), "expected a table: [[patch]]")
            continue
        _table(problems, f"{path}.", patch, PATCH)
        name = patch.get("name")
        if not isinstance(name, str):
            continue
        if not _NAME.fullmatch(name):
            problems.add(f"{path}.name", _shown(name), "letters, digits, . _ - only")
        if name in {c.name for c in found}:
            problems.add(f"{path}.name", f'"{name}" again', "each needs its own name")
        change = _configuration(problems, path, name, patch)
        if not (change.flags or change.environment or change.cpus):
            problems.add(path, "it changes nothing", "flags, environment or cpus")
        found.append(_merged(baseline, change))
    return tuple(found)


def _configuration(
    problems: _Problems, path: str, name: str, data: dict[str, Any]
) -> Configuration:
    flags = data.get("flags")
    environment = data.get("environment")
    cpus = data.get("cpus")
    good_flags: dict[str, str | int | float | bool | None] = {}
    for key, value in (flags if isinstance(flags, dict) else {}).items():
        if isinstance(value, str | int | float | bool):
            good_flags[key.removeprefix("--").replace("_", "-")] = value
        else:
            do = "Write a table or list as a JSON string"
            problems.add(f"{path}.flags.{key}", _shown(value), "text or a number", do)
    good_environment: dict[str, str] = {}
    for key, value in (environment if isinstance(environment, dict) else {}).items():
        if not isinstance(value, str | int | float) or isinstance(value, bool):
            problems.add(f"{path}.environment.{key}", _shown(value), "expected text")
        elif _SECRET.search(key):
            do = "Set it in stepscope's own environment: the server inherits it"
            problems.add(f"{path}.environment.{key}", "looks like a secret", "", do)
        else:
            good_environment[key] = str(value)
    return Configuration(
        name=name,
        flags=good_flags,
        environment=good_environment,
        cpus=cpus if isinstance(cpus, str) else None,
    )


def _merged(baseline: Configuration, change: Configuration) -> Configuration:
    return Configuration(
        name=change.name,
        flags={**baseline.flags, **change.flags},
        environment={**baseline.environment, **change.environment},
        cpus=change.cpus or baseline.cpus,
    )


def _needs(problems: _Problems, data: dict[str, Any]) -> None:
    engine = data.get("engine")
    name = data.get("name")
    if isinstance(name, str) and name.strip() and not _NAME.fullmatch(name):
        problems.add("name", _shown(name), "letters, digits, . _ - only")
    if engine == "url":
        if "server" not in data:
            problems.add("server", "missing", "engine url needs [server] base_url")
        problems_with = ("baseline", "patch", "port", "executable")
        for key in problems_with:
            if key in data:
                found = "engine url boots nothing, so this has no effect"
                problems.add(key, found, "", "Remove it")
    elif "server" in data and engine is not None:
        problems.add("server", f"engine {engine} boots its own server", "only for url")
    if engine in ("vllm", "sglang", "llamacpp", "url") and "model" not in data:
        problems.add("model", "missing", f"engine {engine} needs it")
    workload = data.get("workload")
    if isinstance(workload, dict) and {"waves", "n_prompts"} <= set(workload):
        problems.add("workload.n_prompts", "waves is given too", "one of the two")


def _recipe(
    data: dict[str, Any],
    concurrency: tuple[tuple[int, int], ...],
    configurations: tuple[Configuration, ...],
) -> Recipe:
    workload = dict(data["workload"])
    timeouts: dict[str, Any] = {
        key: float(workload.pop(key))
        for key in ("request_timeout_s", "stall_timeout_s")
        if key in workload
    }
    workload.pop("concurrency")
    server = data.get("server")
    plain = (
        "name", "engine", "served_model_name", "host", "port", "api_key_env",
        "model_config", "gpu",
    )  # fmt: skip
    given = {key: data[key] for key in plain if key in data}
    if "executable" in data:
        given["executable"] = tuple(data["executable"])
    if "capture" in data:
        given["capture"] = tuple(data["capture"])
    if "readiness_timeout_s" in data:
        given["readiness_timeout_s"] = float(data["readiness_timeout_s"])
    return Recipe(
        model=data.get("model"),
        configurations=configurations,
        sweep=Sweep(concurrency=concurrency, **workload),
        warm_up=WarmUp(**data.get("warm_up", {})),
        telemetry=Telemetry(
            **{k: float(v) for k, v in data.get("telemetry", {}).items()}
        ),
        cost=Cost(**data["cost"]) if "cost" in data else None,
        server=_probe(server) if server else None,
        **given,
        **timeouts,
    )


def _probe(data: dict[str, Any]) -> Probe:
    return Probe(
        base_url=data["base_url"].rstrip("/"),
        log_file=data.get("log_file"),
        pids=tuple(data.get("pids", ())),
        metrics_url=data.get("metrics_url"),
    )
