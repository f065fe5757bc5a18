"""One worker on a node of a Ray cluster, as its crew holds it."""

import contextlib
import os
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import msgspec

from stepscope.load.aligned import Offset
from stepscope.load.cluster_ray import one_line
from stepscope.load.foreman import Heard
from stepscope.load.messages import Job, ToWorker

_END_TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True)
class Post:
    """A worker's place: its node, its foreman there and that node's clock."""

    node: str
    foreman: Any
    offset: Offset


class FarHand:
    """A worker on another machine: its words come out of a pipe of ours.

    Attributes:
        words: What it says.
    """

    def __init__(self, job: Job, post: Post, journal_dir: Path) -> None:
        self._post, self._dir = post, journal_dir
        reading, self._writing = os.pipe()
        self.words: IO[bytes] = os.fdopen(reading, "rb", buffering=0)
        items = None if job.items_path is None else Path(job.items_path).read_bytes()
        self._how: str | None = None
        self._thread = threading.Thread(
            target=self._listen, args=(msgspec.msgpack.encode(job), items), daemon=True
        )
        self._thread.start()

    def _call(self, name: str, *said: object) -> None:
        """Call the foreman; a dead one is noticed by its silence."""
        import ray

        with contextlib.suppress(ray.exceptions.RayError):
            getattr(self._post.foreman, name).remote(*said)

    def tell(self, order: ToWorker) -> None:
        """Say something to it."""
        self._call("tell", msgspec.msgpack.encode(order))

    def _listen(self, job: bytes, items: bytes | None) -> None:
        """Write down and pass on what comes, until it ends or its machine is lost."""
        import ray

        try:
            ray.get(self._post.foreman.start.remote(job, items))
            over = False
            while not over:
                said = ray.get(self._post.foreman.hear.remote())
                heard = msgspec.msgpack.decode(said, type=Heard)
                self._write(heard.written)  # before a tally that counts them
                with contextlib.suppress(OSError):  # nobody reads any more
                    os.write(self._writing, heard.said)
                over, self._how = heard.over, heard.ending
        except (ray.exceptions.RayError, OSError) as error:
            self._how = f"was lost with {self._post.node}: {one_line(error)}"
        finally:
            os.close(self._writing)

    def _write(self, written: Mapping[str, bytes]) -> None:
        for name, data in written.items():
            with (self._dir / name).open("ab", buffering=0) as file:
                file.write(data)

    def ending(self) -> str | None:
        """Return how it ended, once its words have; None: as it should."""
        self._thread.join()
        return self._how

    def let_go(self) -> None:
        """Tell it to end."""
        self._call("end")

    def end(self) -> None:
        """Wait until its last words were written down."""
        self._thread.join(_END_TIMEOUT_S)
