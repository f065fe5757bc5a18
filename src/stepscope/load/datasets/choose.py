"""Which entries of a file a cell sends, in which order, with answers of what length."""

import random
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from stepscope.errors import RecipeError
from stepscope.load.datasets.items import Item, Turn
from stepscope.load.datasets.lines import bad
from stepscope.load.datasets.prompts import conversations, custom, sharegpt
from stepscope.load.datasets.traces import burstgpt, timed_trace
from stepscope.load.spec import LoadSpec, Source
from stepscope.recipe.records import Dataset

READERS: dict[Dataset, Callable[[Source], Iterator[Item]]] = {
    "sharegpt": sharegpt,
    "custom": custom,
    "conversations": conversations,
    "mooncake": timed_trace,
    "timed_trace": timed_trace,
    "burstgpt": burstgpt,
}
#: What they hold is a sequence in time: it is never shuffled, nor begun again.
TIMED: frozenset[Dataset] = frozenset({"mooncake", "timed_trace"})
#: ``vllm bench serve`` leaves out of ShareGPT what lies outside of these.
_LEAST_TOKENS, _MOST_PROMPT_TOKENS, _MOST_TOKENS = 4, 1_024, 2_048
_BYTES_PER_TOKEN = 4

#: Counts the tokens of a text.
Count = Callable[[str], int]


def estimated_tokens(text: str) -> int:
    """Return a guess for where no tokenizer can be asked: four bytes a token."""
    return max(1, round(len(text.encode()) / _BYTES_PER_TOKEN))


def n_requests_in(source: Source) -> int:
    """Return how many requests a file holds, after checking every line of it.

    Raises:
        RecipeError: The file is missing or a line is wrong.
    """
    return sum(item.n_requests for item in READERS[source.name](source))


def sha256_of(path: str) -> str:
    """Return the hash of a file, hexadecimal.

    Raises:
        RecipeError: It can not be read.
    """
    import hashlib  # with OpenSSL; most cells send no file

    try:
        with Path(path).open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise RecipeError(
            path, error.strerror or str(error), "expected a file of prompts"
        ) from error


def is_timed(spec: LoadSpec) -> bool:
    """Return whether the file's own order and times are what is sent."""
    recorded = spec.arrivals is not None and spec.arrivals.kind == "recorded"
    return recorded or spec.source.name in TIMED


def chosen(spec: LoadSpec, count: Count) -> list[Item]:
    """Return the entries that make the cell's requests, answers with lengths.

    Args:
        spec: The cell; its source is a file.
        count: Counts tokens, for answers that the file holds as text.

    Raises:
        RecipeError: The file is missing, a line is wrong, or it holds too little.
    """
    source, wanted = spec.source, spec.n_prompts
    everything = list(READERS[source.name](source))
    timed = is_timed(spec)
    if timed and spec.arrivals is not None and spec.arrivals.kind == "recorded":
        _check_times(source, everything)
    rng = random.Random(f"{spec.seed}/order")  # noqa: S311  # nothing secret
    found: list[Item] = []
    n, rounds = 0, 0
    while n < wanted:
        order = list(everything)
        if source.shuffle and not timed:
            rng.shuffle(order)
        before = n
        for item in order:
            measured = _measured(spec, item, count)
            if measured is not None:
                measured = _cut(measured, wanted - n)
                found.append(measured)
                n += measured.n_requests
            if n >= wanted:
                break
        rounds += 1
        if n < wanted and (timed or not source.repeat or n == before):
            raise RecipeError(
                str(source.path),
                f"it holds {n} usable requests",
                f"expected the {wanted} that are asked for",
                "Ask for fewer prompts",
            )
    return found


def _check_times(source: Source, items: list[Item]) -> None:
    if any(item.at_ns is None for item in items):
        raise RecipeError(
            str(source.path),
            f"a {source.name} file records no times",
            "a trace for recorded arrivals",
        )


def _cut(item: Item, most: int) -> Item:
    """Return a conversation with no more turns than are still wanted."""
    if len(item.turns) <= most:
        return item
    return msgspec.structs.replace(item, turns=item.turns[:most])


def _measured(spec: LoadSpec, item: Item, count: Count) -> Item | None:
    """Return an entry whose answers have lengths; None: it is to be left out."""
    if not item.turns:
        if spec.output_tokens is None:
            return item
        return msgspec.structs.replace(item, output_tokens=spec.output_tokens)
    turns = tuple(_with_length(spec, item, turn, count) for turn in item.turns)
    if spec.source.name == "sharegpt" and not _fits(spec, turns[0], count):
        return None
    return msgspec.structs.replace(item, turns=turns)


def _with_length(spec: LoadSpec, item: Item, turn: Turn, count: Count) -> Turn:
    n = spec.output_tokens if spec.output_tokens is not None else turn.output_tokens
    if n is None and turn.answer:
        n = count(turn.answer)
    if n is None:
        bad(
            str(spec.source.path),
            item.line,
            "no length for the answer",
            '"output_tokens", or one length for all',
        )
    return msgspec.structs.replace(turn, output_tokens=n, answer=None)


def _fits(spec: LoadSpec, turn: Turn, count: Count) -> bool:
    n_in, n_out = count(turn.text), turn.output_tokens or 0
    short = n_in < _LEAST_TOKENS or (
        spec.output_tokens is None and n_out < _LEAST_TOKENS
    )
    return not short and n_in <= _MOST_PROMPT_TOKENS and n_in + n_out <= _MOST_TOKENS
