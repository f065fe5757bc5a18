"""What the client is asked to do, and what it says when it is done."""

import importlib.util

import msgspec

from stepscope.errors import RecipeError
from stepscope.findings import Finding
from stepscope.load.arrivals import Arrivals
from stepscope.load.wire import parse_address
from stepscope.recipe.records import Dataset
from stepscope.run.client import ClientHealth

#: Where client processes run: on this machine, or on the nodes of a Ray cluster.
WORKERS = ("local", "ray")
ENDPOINTS = ("/v1/completions", "/v1/chat/completions", "/completion", "/generate")


class Source(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where prompts come from.

    Attributes:
        name: ``random``, or a file's form.
        path: The file.
        input_range: Random lengths vary by this share either way, evenly.
        output_range: The same of the answers asked for.
        prefix_tokens: Tokens that all random prompts of the cell begin with, beside
            their own.
        shuffle: Take a file's prompts in an order drawn from the seed.
        repeat: Begin again where a file holds fewer prompts than are asked for.
        block_tokens: Tokens that one hash of a trace stands for.
        time_unit_s: What a trace counts its time in.
        trace_model: Take only the rows of this model; None: all.
    """

    name: Dataset = "random"
    path: str | None = None
    input_range: float = 0.0
    output_range: float = 0.0
    prefix_tokens: int = 0
    shuffle: bool = True
    repeat: bool = True
    block_tokens: int = 512
    time_unit_s: float = 0.001
    trace_model: str | None = None

    def check(self) -> None:
        """Raise for what can not be drawn.

        Raises:
            RecipeError: A range is not below 1, or there is no file.
        """
        for name, value in (
            ("input range", self.input_range), ("output range", self.output_range)
        ):  # fmt: skip
            if not 0 <= value < 1:
                raise RecipeError(name, f"{value}", "a number from 0 to below 1")
        if self.prefix_tokens < 0 or self.block_tokens < 1 or self.time_unit_s <= 0:
            raise RecipeError(
                "dataset",
                f"a prefix of {self.prefix_tokens}, blocks of {self.block_tokens}"
                f" tokens, a unit of {self.time_unit_s:g} s",
                "no negative length and no empty block or unit",
            )
        if self.name != "random" and not self.path:
            raise RecipeError(f"dataset {self.name}", "no file", "its path")


class LoadSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One cell's load: a closed loop of ``concurrency`` slots, or an open one.

    Attributes:
        base_url: ``http://host:port`` or ``https://``, with a path prefix if the server
            has one, or ``unix:///path/of/socket``.
        replicas: Further base URLs of the same; slots are dealt over all in turn.
        insecure: Take any certificate.
        endpoint: ``/v1/completions`` or ``/v1/chat/completions``, llama.cpp's own
            ``/completion`` or SGLang's own ``/generate``.
        model: The name that the server knows it by.
        n_prompts: Requests in all.
        concurrency: Requests kept in flight; in an open loop the most that may be,
            None: any number.
        input_tokens: Length of each prompt; None: the dataset says.
        output_tokens: Tokens asked of each answer; None: the dataset says.
        ignore_eos: Ask the server to go on after an end-of-sequence token.
        temperature: Sent when it is not None.
        seed: Draws the prompts. Give every cell another one, or the server's prefix
            cache answers for its GPU.
        token_ids: Send prompts as token ids, which makes their length exact;
            completions only. False: text.
        vocab_size: Token ids are drawn below it; None: unknown.
        extra_body: Further fields of the request, the last word.
        headers: Further header fields of the request.
        api_key_env: Environment variable that holds the bearer token.
        api_key_file: File that holds it.
        header_timeout_s: From send to the response's header, and the longest time
            between two events.
        stall_timeout_s: The longest silence once the header came.
        total_timeout_s: From send to the end of the answer.
        connect_timeout_s: The longest that opening a connection may take.
        processes: Client processes; None: chosen.
        cpus: CPUs for the client such as ``8-11,15``; None: all allowed ones.
        expected_tokens_per_s: What the server may deliver, to choose the number of
            processes; None: guessed from the concurrency.
        keep_text: Write the answers to ``texts-<worker>.journal`` too.
        arrivals: When requests are due; None: a closed loop.
        source: Where prompts come from.
        workers: Where client processes run: one of ``WORKERS``.
    """

    base_url: str
    endpoint: str = ENDPOINTS[0]
    model: str
    n_prompts: int
    concurrency: int | None
    input_tokens: int | None
    output_tokens: int | None
    ignore_eos: bool = True
    temperature: float | None = None
    seed: int = 0
    token_ids: bool = True
    vocab_size: int | None = None
    extra_body: dict[str, object] = {}
    headers: dict[str, str] = {}
    api_key_env: str | None = None
    api_key_file: str | None = None
    replicas: tuple[str, ...] = ()
    insecure: bool = False
    header_timeout_s: float = 600.0
    stall_timeout_s: float = 120.0
    total_timeout_s: float = 21_600.0
    connect_timeout_s: float = 10.0
    processes: int | None = None
    cpus: str | None = None
    expected_tokens_per_s: float | None = None
    keep_text: bool = False
    arrivals: Arrivals | None = None
    source: Source = Source()
    workers: str = "local"

    def check(self) -> None:
        """Raise for what can not be driven.

        Raises:
            RecipeError: A number is not positive, the endpoint or the URL is unknown.
        """
        for name in (
            "n_prompts",
            "concurrency",
            "input_tokens",
            "output_tokens",
            "header_timeout_s",
            "stall_timeout_s",
            "total_timeout_s",
            "connect_timeout_s",
        ):
            value = getattr(self, name)
            if value is not None and value <= 0:
                raise RecipeError(name, f"{value}", "a number above 0")
        if self.processes is not None and self.processes < 1:
            raise RecipeError("processes", f"{self.processes}", "a number above 0")
        if self.endpoint not in ENDPOINTS:
            raise RecipeError(
                "endpoint", self.endpoint, f"one of {', '.join(ENDPOINTS)}"
            )
        check_workers(self.workers)
        for url in self.base_urls:
            parse_address(url)
        parse_cpus(self.cpus)
        self._check_load()

    def _check_load(self) -> None:
        self.source.check()
        if self.arrivals is not None:
            self.arrivals.check()
        elif self.concurrency is None:
            raise RecipeError(
                "concurrency", "none, and no arrivals", "a number in flight or a rate"
            )
        if self.source.name == "random":
            if self.arrivals is not None and self.arrivals.kind == "recorded":
                raise RecipeError(
                    "recorded arrivals", "random prompts", "a trace that has times"
                )
            for name in ("input_tokens", "output_tokens"):
                if getattr(self, name) is None:
                    raise RecipeError(name, "missing", "a length for random prompts")

    @property
    def base_urls(self) -> tuple[str, ...]:
        """All servers, the first one first."""
        return (self.base_url, *self.replicas)

    @property
    def n_slots(self) -> int:
        """Slots that can ever be in use."""
        return min(self.concurrency or self.n_prompts, self.n_prompts)


class LoadProgress(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True
):
    """How far a cell is, over all workers.

    ``n_done`` are the requests that succeeded; ``n_chunks`` and ``output_tokens``
    are of ended requests, so they move in jumps.
    """

    n_sent: int = 0
    n_done: int = 0
    n_failed: int = 0
    n_chunks: int = 0
    output_tokens: int = 0
    in_flight: int = 0


class LoadResult(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A cell that has been driven; its requests lie in the journals.

    Attributes:
        started_at_ns: The common start of all workers, before the first send.
        ended_at_ns: When the last worker had ended.
        health: How well the client kept up.
        n_ok: Requests that succeeded.
        n_failed: Requests that failed, cancelled ones too.
        lost_workers: Client processes that died; what they had in flight is unknown.
        stopped: True when it was ended by ``stop``.
        findings: ``clock-step``, ``client-worker-lost`` and of several machines
            ``clocks-aligned``; they name no cell.
        prepare_ns: What it took to draw prompts and open connections, before the
            start.
    """

    started_at_ns: int
    ended_at_ns: int
    health: ClientHealth
    n_ok: int
    n_failed: int
    lost_workers: int = 0
    stopped: bool = False
    findings: tuple[Finding, ...] = ()
    prepare_ns: int | None = None


def check_workers(where: str, base_urls: tuple[str, ...] = ()) -> None:
    """Raise when client processes can not run there.

    Args:
        where: One of ``WORKERS``.
        base_urls: The servers that they are to reach; a cluster is asked only where
            they are given.

    Raises:
        RecipeError: It is none of them, what it needs is not installed here, or a
            server's address means another machine there.
        SessionError: The cluster can not be reached or has no room.
    """
    if where not in WORKERS:
        raise RecipeError("load workers", where, f"one of {', '.join(WORKERS)}")
    if where == "ray" and importlib.util.find_spec("ray") is None:
        raise RecipeError(
            "load workers ray",
            "ray is not installed",
            "it here and on every node",
            "pip install 'stepscope[ray]'",
        )
    if where == "ray" and base_urls:
        from stepscope.load.cluster_ray import check_cluster

        check_cluster(base_urls)


def parse_cpus(text: str | None) -> tuple[int, ...]:
    """Return the CPUs of a list such as ``0-3,8``; empty when it is None.

    Raises:
        RecipeError: It is no such list.
    """
    if text is None:
        return ()
    cpus: set[int] = set()
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()):
            raise RecipeError("cpus", repr(text), "a list such as 0-3,8")
        low, high = int(first), int(last) if dash else int(first)
        if high < low:
            raise RecipeError("cpus", repr(text), "a list such as 0-3,8")
        cpus.update(range(low, high + 1))
    return tuple(sorted(cpus))
