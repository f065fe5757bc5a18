"""Workers on the nodes of a Ray cluster.

A Ray actor on each node starts the same worker that runs here otherwise and passes on
what it says and writes. The worker is told what its clock is ahead by, and writes
instants of this machine's.
"""

import contextlib
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec

from stepscope import __version__
from stepscope.clock import Clock
from stepscope.errors import RecipeError, SessionError
from stepscope.load.aligned import Offset, error_over, offset_of
from stepscope.load.cluster_ray import connected, nodes_for, one_line
from stepscope.load.crew import Crew, Hand
from stepscope.load.foreman import Foreman
from stepscope.load.hand_ray import FarHand, Post
from stepscope.load.health import client_health
from stepscope.load.messages import Job
from stepscope.load.prompts import authorization
from stepscope.load.spec import LoadSpec
from stepscope.run.client import ClientNode
from stepscope.units import ms

#: A word takes a millisecond or so to a node; all must have it before they start.
_START_DELAY_NS = 250_000_000
_PATIENCE_S = 60.0
_END_TIMEOUT_S = 10.0


class RayPool:
    """The nodes of a Ray cluster.

    Args:
        spec: The load.
        journal_dir: Where the journals are put together.
        clock: Ours.

    Attributes:
        n_workers: Client processes.
        start_delay_ns: From the word to go to the common start.
    """

    start_delay_ns = _START_DELAY_NS

    def __init__(self, spec: LoadSpec, journal_dir: Path, clock: Clock) -> None:
        if spec.cpus is not None:
            raise RecipeError(
                "cpus", f"{spec.cpus} with Ray's nodes", "none: Ray deals out its CPUs"
            )
        self._spec, self._dir, self._clock = spec, journal_dir, clock
        self._posts: list[Post] = []
        self._connection = contextlib.ExitStack()
        self.n_workers = 0

    def __enter__(self) -> Self:
        """Connect, put a foreman in each worker's place and read all clocks.

        Raises:
            SessionError: There is no cluster, or it has no room.
        """
        import ray

        try:
            self._connection.enter_context(connected())
            nodes = nodes_for(self._spec.base_urls)
            self.n_workers = min(self._spec.processes or len(nodes), self._spec.n_slots)
            asked = [self._foreman(i, nodes) for i in range(self.n_workers)]
            for name, foreman in asked:
                self._posts.append(self._post(name, foreman))
        except ray.exceptions.RayError as error:
            self.__exit__(None, None, None)
            raise SessionError("Ray", one_line(error)) from error
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def _foreman(self, number: int, nodes: list[dict[str, Any]]) -> tuple[str, Any]:
        import ray
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        node = nodes[number % len(nodes)]
        place = NodeAffinitySchedulingStrategy(node_id=node["NodeID"], soft=False)
        actor = ray.remote(Foreman).options(
            num_cpus=1, max_concurrency=4, max_restarts=0, scheduling_strategy=place
        )
        address = f"{node['NodeManagerAddress']}, node {node['NodeID'][:8]}"
        return address, actor.remote()

    def _post(self, name: str, foreman: Any) -> Post:
        import ray

        try:
            host, version = ray.get(foreman.about.remote(), timeout=_PATIENCE_S)
        except ray.exceptions.GetTimeoutError as error:
            raise SessionError(
                "Ray",
                f"{name} gave no CPU within {_PATIENCE_S:g} s",
                f"room for {self.n_workers} client processes, a CPU each",
                "Give fewer --processes, or free the nodes",
            ) from error
        if version != __version__:
            raise SessionError(
                f"{host} ({name})", f"stepscope {version}", f"{__version__}, as here"
            )
        return Post(f"{host} ({name})", foreman, self._read_clock(foreman))

    def _read_clock(self, foreman: Any) -> Offset:
        import ray

        return offset_of(
            lambda: int(ray.get(foreman.now_ns.remote(), timeout=_END_TIMEOUT_S)),
            self._clock.now_ns,
        )

    def hire(self, job: Job) -> Hand:
        """Start a worker in its place."""
        spec = self._spec
        # A key lies in our environment or our file, not in a node's.
        carried = authorization(spec.api_key_env, spec.api_key_file) | spec.headers
        post = self._posts[job.worker]
        told = msgspec.structs.replace(
            job,
            ahead_ns=post.offset.offset_ns,
            spec=msgspec.structs.replace(
                job.spec, api_key_env=None, api_key_file=None, headers=carried
            ),
        )
        return FarHand(told, post, self._dir)

    def nodes(self, crew: Crew) -> tuple[ClientNode, ...]:
        """Read the clocks again, and return what each node did."""
        tallies = crew.tally_by_worker
        found = []
        for name in dict.fromkeys(post.node for post in self._posts):
            workers = [i for i, post in enumerate(self._posts) if post.node == name]
            first = self._posts[workers[0]]
            known = [t for i in workers if (t := tallies.get(i)) is not None]
            health = client_health(known, len(workers))
            lived = len(known) == len(workers)
            error_ns = self._error_ns(first)
            found.append(
                ClientNode(
                    name=name,
                    workers=tuple(workers),
                    clock_offset_ms=ms(first.offset.offset_ns),
                    clock_error_ms=None if error_ns is None else ms(error_ns),
                    delay_ms=health.delay_ms,
                    busy_pct=health.busy_pct,
                    cpu_pct_max=health.cpu_pct_max,
                    held_pct=health.held_pct,
                    verdict=health.verdict if lived else "lost",
                    reasons=health.reasons,
                )
            )
        return tuple(found)

    def _error_ns(self, post: Post) -> int | None:
        import ray

        try:
            again = self._read_clock(post.foreman)
        except ray.exceptions.RayError:
            return None
        return error_over(post.offset, again)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Give the nodes back."""
        import ray

        for post in self._posts:
            with contextlib.suppress(ray.exceptions.RayError):
                ray.get(post.foreman.clear.remote(), timeout=_END_TIMEOUT_S)
            with contextlib.suppress(ray.exceptions.RayError):
                ray.kill(post.foreman)
        self._connection.close()
