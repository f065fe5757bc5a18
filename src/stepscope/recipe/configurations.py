"""The baseline and its patches: flags, environment, processors."""

import json
import math
import re
from collections.abc import Mapping

from stepscope.recipe.problems import (
    Problems,
    did_you_mean,
    holds_secret,
    quoted,
    shown,
)
from stepscope.recipe.records import Configuration
from stepscope.recipe.schema import PATCH

Flag = str | int | float | bool | None

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
#: Endings that cells and launches have: a configuration may not look like one.
_TAKEN = re.compile(
    r"-(?:l\d+|x\d+|warm\d+|trace"
    r"|(?:c\d+|q[\d.e+-]+|ramp|replay)-(?:r\d+|trace|untraced))$"
)
_FLAG = re.compile(r"[A-Za-z][A-Za-z0-9]*(?:[-_.][A-Za-z0-9_.-]*)?")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

#: A word of a name that makes its value a secret anywhere in the name, or only last.
_SECRET_WORDS = frozenset(
    {"secret", "password", "passwd", "credential", "credentials", "apikey"}
)
_SECRET_LAST = frozenset({"key", "token", "auth"})

#: Flags that have a key of the recipe, by that key.
_OWN_KEYS = {
    "host": "host",
    "port": "port",
    "model": "model",
    "model-path": "model",
    "served-model-name": "served_model_name",
    "alias": "served_model_name",
}

#: Flags that engines are given without being asked: false takes them away, so there it
#: is a change even where the baseline does not name them.
_ADDED = frozenset({"enable-metrics", "metrics", "enable-logging-iteration-details"})

#: All flags of the embedded engine, and the smallest value of each.
EMBEDDED_FLAGS = {"slots": 1, "slot-context": 64, "threads": 1}


def read_configurations(
    problems: Problems, data: Mapping[str, object]
) -> tuple[Configuration, ...]:
    """Return the baseline and, merged into it, each patch.

    Args:
        problems: Where to note what is wrong.
        data: The whole recipe.
    """
    base = data.get("baseline")
    baseline = _read(problems, "baseline", "baseline", base, data.get("engine"))
    found = [baseline]
    patches = data.get("patch")
    for i, patch in enumerate(patches if isinstance(patches, list) else []):
        path = f"patch[{i}]"
        if not isinstance(patch, dict):
            problems.add(path, shown(patch), "expected a table: [[patch]]")
            continue
        problems.table(f"{path}.", patch, PATCH)
        name = patch.get("name")
        if not isinstance(name, str) or not name.strip():
            continue
        _check_name(problems, f"{path}.name", name, found)
        change = _read(problems, path, name, patch, data.get("engine"))
        merged = _merged(baseline, change)
        if _same(merged, baseline) and set(patch) <= set(PATCH):
            do = "Give it flags, environment or cpus that differ"
            problems.add(path, "it changes nothing of the baseline", "", do)
        found.append(merged)
    return tuple(found)


def is_secret_name(name: str) -> bool:
    """Whether a variable or flag of this name holds a secret, by its words."""
    words = re.split(r"[^a-z0-9]+", name.lower().strip("-_"))
    return bool(_SECRET_WORDS.intersection(words)) or words[-1] in _SECRET_LAST


def _check_name(
    problems: Problems, path: str, name: str, found: list[Configuration]
) -> None:
    if not NAME.fullmatch(name):
        expected = "expected up to 64 letters, digits, dots, dashes, underscores"
        problems.add(path, shown(name), expected)
    elif _TAKEN.search(name):
        expected = "expected a name that does not end like a launch or a cell"
        problems.add(path, shown(name), expected)
    elif name in {c.name for c in found}:
        problems.add(path, f"{shown(name)} again", "expected a name of its own")


def _read(
    problems: Problems, path: str, name: str, data: object, engine: object
) -> Configuration:
    table = data if isinstance(data, dict) else {}
    flags, environment = table.get("flags"), table.get("environment")
    cpus = table.get("cpus")
    return Configuration(
        name=name,
        flags=_flags(problems, f"{path}.flags", flags, engine),
        environment=_environment(problems, f"{path}.environment", environment),
        cpus=cpus if isinstance(cpus, str) else None,
    )


def _flags(
    problems: Problems, path: str, data: object, engine: object
) -> dict[str, Flag]:
    good: dict[str, Flag] = {}
    for key, value in (data if isinstance(data, dict) else {}).items():
        at = f"{path}.{quoted(key)}"
        head, dot, tail = key.partition(".")
        # Engines take both spellings; a patch must find the baseline's.
        name = head.replace("_", "-") + dot + tail
        if not _FLAG.fullmatch(key) or len(key) < 2:
            expected = "expected a long name of letters, without dashes before it"
            problems.add(at, "no flag name", expected)
        elif name in good:
            problems.add(at, "given twice", "with dashes and with underscores")
        elif name in _OWN_KEYS:
            problems.add(at, "it has a key of its own", "", f"Set {_OWN_KEYS[name]}")
        elif is_secret_name(name) or holds_secret(value):
            problems.add(at, "looks like a secret", *_SECRET_ADVICE)
        elif engine == "embedded":
            _embedded_flag(problems, at, name, value)
            good[name] = value if isinstance(value, int) else None
        elif (flag := _flag_value(value)) is None:
            problems.add(at, shown(value), "expected text, a number, true or false")
        else:
            good[name] = flag
    return good


def _embedded_flag(problems: Problems, at: str, name: str, value: object) -> None:
    if name not in EMBEDDED_FLAGS:
        expected = "the embedded engine has " + ", ".join(EMBEDDED_FLAGS)
        problems.add(at, "unknown flag", expected, did_you_mean(name, EMBEDDED_FLAGS))
        return
    least = EMBEDDED_FLAGS[name]
    whole = isinstance(value, int) and not isinstance(value, bool)
    if not whole or not least <= int(str(value)) <= 1 << 20:
        problems.add(at, shown(value), f"expected a whole number of at least {least}")


def _flag_value(value: object) -> str | int | float | bool | None:
    """Return the value as a Configuration holds it: tables and lists as JSON."""
    if isinstance(value, list | dict):
        return _json(value)
    good = (
        isinstance(value, bool)
        or (isinstance(value, str) and "\0" not in value)
        or (isinstance(value, int) and abs(value) < 1 << 63)
        or (isinstance(value, float) and math.isfinite(value))
    )
    return value if good and isinstance(value, str | int | float) else None


def _json(value: object) -> str | None:
    """Return compact JSON; None for dates, NaN, secrets and what is too deep."""
    try:
        text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        return None
    return None if holds_secret(text) else text


_SECRET_ADVICE = (
    "expected none in a recipe, which is kept with every run",
    "Export it in the shell that starts stepscope: the server inherits it",
)


def _environment(problems: Problems, path: str, data: object) -> dict[str, str]:
    good: dict[str, str] = {}
    for key, value in (data if isinstance(data, dict) else {}).items():
        at = f"{path}.{quoted(key)}"
        if not _VARIABLE.fullmatch(key):
            problems.add(at, "no variable name", "expected letters, digits, _")
        elif is_secret_name(key) or holds_secret(value):
            problems.add(at, "looks like a secret", *_SECRET_ADVICE)
        elif isinstance(value, bool):
            # 1, true and True are three different things to three programs.
            problems.add(at, shown(value), 'expected text such as "1"')
        elif isinstance(value, str | int | float):
            text = str(_flag_value(value))
            if _flag_value(value) is None:
                problems.add(at, shown(value), "expected text or a number")
            good[key] = text
        else:
            problems.add(at, shown(value), "expected text or a number")
    return good


def _merged(baseline: Configuration, change: Configuration) -> Configuration:
    return Configuration(
        name=change.name,
        flags={**baseline.flags, **change.flags},
        environment={**baseline.environment, **change.environment},
        cpus=change.cpus if change.cpus is not None else baseline.cpus,
    )


def _same(a: Configuration, b: Configuration) -> bool:
    """Whether two configurations come to the same command."""

    def given(c: Configuration) -> dict[str, Flag]:
        return {
            k: v
            for k, v in c.flags.items()
            if k in _ADDED or not (v is None or v is False)
        }

    # 1 == True, so types are compared too.
    typed = [{k: (type(v), v) for k, v in given(c).items()} for c in (a, b)]
    return typed[0] == typed[1] and a.environment == b.environment and a.cpus == b.cpus
