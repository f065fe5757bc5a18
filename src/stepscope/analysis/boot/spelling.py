"""Which flag was meant where an unknown one is a slip of the pen."""

from stepscope.analysis.boot.flag_names import LONG_FLAGS

#: Slips that are forgiven: two letters, of a flag long enough to be told apart.
_MOST_SLIPS = 2
_SHORT = 8


def meant(word: str, engine: str | None) -> str | None:
    """Return the long flag that was meant, with its dashes.

    None where several are as near, and where the nearest differs by more than a slip:
    ``--disable-x`` is no slip of ``--enable-x``.

    Args:
        word: The unknown flag as it was given, with its value after ``=`` if any.
        engine: The log's engine; None asks the flags of all.
    """
    if not word.startswith("--"):
        return None
    name = word[2:].partition("=")[0].replace("_", "-").lower()
    most = _MOST_SLIPS if len(name) >= _SHORT else 1
    near = sorted(
        (n_slips(name, flag), flag)
        for flag in _known(engine)
        if abs(len(flag) - len(name)) <= most
    )
    if not near or not 0 < near[0][0] <= most:
        return None
    if len(near) > 1 and near[1][0] == near[0][0]:
        return None
    return "--" + near[0][1]


def _known(engine: str | None) -> set[str]:
    names = LONG_FLAGS.get(engine or "", " ".join(LONG_FLAGS.values()))
    return set(names.split())


def n_slips(left: str, right: str) -> int:
    """Count the letters that were left out, added, changed or swapped with the next.

    Source: the optimal string alignment distance.
    """
    before: list[int] = []
    row = list(range(len(right) + 1))
    for i, a in enumerate(left, 1):
        before, above, row = row, before, [i]
        for j, b in enumerate(right, 1):
            cost = min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (a != b))
            if i > 1 and j > 1 and a == right[j - 2] and b == left[i - 2]:
                cost = min(cost, above[j - 2] + 1)
            row.append(cost)
    return row[-1]
