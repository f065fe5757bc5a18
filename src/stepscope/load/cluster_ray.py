"""The Ray cluster that is reached from here: connecting to it, and its nodes."""

import contextlib
import io
import os
import socket
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from stepscope.errors import RecipeError, SessionError
from stepscope.load.quiet_ray import without_ray
from stepscope.load.wire import parse_address

_OWN = frozenset({"localhost", "::1", "0.0.0.0", "::"})  # noqa: S104  # compared only
#: How long a cluster's port may take to answer.
_KNOCK_S = 5.0
#: Characters of what Ray says of an error.
_MOST_SAID = 160


@contextlib.contextmanager
def connected() -> Iterator[None]:
    """Be connected to the cluster that ``RAY_ADDRESS`` names, or that runs here.

    A connection that somebody else made is used and left.

    Raises:
        SessionError: There is none.
    """
    import ray

    if ray.is_initialized():
        yield
        return
    _knock(os.environ.get("RAY_ADDRESS", ""))
    with without_ray(sys.stdout):
        try:
            ray.init(address="auto", log_to_driver=False, logging_level="error")
        except (ConnectionError, RuntimeError, ValueError) as error:
            raise _no_cluster(one_line(error)) from error
        try:
            yield
        finally:
            # On its way out it prints what its threads had still held back.
            with contextlib.redirect_stdout(io.StringIO()):
                ray.shutdown()


def _knock(address: str) -> None:
    """Raise where nobody listens there: Ray itself would try for minutes."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or "/" in address:
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), _KNOCK_S).close()
    except (OSError, OverflowError) as error:
        raise _no_cluster(f"RAY_ADDRESS {address}: {error}") from error


def _no_cluster(why: str) -> SessionError:
    return SessionError(
        "Ray",
        f"no cluster can be reached ({why})",
        "a cluster that runs",
        "Start one (ray start --head) or set RAY_ADDRESS",
    )


def nodes_for(base_urls: Sequence[str]) -> list[dict[str, Any]]:
    """Return the nodes that have a CPU to give, the same ones in the same order.

    Args:
        base_urls: The servers that they are to reach.

    Raises:
        SessionError: There is none.
        RecipeError: An address means another machine on each node.
    """
    import ray

    alive = [n for n in ray.nodes() if n["Alive"] and n["Resources"].get("CPU")]
    if not alive:
        raise SessionError("Ray", "no node has a CPU", "one at least")
    here = ray.util.get_node_ip_address()
    elsewhere = sorted({str(n["NodeManagerAddress"]) for n in alive} - {here})
    for url in base_urls if elsewhere else ():
        host = parse_address(url).host
        if host in _OWN or host.startswith("127."):
            raise RecipeError(
                f"base URL {url!r}",
                f"each node's own, and Ray has nodes at {', '.join(elsewhere)}",
                "an address that all nodes reach the server at",
                f"Let it listen at {here} or the like: host in a recipe,"
                " --base-url of bench",
            )
    return sorted(alive, key=lambda n: (n["NodeManagerAddress"], n["NodeID"]))


def check_cluster(base_urls: Sequence[str]) -> None:
    """Raise where no load can come from the cluster, before anything was booted.

    Raises:
        SessionError: There is no cluster, or no node with a CPU.
        RecipeError: A server's address means another machine on each node.
    """
    with connected():
        nodes_for(base_urls)


def one_line(error: BaseException) -> str:
    """Return the first sentence that says something, with the error's kind."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    said = lines[0].partition(". ")[0].rstrip(".") if lines else "no more is known"
    if len(said) > _MOST_SAID:
        said = said[:_MOST_SAID].rpartition(" ")[0] + " ..."
    return f"{type(error).__name__}: {said}"
