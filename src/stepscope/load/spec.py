"""What the client is asked to do, and what it says while and after doing it."""

from urllib.parse import urlsplit

import msgspec

from stepscope.errors import RecipeError
from stepscope.run.client import ClientHealth


class LoadSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One cell's load: a closed loop of ``concurrency`` slots.

    Attributes:
        base_url: ``http://host:port``, with an optional path in front of the endpoint.
        endpoint: ``/v1/completions`` or ``/v1/chat/completions``.
        model: As the server calls it.
        n_prompts: Requests in all.
        concurrency: Requests in flight.
        input_tokens: Prompt length.
        output_tokens: Asked of each request.
        seed: Of the prompts; another seed, other prompts.
        token_ids: Send prompts as token ids, whose count is exact.
        vocab_size: Ids are drawn below it; None: below 1,000, which every model has.
        words_per_token: How many words make a token where prompts are text.
        extra_body: Fields added to every request.
        api_key_env: Environment variable that holds the key.
        header_timeout_s: Longest wait for the first byte of an answer.
        stall_timeout_s: Longest silence inside an answer.
        processes: Client processes; None: as many as the concurrency needs.
        cpus: Processors that they may use, such as ``0-3``; None: inherited.
    """

    base_url: str
    endpoint: str
    model: str
    n_prompts: int
    concurrency: int
    input_tokens: int
    output_tokens: int
    ignore_eos: bool = True
    temperature: float | None = None
    seed: int = 0
    token_ids: bool = True
    vocab_size: int | None = None
    words_per_token: float = 1.0
    extra_body: dict[str, str | int | float | bool | None] = {}
    api_key_env: str | None = None
    header_timeout_s: float = 600.0
    stall_timeout_s: float = 120.0
    processes: int | None = None
    cpus: str | None = None


class LoadProgress(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True
):
    """How far the cell is, over all workers."""

    n_sent: int = 0
    n_done: int = 0
    n_failed: int = 0
    n_chunks: int = 0
    in_flight: int = 0


class LoadResult(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a cell ended. The requests themselves are in the journals.

    ``lost_workers``: client processes that died; their unfinished requests are gone.
    ``stopped``: it was told to stop before the last request.
    """

    started_at_ns: int
    ended_at_ns: int
    health: ClientHealth
    n_ok: int
    n_failed: int
    lost_workers: int = 0
    stopped: bool = False


class Address(msgspec.Struct, frozen=True, kw_only=True):
    """A server's address: TCP host and port, and the path before the endpoint."""

    host: str
    port: int
    prefix: str

    @property
    def authority(self) -> str:
        """Value of the Host header."""
        return f"{self.host}:{self.port}"


def address(base_url: str) -> Address:
    """Return where a base URL points.

    Raises:
        RecipeError: It is no plain http address.
    """
    parts = urlsplit(base_url)
    if parts.scheme == "https":
        do = "Point at the server's plain port, or put a local proxy in between"
        raise RecipeError(base_url, "https is not spoken yet", "expected http", do)
    if parts.scheme != "http" or not parts.hostname:
        raise RecipeError(base_url, "not an address", "expected http://host:port")
    try:
        port = parts.port or 80
    except ValueError as error:
        raise RecipeError(base_url, str(error), "expected http://host:port") from error
    return Address(host=parts.hostname, port=port, prefix=parts.path.rstrip("/"))
