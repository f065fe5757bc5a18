"""Nothing that opens a door is written down.

What is known by its name (``HF_TOKEN``, ``--api-key``) loses its value before it
reaches the disk. Server logs are kept as the server wrote them: what a server prints
about itself is its own to hide.
"""

import re

REMOVED = "<removed>"

_WORDS = (
    r"(?:api[_-]?key|access[_-]?key|private[_-]?key|secret|passw(?:or)?d|credentials?"
    r"|authorization|cookie|passphrase)"
)
#: A name that ends in ``_env`` or ``file`` says where the secret is, not what.
_NAME = rf"[\w.-]*(?:{_WORDS}[\w.-]*?(?<![_-]env)(?<!file)|(?<![A-Za-z])token)"
_NAMED = re.compile(_NAME, re.IGNORECASE)
_ASSIGNED = re.compile(
    rf"""(["']?(?<![\w.-]){_NAME}["']?\s*[:=]\s*)("(?:[^"\\\n]|\\.)*"|'[^'\n]*')""",
    re.IGNORECASE,
)
_LISTED = re.compile(rf'("--{_NAME}"\s*,\s*)"(?:[^"\\\n]|\\.)*"', re.IGNORECASE)
_FLAGGED = re.compile(rf"""(--{_NAME}(?:\s+|=))(?!--)[^\s"',]+""", re.IGNORECASE)
_BARE = re.compile(
    r"\b(?:hf_[A-Za-z0-9]{20,}|sk-[A-Za-z0-9_-]{20,})|(?<=Bearer )[\w.~+/=-]{8,}"
)
_USERINFO = re.compile(r"(?<=://)[^/@\s\"']+:[^/@\s\"']+(?=@)")


def _values(text: str) -> str:
    return _USERINFO.sub(REMOVED, _BARE.sub(REMOVED, text))


def environment_without_secrets(environment: dict[str, str]) -> dict[str, str]:
    """Return the environment with the values of secret names removed."""
    return {
        name: REMOVED if _NAMED.fullmatch(name) else _values(value)
        for name, value in environment.items()
    }


def command_without_secrets(command: tuple[str, ...]) -> tuple[str, ...]:
    """Return the command with the values of secret flags removed."""
    out: list[str] = []
    hiding = False
    for word in command:
        if word.startswith("-"):
            flag, equals, _ = word.partition("=")
            secret = _NAMED.fullmatch(flag.lstrip("-")) is not None
            hiding = secret and not equals
            out.append(f"{flag}={REMOVED}" if secret and equals else _values(word))
        else:
            out.append(REMOVED if hiding else _values(word))
    return tuple(out)


def text_without_secrets(text: str) -> str:
    """Return TOML, JSON or a command line with the values of secret names removed.

    The text keeps its form: what was a string stays one.
    """
    text = _ASSIGNED.sub(rf'\1"{REMOVED}"', text)
    text = _LISTED.sub(rf'\1"{REMOVED}"', text)
    text = _FLAGGED.sub(rf"\1{REMOVED}", text)
    return _values(text)
