"""What the documentation tells a reader to type exists."""

import re
import shlex
from pathlib import Path

import click
import pytest

from stepscope.cli.main import COMMANDS, cli

ROOT = Path(__file__).parents[2]
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
#: A line of a console block, or a command in prose.
_TYPED = re.compile(r"^\$ (stepscope [^\n]*)|`(stepscope [^`]*)`", re.MULTILINE)


def typed() -> list[tuple[str, str]]:
    return [
        (str(page.relative_to(ROOT)), " ".join((line or prose).split()))
        for page in PAGES
        for line, prose in _TYPED.findall(page.read_text("utf-8"))
    ]


def words(line: str) -> list[str]:
    """Return the words of the first command, without remark, pipe and bracket."""
    found: list[str] = []
    for word in shlex.split(line, comments=True)[1:]:
        if word in ("|", ">", "&&", ";"):
            break
        found.append(word.strip("[]"))
    return found


@pytest.mark.parametrize(("page", "line"), typed())
def test_a_command_that_is_told_exists_with_its_options(page: str, line: str) -> None:
    try:
        command, *rest = words(line)
    except ValueError:  # a piece of prose between two backticks
        pytest.fail(f"{page}: {line!r} can not be read as a shell line")
    if command.startswith("-"):
        return
    assert command in COMMANDS, f"{page}: {line}"
    found = cli.get_command(click.Context(cli), command)
    assert found is not None
    known = {name for option in found.params for name in option.opts}
    told = {word.split("=")[0] for word in rest if re.match(r"--?[a-z]", word)}
    assert told <= known | {"--help"}, f"{page}: {line}"


def test_enough_commands_are_told() -> None:
    assert {words(line)[0] for _, line in typed() if words(line)} >= set(COMMANDS)
