"""What a stranger reads first: help texts and pages."""

import importlib
import re
from pathlib import Path

import click
import pytest

from stepscope.cli.main import COMMANDS

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    [ROOT / "README.md", ROOT / "CHANGELOG.md", *(ROOT / "docs").rglob("*.md")]
)
_FENCED = re.compile(r"```.*?```", re.DOTALL)
_LINK = re.compile(r"\]\(([^)\s]+)\)")


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_that_is_shown_says_what_it_does(name: str) -> None:
    module, attribute, _ = COMMANDS[name]
    command = getattr(importlib.import_module(f"stepscope.cli.{module}"), attribute)
    silent = [
        option.opts[0]
        for option in command.params
        if isinstance(option, click.Option) and not option.hidden and not option.help
    ]
    assert command.help
    assert silent == []


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_every_link_between_pages_leads_to_a_file_and_a_heading(page: Path) -> None:
    broken = []
    for link in _LINK.findall(_FENCED.sub("", page.read_text("utf-8"))):
        if "://" in link:
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and anchor not in _anchors(target)):
            broken.append(link)
    assert broken == []


def test_the_table_of_where_to_add_something_names_files_that_exist() -> None:
    text = (ROOT / "docs" / "house.md").read_text("utf-8")
    table = text[text.index("| to add |") :]
    room = ROOT / "src" / "stepscope"
    paths = re.findall(r"`([a-z_]+/[a-z_/]*(?:\.py)?)`", table)
    assert len(paths) > 20
    lost = [p for p in paths if not ((room / p).exists() or (ROOT / p).exists())]
    assert lost == []


def _anchors(page: Path) -> set[str]:
    """Return the anchors that a forge gives to a page's headings."""
    text = _FENCED.sub("", page.read_text("utf-8"))
    return {
        re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-")
        for heading in re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    }
