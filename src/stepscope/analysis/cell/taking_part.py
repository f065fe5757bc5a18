"""Which of the sampled GPUs serve: a machine has others, and other programs on them."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from stepscope.analysis.degrees import told_degrees
from stepscope.run.run import Launch
from stepscope.units import BYTES_PER_GIB

#: Memory in use over what the engine set out to use: graphs, contexts and what
#: collectives hold come on top. Measured on an H200: 1.006 to 1.042.
_LEAST, _MOST = 0.97, 1.08
#: Degrees of parallelism that make ranks: tensor, data, pipeline.
_N_DEGREES = 3


@dataclass(frozen=True, slots=True)
class Asked:
    """What a server asked for.

    Attributes:
        n_gpus: How many GPUs it uses; None: not known.
        requested_bytes: Memory that it set out to use of each; None: not known.
    """

    n_gpus: int | None = None
    requested_bytes: float | None = None


@dataclass(frozen=True, slots=True)
class Part:
    """GPUs that take part, as indices into those that were sampled.

    Attributes:
        own: Those that means are taken of; empty where nothing tells which.
        others: Those that another program holds memory of.
        told: False where more hold memory than the server uses, and nothing tells
            which are its own.
    """

    own: tuple[int, ...]
    others: tuple[int, ...] = ()
    told: bool = True


NOTHING = Asked()


def asked_of(launch: Launch | None, n_gpus: int | None) -> Asked:
    """Return what a launch asked for, by its own log and command.

    Where these do not tell all degrees of its layout the run's number counts too: the
    larger, for leaving a server's own GPU out is worse than counting one too many.

    Args:
        launch: The launch; None: not known.
        n_gpus: Of the run.
    """
    if launch is None:
        return Asked(n_gpus)
    told = told_degrees(launch)
    n = prod(told.values()) if told else None
    if len(told) < _N_DEGREES and n_gpus is not None:
        n = max(n or 1, n_gpus)
    asked = None if launch.log is None else launch.log.ledger.requested_gib
    return Asked(n, None if asked is None else asked * BYTES_PER_GIB)


def taking_part(peaks: Sequence[float | None], asked: Asked = NOTHING) -> Part:
    """Return the GPUs whose memory is in use by the server.

    Those that hold at least half of what the fullest one does, for idle GPUs beside a
    server would halve every mean; all where nobody says how much they hold. Are these
    more than the server uses, then those that hold what it asked for.

    Args:
        peaks: Most memory that each GPU held, bytes; None: not known.
        asked: What the server asked for.
    """
    most = max((peak for peak in peaks if peak is not None), default=0.0)
    held = tuple(i for i, p in enumerate(peaks) if p is None or 2 * p >= most)
    n, wanted = asked.n_gpus, asked.requested_bytes
    known = [peaks[i] for i in held if peaks[i] is not None]
    if not n or len(held) <= n or len(known) < len(held):
        return Part(held)
    if wanted:
        own = tuple(
            i for i in held if _LEAST * wanted <= (peaks[i] or 0.0) <= _MOST * wanted
        )
        if len(own) == n:
            return Part(own, tuple(i for i in held if i not in own))
    return Part((), held, told=False)
