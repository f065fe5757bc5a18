"""Settings of every test."""

import re
from pathlib import Path

import pytest
from hypothesis import settings

# The same examples each time, however long one takes: a check that passed on a commit
# passes again, on a busy machine too.
settings.register_profile("stable", derandomize=True, deadline=None)
settings.load_profile("stable")

#: Real evidence: logs, timelines and answers too large for the repository.
SHARED = Path(__file__).parents[1].parent / "shared"
#: How a file of tests says that it reads them, itself or through the planted traces.
_READS = re.compile(r'/ "shared["/]|\bplanting import\b')
_LEFT_OUT: set[Path] = set()


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Leave out files that read the real evidence where it is not there."""
    if SHARED.exists() or not collection_path.name.startswith("test_"):
        return None
    if not _READS.search(collection_path.read_text("utf-8")):
        return None
    _LEFT_OUT.add(collection_path)
    return True


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say how much was left out: a suite that ran in part must not look whole."""
    if _LEFT_OUT:
        terminalreporter.write_line(
            f"{len(_LEFT_OUT)} files of tests read real evidence from {SHARED.name}/"
            " beside the repository, which is not there: they were left out."
        )
