"""A server command of an import as the keys of a recipe."""

import re
from collections.abc import Sequence

from stepscope.recipe.configurations import is_secret_name

#: Flags that have keys of their own, or that stepscope sets where it needs them.
_OWN = frozenset(
    {"host", "port", "model", "model-path", "profiler-config", "enable-metrics",
     "metrics"}
)  # fmt: skip
_NAMES = ("served-model-name", "alias")
_LONG = re.compile(r"--([A-Za-z][A-Za-z0-9_.-]*)(?:=(.*))?", re.DOTALL)
_NUMBER = re.compile(r"-?\d+(\.\d+)?")

Value = str | int | float | bool


def command_keys(
    engine: str, command: Sequence[str]
) -> tuple[dict[str, object], list[str]]:
    """Return recipe keys and what a person must look at.

    Args:
        engine: ``vllm``, ``sglang`` or ``llamacpp``.
        command: As the import recorded it.
    """
    program, model, rest = _split(engine, command)
    flags: dict[str, Value] = {}
    keys: dict[str, object] = {"executable": list(program)} if program else {}
    notes: list[str] = []
    words = list(rest)
    while words:
        word = words.pop(0)
        match = _LONG.fullmatch("--model" if word == "-m" else word)
        if match is None:
            notes.append(f"{word!r} of the server's command was left out")
            continue
        name, value = match[1].replace("_", "-"), match[2]
        if value is None and words and not words[0].startswith("--"):
            value = words.pop(0)
        if name in ("model", "model-path"):
            model = value or model
        elif name in _NAMES:
            keys["served_model_name"] = value
        elif is_secret_name(name):
            notes.append(f"--{name} was left out: it holds a secret")
        elif name not in _OWN:
            flags[name] = _value(value)
    keys["model"] = model or "FILL-IN"
    notes.append(
        f'model = "{keys["model"]}" is a path or name of the machine that was measured'
    )
    if flags:
        keys["baseline"] = {"flags": flags}
    return keys, notes


def _split(
    engine: str, command: Sequence[str]
) -> tuple[tuple[str, ...], str | None, tuple[str, ...]]:
    """Return the program, the model where it has a place, and the flags."""
    if engine == "vllm" and "serve" in command:
        at = list(command).index("serve")
        rest = command[at + 1 :]
        if rest and not rest[0].startswith("-"):
            return tuple(command[:at]), rest[0], tuple(rest[1:])
        return tuple(command[:at]), None, tuple(rest)
    # python3 -m sglang.launch_server has a short flag inside the program.
    dash = "-" if engine == "llamacpp" else "--"
    at = next((i for i, w in enumerate(command) if w.startswith(dash)), len(command))
    return tuple(command[:at]), None, tuple(command[at:])


def _value(text: str | None) -> Value:
    if text is None:
        return True
    if _NUMBER.fullmatch(text) and len(text) < 16:
        return float(text) if "." in text else int(text)
    return text
