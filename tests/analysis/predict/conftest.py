from pathlib import Path

import pytest

from stepscope.importers.load import load_foreign
from stepscope.run.run import Run

SHARED = Path(__file__).parents[3].parent / "shared"


@pytest.fixture(scope="session")
def h200() -> Run:
    """The real sweep of one H200."""
    if not SHARED.exists():
        pytest.skip("no real evidence beside the repository")
    return load_foreign(SHARED / "data/h200x1-qwen3moe-baseline/import.toml")
