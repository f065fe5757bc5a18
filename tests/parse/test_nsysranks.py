"""Which operations are one rank: by process, and by GPU where an export says it."""

import pytest
from hypothesis import given, strategies as st

from stepscope.parse.nsysranks import Pair, nsys_ranks


def process(pid: int, machine: int = 1) -> int:
    return machine << 48 | pid << 24


A, B, C, D = map(process, (10, 11, 12, 13))


def row(gpu: int | None, number: int, pid: int, **more: object) -> dict[str, object]:
    return {"gpuId": gpu, "cudaId": number, "pid": pid, **more}


def test_two_processes_that_each_see_one_gpu_as_0_are_two_ranks() -> None:
    one, two = nsys_ranks({(A, 0): 9, (B, 0): 7}, [row(0, 0, 10), row(1, 0, 11)])
    assert (one.number, one.pairs, one.sharing) == (0, ((A, 0),), None)
    assert (two.number, two.pairs, two.sharing) == (1, ((B, 0),), None)


def test_they_are_numbered_by_gpu_not_by_process() -> None:
    found = nsys_ranks({(A, 0): 9, (B, 0): 7}, [row(5, 0, 10), row(2, 0, 11)])
    assert [rank.pairs for rank in found] == [((B, 0),), ((A, 0),)]


def test_each_of_two_engines_with_two_workers_is_apart() -> None:
    used = {(A, 0): 9, (B, 1): 9, (C, 0): 9, (D, 1): 9}
    rows = [row(0, 0, 10), row(1, 1, 11), row(2, 0, 12), row(3, 1, 13)]
    for devices in (rows, []):
        found = nsys_ranks(used, devices)
        assert [rank.pairs[0][0] for rank in found] == [A, B, C, D]
        assert [rank.number for rank in found] == [0, 1, 2, 3]
        assert all((rank.sharing is None) == bool(devices) for rank in found)


def test_processes_on_one_gpu_are_apart_and_share_it() -> None:
    found = nsys_ranks({(A, 0): 9, (B, 0): 7}, [row(3, 0, 10), row(3, 0, 11)])
    assert [rank.sharing for rank in found] == ["2 processes ran on one GPU"] * 2


def test_one_gpu_under_two_numbers_is_shared_too() -> None:
    found = nsys_ranks({(A, 0): 9, (B, 1): 7}, [row(3, 0, 10), row(3, 1, 11)])
    assert [rank.number for rank in found] == [0, 1]
    assert all(rank.sharing == "2 processes ran on one GPU" for rank in found)


@pytest.mark.parametrize(
    "devices",
    [
        [],
        [row(0, 0, 10)],
        [row(0, 0, 10), row(None, 0, 11)],
        [row(0, 0, 10), row(1, 0, 11), row(2, 0, 11)],
        [row(0, 0, 10), row(None, 0, 11, uuid="GPU-b")],
    ],
)
def test_where_the_export_does_not_say_which_gpu_it_can_not_be_told(
    devices: list[dict[str, object]],
) -> None:
    found = nsys_ranks({(A, 0): 9, (B, 0): 7}, devices)
    assert len(found) == 2
    assert all("can not be told" in str(rank.sharing) for rank in found)


def test_a_uuid_says_it_where_no_id_does() -> None:
    rows = [row(None, 0, 10, uuid="GPU-b"), row(None, 0, 11, uuid="GPU-a")]
    found = nsys_ranks({(A, 0): 9, (B, 0): 7}, rows)
    assert [rank.pairs[0][0] for rank in found] == [A, B]
    assert all(rank.sharing is None for rank in found)


def test_two_entries_for_one_card_are_one_gpu() -> None:
    rows = [row(0, 0, 10), row(1, 0, 11)]
    same = [{"id": 0, "uuid": "GPU-a"}, {"id": 1, "uuid": "GPU-a"}]
    other = [{"id": 0, "uuid": "GPU-a"}, {"id": 1, "uuid": "GPU-b"}]
    used = {(A, 0): 9, (B, 0): 7}
    assert nsys_ranks(used, rows, same)[0].sharing == "2 processes ran on one GPU"
    assert nsys_ranks(used, rows, other)[0].sharing is None


def test_numbers_of_several_machines_tell_nothing_apart() -> None:
    far, rows = process(11, machine=2), [row(0, 0, 10), row(1, 0, 11)]
    assert nsys_ranks({(A, 0): 9, (far, 0): 7}, rows)[0].sharing is not None
    twice = [{"id": 0, "uuid": "a"}, {"id": 0, "uuid": "b"}]
    assert nsys_ranks({(A, 0): 9, (B, 0): 7}, rows, twice)[0].sharing is not None


def test_one_process_with_several_devices_has_a_rank_on_each() -> None:
    found = nsys_ranks({(A, 0): 9, (A, 1): 8, (A, 3): 8})
    assert [(rank.number, rank.sharing) for rank in found] == [
        (0, None), (1, None), (3, None)
    ]  # fmt: skip


def test_a_few_copies_on_anothers_gpu_are_no_rank() -> None:
    used = {(A, 0): 5000, (B, 0): 3, (B, 1): 5000}
    for devices in ([], [row(0, 0, 10), row(0, 0, 11), row(1, 1, 11)]):
        found = nsys_ranks(used, devices)
        assert [rank.number for rank in found] == [0, 1]
        assert found[0].pairs == ((A, 0), (B, 0))
        assert all(rank.sharing is None for rank in found)


def test_records_without_a_device_count_where_nothing_else_does() -> None:
    assert len(nsys_ranks({(A, -1): 3})) == 1
    assert nsys_ranks({(A, -1): 3, (A, 0): 3})[0].pairs == ((A, 0),)
    assert nsys_ranks({}) == ()


PAIR = st.tuples(st.integers(1, 200).map(process), st.integers(0, 3))
USED = st.dictionaries(PAIR, st.integers(0, 10_000), max_size=150)
ROWS = st.lists(
    st.builds(
        row, st.none() | st.integers(0, 4), st.integers(0, 3), st.integers(1, 200)
    )
)


@given(USED, ROWS)
def test_every_pair_with_operations_is_of_one_rank(
    used: dict[Pair, int], rows: list[dict[str, object]]
) -> None:
    found = nsys_ranks(used, rows)
    assert sorted(p for rank in found for p in rank.pairs) == sorted(
        p for p, n in used.items() if n
    )
    numbers = [rank.number for rank in found]
    assert numbers == sorted(set(numbers))
