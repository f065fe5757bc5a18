"""Columns that grow as rows are read."""

import numpy as np
from hypothesis import given, settings, strategies as st

from stepscope.timeline.chunks import Chunks
from stepscope.timeline.columns import HostSpans, rows_of_each

_PARTS = st.lists(st.lists(st.integers(-(2**31), 2**31 - 1), max_size=5), max_size=6)


@settings(deadline=None)
@given(_PARTS)
def test_a_column_is_its_parts_one_after_the_other(parts: list[list[int]]) -> None:
    rows = Chunks()
    for part in parts:
        rows.add(at=np.array(part, dtype=np.int32))
    whole = [value for part in parts for value in part]
    order = rows.order("at")
    column = rows.taken("at")
    assert column.tolist() == whole
    assert column[order].tolist() == sorted(whole)
    assert not rows.columns


@settings(deadline=None)
@given(_PARTS)
def test_a_value_that_all_rows_share_stands_for_all(parts: list[list[int]]) -> None:
    rows = Chunks()
    for part in parts:
        rows.add(at=np.array(part, dtype=np.int32))
    whole = [value for part in parts for value in part]
    assert rows.spread("at", slice(None)).tolist() == whole


def test_equal_stamps_keep_the_order_in_which_they_were_read() -> None:
    rows = Chunks()
    rows.add(start=np.array([5, 1, 5, 1]), name=np.array([0, 1, 2, 3]))
    order = rows.order("start")
    assert rows.taken("name")[order].tolist() == [1, 3, 0, 2]


def test_rows_of_each_table_are_its_own_and_the_tables_are_let_go() -> None:
    column = np.arange(4)
    whole = HostSpans(
        start_ns=column,
        end_ns=column + 1,
        name=column + 2,
        thread=column + 3,
        is_annotation=column > 1,
    )
    tables = [whole, whole]
    first, second = rows_of_each(tables, [column < 1, column >= 1])
    assert not tables
    assert (first.start_ns.tolist(), second.start_ns.tolist()) == ([0], [1, 2, 3])
    assert second.thread.tolist() == [4, 5, 6]
    assert second.is_annotation.tolist() == [False, True, True]
