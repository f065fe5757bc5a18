"""Which operations of an nsys export are one rank.

A device number counts within its process: two engines that each see one GPU both call
it 0. ``TARGET_INFO_CUDA_DEVICE`` says which GPU a process means by a number, where an
export has it.

Source: schema as exported by nsys 2024 to 2026: gpuId (may be null), cudaId, pid, and
before 2025.5 uuid; ``TARGET_INFO_GPU``: id, uuid. nsys packs the process into bits 24
to 47 of its global ids, and the machine above them.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping

import msgspec
from msgspec.structs import replace

#: A process as nsys numbers it, and the number by which it calls a device.
Pair = tuple[int, int]
#: Share of a device's operations that another process may have without sharing it:
#: contexts of peers and copies between them.
_FEW = 0.01
_NO_DEVICE = -1


class NsysRank(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One process on one GPU.

    Attributes:
        number: The device's number where these differ, else a count from 0: by GPU
            where that is known, else by process.
        pairs: Processes and devices whose operations are this rank's.
        sharing: Why others may have run on its GPU meanwhile; None: none did.
    """

    number: int
    pairs: tuple[Pair, ...]
    sharing: str | None = None


def nsys_ranks(
    n_ops: Mapping[Pair, int],
    devices: Iterable[Mapping[str, object]] = (),
    cards: Iterable[Mapping[str, object]] = (),
) -> tuple[NsysRank, ...]:
    """Return the ranks of an export, by number.

    Args:
        n_ops: Operations of each process on each device; device -1 where a record
            names none, which counts only where no other does.
        devices: Rows of ``TARGET_INFO_CUDA_DEVICE``, none where it is missing.
        cards: Rows of ``TARGET_INFO_GPU``.
    """
    used = {pair: n for pair, n in n_ops.items() if n and pair[1] != _NO_DEVICE}
    used = used or {pair: n for pair, n in n_ops.items() if n}
    gpus = _gpus(used, list(devices), list(cards))
    places: dict[object, list[Pair]] = defaultdict(list)
    for pair in sorted(used):
        places[pair[1] if gpus is None else gpus[pair]].append(pair)
    found = [rank for pairs in places.values() for rank in _apart(pairs, used, gpus)]
    numbers = [rank.number for rank in found]
    if len(set(numbers)) < len(numbers):
        # Numbers of GPUs are those of the machine; uuids have no order.
        known = {pair: gpu for pair, gpu in (gpus or {}).items() if type(gpu) is int}
        found.sort(key=lambda rank: (known.get(rank.pairs[0], 0), rank.pairs[0]))
        found = [replace(rank, number=i) for i, rank in enumerate(found)]
    return tuple(sorted(found, key=lambda rank: rank.number))


def _apart(
    pairs: list[Pair], used: Mapping[Pair, int], gpus: Mapping[Pair, object] | None
) -> list[NsysRank]:
    """Return the ranks among pairs that are, or may be, on one GPU."""
    n_of: Counter[int] = Counter()
    for pair in pairs:
        n_of[pair[0]] += used[pair]
    most = max(n_of, key=lambda process: n_of[process])
    large = [p for p in n_of if p == most or n_of[p] > _FEW * n_of.total()]
    mine = {p: [pair for pair in pairs if pair[0] == p] for p in large}
    mine[most] += [pair for pair in pairs if pair[0] not in large]
    sharing = None
    if len(large) > 1:
        sharing = f"{len(large)} processes ran on one GPU"
        if gpus is None:
            sharing = (
                f"{len(large)} processes call their GPU number {pairs[0][1]}, and the"
                " export does not say whether it is one: it can not be told whether"
                " they shared it"
            )
    # The device that a process used most comes first.
    own = [tuple(sorted(each, key=lambda p: -used[p])) for each in mine.values()]
    return [NsysRank(number=o[0][1], pairs=o, sharing=sharing) for o in own]


def _gpus(
    used: Mapping[Pair, int],
    devices: list[Mapping[str, object]],
    cards: list[Mapping[str, object]],
) -> dict[Pair, object] | None:
    """Return the GPU of each pair; None unless that of every one is known."""
    if len({process >> 48 for process, _ in used}) > 1:
        return None  # Process ids of several machines may be equal.
    named = [card.get("id") for card in cards]
    if len(set(named)) < len(named):
        return None
    # Two entries for one card would make one GPU two.
    same = {card.get("id"): card.get("uuid") or card.get("id") for card in cards}
    by_id = len({*same.values()}) == len(same)
    known: dict[Pair, set[object]] = defaultdict(set)
    for row in devices:
        gpu = row.get("gpuId")
        gpu = row.get("uuid") or None if gpu is None else gpu
        gpu = gpu if by_id else same.get(gpu, gpu)
        pid, number = row.get("pid"), row.get("cudaId")
        if isinstance(pid, int) and isinstance(number, int):
            known[pid, number].add(gpu)
    found: dict[Pair, object] = {}
    for pair in used:
        said = known.get((pair[0] >> 24 & 0xFFFFFF, pair[1]), set())
        if len(said) != 1 or None in said:
            return None
        (found[pair],) = said
    # An id and a uuid may be one GPU.
    return found if len({type(gpu) for gpu in found.values()}) == 1 else None
