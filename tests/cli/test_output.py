"""Pages that commands write."""

import subprocess
import sys
from pathlib import Path

import pytest

from stepscope.cli.output import write_whole

RUN = Path(__file__).parents[1] / "data" / "runs" / "format1"


def test_a_page_that_does_not_fit_leaves_the_old_one(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text("the old page")
    line = f'ulimit -f 4; exec "{sys.executable}" -m stepscope trend "$1" -o "$2"'
    found = subprocess.run(
        ["bash", "-c", line, "-", RUN, page],
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 3
    assert found.stderr.count("\n") == 1
    assert found.stderr.startswith(f"{page}: ")
    assert page.read_text() == "the old page"
    assert list(tmp_path.iterdir()) == [page]


@pytest.mark.parametrize("data", ["\N{GREEK SMALL LETTER MU}s", b"\x1f\x8b"])
def test_text_and_bytes_replace_what_was_there(
    tmp_path: Path, data: str | bytes
) -> None:
    path = tmp_path / "x"
    path.write_text("old")
    write_whole(path, data)
    raw = data.encode() if isinstance(data, str) else data
    assert path.read_bytes() == raw


def test_a_link_is_followed_and_a_pipe_is_kept(tmp_path: Path) -> None:
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_text("old")
    link.symlink_to(target)
    write_whole(link, "new")
    assert link.is_symlink()
    assert target.read_text() == "new"
    done = subprocess.run(
        [
            *(sys.executable, "-c"),
            "from pathlib import Path; from stepscope.cli.output import write_whole;"
            "write_whole(Path('/dev/stdout'), 'page')",
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "page"
    assert Path("/dev/stdout").is_symlink()
