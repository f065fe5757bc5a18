"""A table as TOML: what recipes are made of, and no more."""

import json
import re
from collections.abc import Mapping

_BARE = re.compile(r"[A-Za-z0-9_-]+")


def toml_text(data: Mapping[str, object], path: str = "") -> str:
    """Return TOML of texts, numbers, lists and tables; ``None`` is left out.

    A list of tables becomes an array of tables; a table inside a list or inside such
    a table is written inline.
    """
    plain, tables, arrays = [], [], []
    for key, value in data.items():
        if isinstance(value, Mapping):
            tables.append((key, value))
        elif isinstance(value, list) and value and isinstance(value[0], Mapping):
            arrays.append((key, value))
        elif value is not None:
            plain.append(f"{_key(key)} = {_inline(value)}\n")
    text = "".join(plain)
    for key, table in tables:
        name = f"{path}{_key(key)}"
        body = toml_text(table, f"{name}.")
        head = f"\n[{name}]\n" if not body.startswith("\n[") else ""
        text += head + body
    for key, items in arrays:
        for item in items:
            text += f"\n[[{path}{_key(key)}]]\n"
            text += "".join(
                f"{_key(k)} = {_inline(v)}\n" for k, v in item.items() if v is not None
            )
    return text


def _key(key: str) -> str:
    return key if _BARE.fullmatch(key) else _text(key)


def _text(value: str) -> str:
    # JSON's escapes are TOML's, but for DEL, and for pairs that ASCII would need.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _inline(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, Mapping):
        parts = (f"{_key(k)} = {_inline(v)}" for k, v in value.items())
        return "{ " + ", ".join(parts) + " }" if value else "{}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_inline(v) for v in value) + "]"
    return repr(value)
