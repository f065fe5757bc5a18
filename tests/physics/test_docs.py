"""The pages say what the code does."""

import re
import shlex
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from stepscope.cli.main import cli
from stepscope.physics.model.records import ModelShape

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs" / "physics").glob("*.md"))
BLOCKS = [
    (page.name, block)
    for page in PAGES
    for block in re.findall(r"```console\n(.*?)```", page.read_text(), re.DOTALL)
]


@pytest.mark.parametrize(("page", "block"), BLOCKS)
def test_a_console_block_prints_what_it_shows(
    page: str,
    block: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(ROOT)
    command, *shown = block.rstrip().splitlines()
    cli.main(shlex.split(command)[2:], standalone_mode=False)
    printed = capsys.readouterr().out.splitlines()
    expected = shown[: shown.index("...")] if "..." in shown else shown
    assert printed[: len(expected)] == expected, page


def test_the_table_of_parameters_is_what_is_counted(
    shape_of: Callable[[str], ModelShape],
) -> None:
    page = (ROOT / "docs" / "physics" / "parameters.md").read_text()
    published = tomllib.loads(
        (ROOT / "tests" / "data" / "configs" / "published.toml").read_text()
    )
    for name in published:
        assert f"| {name} | {shape_of(name).params_total:,} |" in page
    assert page.startswith(
        f"# Parameter counts against published ones\n\n{len(published)} models"
    )


def test_every_page_is_listed_in_the_index() -> None:
    index = (ROOT / "docs" / "physics" / "README.md").read_text()
    for page in PAGES:
        assert page.name == "README.md" or f"({page.name})" in index
