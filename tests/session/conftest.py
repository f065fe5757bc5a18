"""The scripted world lies beside the tests and is imported by them."""

import sys
from pathlib import Path

import pytest

# Test folders are no packages; as parts of a namespace they are found from the root.
sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.session.scripted_session import World, new_world


@pytest.fixture
def world(tmp_path: Path) -> World:
    """Return a world in which nothing has happened."""
    return new_world(tmp_path)
