"""TOML text to a Recipe. Every problem is reported at once, with its key path."""

import re
import tomllib
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from stepscope.errors import RecipeError
from stepscope.recipe.capture import check_capture, read_capture
from stepscope.recipe.configurations import NAME, read_configurations
from stepscope.recipe.problems import Problems, holds_secret, shown
from stepscope.recipe.rates import read_rates
from stepscope.recipe.records import (
    Boot,
    Configuration,
    Cost,
    Explain,
    Probe,
    Recipe,
    Sweep,
    Telemetry,
    WarmUp,
)
from stepscope.recipe.schema import MOST, TABLES, TOP
from stepscope.recipe.window import check_context

_REPEATED = re.compile(r"([0-9]{1,7})x([0-9]{1,4})")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
#: Keys that mean something only where stepscope boots the server.
_BOOTS = (
    "executable", "host", "port", "n_launches", "readiness_timeout_s", "baseline",
    "patch", "capture", "boot",
    "explain",
)  # fmt: skip
#: Endpoints that are one engine's own.
_OWN = {"/completion": ("llamacpp", "embedded"), "/generate": ("sglang",)}
_ENGINES = ("vllm", "sglang", "llamacpp", "embedded")


def load_recipe(text: str, where: str) -> Recipe:
    """Read a recipe.

    Args:
        text: TOML.
        where: What to call it in messages, usually its path.

    Raises:
        RecipeError: With every problem: the first itself, the others in ``also``.
    """
    data = _toml(text, where)
    problems = Problems(where)
    problems.table("", data, TOP)
    for name, keys in TABLES.items():
        table = data.get(name)
        if isinstance(table, dict):
            problems.table(f"{name}.", table, keys)
    concurrency = _concurrency(problems, data)
    configurations = read_configurations(problems, data)
    rates = read_rates(problems, data)
    _needs(problems, data)
    _workload_fits(problems, data, concurrency)
    _warm_up_fits(problems, data)
    check_context(problems, data, configurations)
    check_capture(problems, data, concurrency, configurations)
    problems.raise_if_any()
    return _recipe(data, concurrency, rates, configurations)


def _toml(text: str, where: str) -> dict[str, Any]:
    do = "Correct the TOML there"
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise RecipeError(where, str(error), "expected TOML", do) from error
    except (ValueError, RecursionError) as error:
        # Numbers of thousands of digits and brackets nested as deep.
        found = "numbers too long or brackets too deep to read"
        raise RecipeError(where, found, "expected TOML", do) from error


def _concurrency(
    problems: Problems, data: Mapping[str, Any]
) -> tuple[tuple[int, int], ...]:
    workload = data.get("workload")
    entries = workload.get("concurrency") if isinstance(workload, dict) else None
    found: list[tuple[int, int]] = []
    for i, entry in enumerate(entries if isinstance(entries, list) else []):
        path = f"workload.concurrency[{i}]"
        match = _REPEATED.fullmatch(entry) if isinstance(entry, str) else None
        if isinstance(entry, int) and not isinstance(entry, bool):
            pair = (entry, 1)
        elif match:
            pair = (int(match[1]), int(match[2]))
        else:
            do = 'Write 64 for once, "64x3" for three repeats'
            problems.add(path, shown(entry), 'expected N or "NxR"', do)
            continue
        if not 1 <= pair[0] <= MOST or not 1 <= pair[1] <= 100:
            expected = f"expected 1 to {MOST} in flight and 1 to 100 repeats"
            problems.add(path, shown(entry), expected)
        elif pair[0] in {c for c, _ in found}:
            do = f'Write it once, as "{pair[0]}x2"'
            problems.add(path, f"{pair[0]} again", "expected each once", do)
        else:
            found.append(pair)
    return tuple(found)


def _needs(problems: Problems, data: Mapping[str, Any]) -> None:
    """Check what one key asks of another."""
    engine, name = data.get("engine"), data.get("name")
    if isinstance(name, str) and name.strip() and not NAME.fullmatch(name):
        expected = "expected up to 64 letters, digits, dots, dashes, underscores"
        problems.add("name", shown(name), expected)
    if engine == "url":
        if "server" not in data:
            do = "Add [server] with base_url"
            problems.add("server", "missing", "engine url needs its address", do)
        for key in _BOOTS:
            if key in data:
                problems.add(key, "engine url boots nothing", "", "Remove the key")
    elif "server" in data and isinstance(engine, str):
        do = 'Remove it, or write engine = "url"'
        problems.add("server", "this engine is booted here", "only for url", do)
    if engine in ("vllm", "sglang", "llamacpp", "url") and "model" not in data:
        expected = f"engine {engine} needs the model's name or path"
        problems.add("model", "missing", expected)
    if engine == "embedded" and "executable" in data:
        problems.add(
            "executable", "the embedded engine brings its own", "", "Remove it"
        )
    _endpoint(problems, data)
    explain = data.get("explain")
    if isinstance(explain, dict) and "usd" in explain and "cost" not in data:
        problems.add("explain.usd", "no [cost]", "expected prices to keep it in")
    _secrets(problems, data)


def _endpoint(problems: Problems, data: Mapping[str, Any]) -> None:
    """Refuse an endpoint that this engine is known not to have."""
    server, workload = data.get("server"), data.get("workload")
    engine = data.get("engine")
    if engine == "url":
        engine = server.get("engine") if isinstance(server, dict) else None
    endpoint = workload.get("endpoint") if isinstance(workload, dict) else None
    of = _OWN.get(endpoint) if isinstance(endpoint, str) else None
    if of is not None and engine in _ENGINES and engine not in of:
        found = f"{shown(endpoint)}; {engine} does not have it"
        problems.add("workload.endpoint", found, f"only {' and '.join(of)} do")
    url = server.get("base_url") if isinstance(server, dict) else None
    if isinstance(url, str) and url.rstrip("/").endswith("/v1"):
        do = "Remove /v1: the endpoint begins with it"
        problems.add("server.base_url", "it ends in /v1", "expected a base", do)


def _secrets(problems: Problems, data: Mapping[str, Any]) -> None:
    key = data.get("api_key_env")
    if isinstance(key, str) and key.strip() and not _VARIABLE.fullmatch(key):
        expected = "expected the name of an environment variable, not its value"
        problems.add("api_key_env", "no variable name", expected)
    server = data.get("server")
    for name in ("base_url", "metrics_url"):
        url = server.get(name) if isinstance(server, dict) else None
        if isinstance(url, str) and TABLES["server"][name].check(url) is None:
            parts = urlsplit(url)
            if parts.username is not None or parts.password is not None:
                do = "Use api_key_env"
                problems.add(f"server.{name}", "it holds a user or password", "", do)
            if name == "base_url" and (parts.query or parts.fragment):
                problems.add("server.base_url", "it has a query", "expected a base")
    for path in ("model", "served_model_name", "host", "gpu", "model_config"):
        if holds_secret(data.get(path)):
            problems.add(path, "it holds a secret", "expected none in a recipe")
    words = data.get("executable")
    if any(holds_secret(w) for w in (words if isinstance(words, list) else [words])):
        problems.add("executable", "it holds a secret", "expected none in a recipe")


def _workload_fits(
    problems: Problems,
    data: Mapping[str, Any],
    concurrency: tuple[tuple[int, int], ...],
) -> None:
    workload = data.get("workload")
    if not isinstance(workload, dict):
        return
    if "n_prompts" in workload and "waves" in workload:
        do = "Keep waves for whole waves, n_prompts for a fixed number"
        problems.add("workload.n_prompts", "given beside waves", "one of the two", do)
    most = max((c for c, _ in concurrency), default=1)
    n_prompts = workload.get("n_prompts")
    if isinstance(n_prompts, int) and 1 <= n_prompts < most:
        found = f"{n_prompts} prompts can not keep {most} in flight"
        do = "Use waves = 2"
        problems.add("workload.n_prompts", found, f"expected at least {most}", do)
    waves = workload.get("waves")
    if isinstance(waves, int) and waves <= MOST < waves * most:
        found = f"{waves} waves of {most} requests"
        problems.add("workload.waves", found, f"expected at most {MOST} requests")


def _warm_up_fits(problems: Problems, data: Mapping[str, Any]) -> None:
    warm_up = data.get("warm_up")
    if not isinstance(warm_up, dict):
        return
    least, most = warm_up.get("blocks", WarmUp().blocks), warm_up.get("max_blocks")
    if isinstance(least, int) and isinstance(most, int) and most < least:
        do = "Raise it, or lower blocks"
        expected = f"expected at least the {least} of warm_up.blocks"
        problems.add("warm_up.max_blocks", f"{most}", expected, do)


def _recipe(
    data: Mapping[str, Any],
    concurrency: tuple[tuple[int, int], ...],
    rates: tuple[tuple[float, int], ...],
    configurations: tuple[Configuration, ...],
) -> Recipe:
    """Build the records; everything was checked before."""
    given = {k: v for k, v in data.items() if k not in TABLES and k != "patch"}
    command = given.pop("executable", None)
    words = (command,) if isinstance(command, str) else command and tuple(command)
    capture, tracing = read_capture(data, concurrency)
    workload = dict(data["workload"])
    for key in ("concurrency", "request_rate"):
        workload.pop(key, None)
    for key in ("input_tokens", "output_tokens"):
        workload.setdefault(key, None)
    if workload.get("arrivals") == "poisson":
        workload["arrivals"] = "gamma"
    timeouts = {
        key: workload.pop(key)
        for key in ("request_timeout_s", "stall_timeout_s", "total_timeout_s")
        if key in workload
    }
    server = dict(data["server"]) if "server" in data else None
    if server is not None:
        server["base_url"] = server["base_url"].rstrip("/")
        server["pids"] = tuple(server.get("pids", ()))
    given.setdefault("model", None)
    return Recipe(
        configurations=configurations,
        sweep=Sweep(
            concurrency=concurrency,
            request_rate=rates,
            **_floats(workload, "temperature", "_s", "_rps", "_range", "burstiness"),
        ),
        warm_up=WarmUp(**data.get("warm_up", {})),
        telemetry=Telemetry(**_floats(data.get("telemetry", {}), "_s")),
        boot=Boot(**data.get("boot", {})),
        explain=_explain(data.get("explain", False)),
        cost=Cost(**_floats(data["cost"], "_hour", "_gib")) if "cost" in data else None,
        server=Probe(**server) if server else None,
        executable=words,
        capture=capture,
        tracing=tracing,
        **_floats({**given, **timeouts}, "_s"),
    )


def _explain(asked: bool | Mapping[str, Any]) -> Explain | None:
    if isinstance(asked, bool):
        return Explain() if asked else None
    return Explain(**{k: float(v) for k, v in asked.items()})


def _floats(table: Mapping[str, Any], *endings: str) -> dict[str, Any]:
    """Return the table with whole numbers under such keys as floats."""
    return {
        k: float(v) if k.endswith(endings) and isinstance(v, int) else v
        for k, v in table.items()
    }
