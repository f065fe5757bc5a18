"""Kills for want of memory, as control groups of both versions count them."""

from pathlib import Path

import pytest

from stepscope.session.watch.host import oom_kills


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("memory.events", "low 0\nhigh 0\nmax 7\noom 2\noom_kill 3\n", 3),
        ("memory.events", "low 0\noom 2\noom_kill 0\noom_group_kill 5\n", 0),
        ("memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 4\n", 4),
        ("memory.oom_control", "oom_kill_disable 0\nunder_oom 0\n", None),
        ("other", "oom_kill 3\n", None),
    ],
)
def test_the_count_of_kills_is_read_where_the_group_keeps_it(
    tmp_path: Path, name: str, text: str, expected: int | None
) -> None:
    (tmp_path / name).write_text(text)
    files = (tmp_path / "memory.current", tmp_path / "memory.max")
    assert oom_kills(files) == expected


def test_without_a_group_nothing_is_counted() -> None:
    assert oom_kills(None) is None
