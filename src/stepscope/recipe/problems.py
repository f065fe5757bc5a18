"""Problems of a recipe: collected while it is read, raised together."""

import difflib
import re
from collections.abc import Iterable, Mapping

from stepscope.errors import RecipeError
from stepscope.recipe.schema import Key

#: Prefixes that issuers of keys print in front of them.
_ISSUED = re.compile(r"\b(sk-|hf_|gh[pousr]_|glpat-|xox[abp]-|AKIA)[A-Za-z0-9_-]{12,}")


class Problems:
    """What is wrong with the recipe called ``where``."""

    def __init__(self, where: str) -> None:
        self._where = where
        self._found: list[RecipeError] = []

    def add(self, path: str, found: str, expected: str = "", do: str = "") -> None:
        """Note one problem at the key ``path``."""
        self._found.append(RecipeError(f"{self._where}: {path}", found, expected, do))

    def table(
        self, prefix: str, data: Mapping[str, object], keys: Mapping[str, Key]
    ) -> None:
        """Check a table's keys and values; ``prefix`` ends in a dot or is empty."""
        for name, value in data.items():
            if name not in keys:
                do = did_you_mean(name, keys)
                self.add(f"{prefix}{quoted(name)}", "unknown key", known(keys), do)
            elif (expected := keys[name].check(value)) is not None:
                self.add(f"{prefix}{name}", shown(value), f"expected {expected}")
        for name, key in keys.items():
            if key.required and name not in data:
                expected = key.check(None) or "a value"
                self.add(f"{prefix}{name}", "missing", f"expected {expected}")

    def raise_if_any(self) -> None:
        """Raise the first problem with all others in ``also``.

        Raises:
            RecipeError: There was a problem.
        """
        if self._found:
            first, *rest = self._found
            raise RecipeError(
                first.where, first.found, first.expected, first.do, also=tuple(rest)
            )


def known(names: Iterable[str]) -> str:
    """Return the known names as an expectation."""
    return "expected one of " + ", ".join(names)


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """Return advice where a known name is close to ``name``, or nothing."""
    close = difflib.get_close_matches(name.lower().replace("-", "_"), list(names), n=1)
    return f'Perhaps you meant "{close[0]}"' if close else ""


def quoted(name: str) -> str:
    """Return a key as TOML writes it in a path."""
    bare = name.isascii() and name.replace("-", "").replace("_", "").isalnum()
    return name if bare else shown(name)


def holds_secret(value: object) -> bool:
    """Whether text holds something that an issuer of keys would have printed."""
    return isinstance(value, str) and bool(_ISSUED.search(value))


def shown(value: object) -> str:
    """Return a value as a message may show it: short, and never a secret."""
    if isinstance(value, str):
        text = '"' + value + '"' if value.isprintable() else ascii(value)
    elif isinstance(value, dict):
        return "a table"
    elif isinstance(value, list):
        text = "[" + ", ".join(shown(v) for v in value[:4])
        text += ", ...]" if len(value) > 4 else "]"
    elif isinstance(value, bool):
        text = str(value).lower()
    elif isinstance(value, int) and abs(value) >= 1 << 64:
        return "a number of more than 64 bits"
    else:
        text = str(value)
    if holds_secret(text):
        return "(a secret, not shown)"
    return text if len(text) <= 60 else text[:57] + "..."
