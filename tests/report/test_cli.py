"""``stepscope report`` on real evidence, and what it refuses."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from stepscope.cli.report import report
from stepscope.errors import RecipeError

SHARED = Path(__file__).parents[2].parent / "shared"
DETAILS = SHARED / "data" / "h200x1-qwen3moe-iteration-details" / "import.toml"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Everything that the command writes of one real import."""
    path = tmp_path_factory.mktemp("report")
    result = CliRunner().invoke(
        report,
        [str(DETAILS), "-o", str(path / "page.html"), "--format", "html,md,png"],
        catch_exceptions=False,
    )
    assert result.exit_code == 0
    assert len(result.stdout.splitlines()) == 3
    return path


def test_page_markdown_and_pictures_are_written(folder: Path) -> None:
    assert (folder / "page.html").stat().st_size < 2_000_000
    assert "# " in (folder / "page.md").read_text("utf-8")
    names = {path.name for path in (folder / "page.figures").iterdir()}
    assert {"sweep-tpot.png", "sweep-tpot.svg", "step-0.png"} <= names


def test_the_page_of_real_evidence_says_what_is_known(folder: Path) -> None:
    text = (folder / "page.html").read_text("utf-8")
    assert "concurrency 256" in text
    assert "DRAM bandwidth counter" in text
    assert "<script" not in text


def test_an_earlier_report_is_replaced(folder: Path) -> None:
    page = folder / "page.html"
    before = page.read_text("utf-8")
    result = CliRunner().invoke(
        report, [str(DETAILS), "-o", str(page)], catch_exceptions=False
    )
    assert result.exit_code == 0
    assert page.read_text("utf-8") == before


@pytest.mark.parametrize("kind", ["html", "md"])
def test_a_foreign_file_is_never_overwritten(tmp_path: Path, kind: str) -> None:
    page = tmp_path / "page.html"
    mine = tmp_path / f"page.{kind}"
    mine.write_text("<p>mine</p>", "utf-8")
    with pytest.raises(RecipeError, match="did not write"):
        CliRunner().invoke(
            report,
            [str(DETAILS), "-o", str(page), "--format", "html,md"],
            catch_exceptions=False,
        )
    assert mine.read_text("utf-8") == "<p>mine</p>"
    assert list(tmp_path.iterdir()) == [mine]


def test_an_unknown_format_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="html, md, png"):
        CliRunner().invoke(
            report, [str(DETAILS), "--format", "pdf"], catch_exceptions=False
        )


def test_a_missing_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="does not exist"):
        CliRunner().invoke(
            report,
            [str(DETAILS), "-o", str(tmp_path / "no" / "page.html")],
            catch_exceptions=False,
        )
