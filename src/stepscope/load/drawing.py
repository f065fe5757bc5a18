"""Drawing prompts: what a seed and an index make, and the stock of one worker."""

import math
import random
from array import array
from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING

import msgspec

from stepscope.load.arrivals import schedule
from stepscope.load.conversation import Talk
from stepscope.load.datasets.choose import chosen, estimated_tokens
from stepscope.load.datasets.handover import handed_over
from stepscope.load.datasets.items import Item
from stepscope.load.messages import Job, TextPlan
from stepscope.load.prompts import Words, request_head, request_rest, uses_token_ids
from stepscope.load.spec import LoadSpec
from stepscope.load.stock import Prompt, Stock
from stepscope.load.words import WORDS

if TYPE_CHECKING:
    from stepscope.load.arrivals import Times

#: Token ids below this are control and byte tokens in the vocabularies in use.
_FIRST_ID = 1_000
#: Where the vocabulary is unknown: every served model of a public family has this
#: many ordinary tokens, and none of them has a control token below.
_SAFE_VOCAB = 4_096
#: Blocks of a trace's prompts that are kept for the prompts that share them.
_BLOCKS_KEPT = 4_096


def stock_of(job: Job) -> Stock:
    """Draw the prompts of one worker and build their requests.

    A prompt depends on the cell's seed and its index alone, so that the number of
    workers does not change the load. Entry ``i`` goes to the worker of slot ``i mod
    slots``, and its time is that of the one schedule of the whole cell.
    """
    spec = job.spec
    draw = Drawing(spec, job.text)
    stock = Stock(job.journal_dir)
    if job.items_path is None:
        due = _due(spec, spec.n_prompts, None)
        for i in _own(job, range(spec.n_prompts)):
            stock.add(draw.random_prompt(i, _at(due, i)))
        return stock
    starts, recorded = _places(job.items_path)
    due = _due(spec, len(starts), recorded)
    own = set(_own(job, range(len(starts))))
    for i, item in enumerate(handed_over(job.items_path)):
        if i in own:
            stock.add(draw.prompt_of(item, i, starts[i], _at(due, i)))
    return stock


def first_request(spec: LoadSpec, text: TextPlan | None) -> bytes:
    """Return one whole request of the cell, to see whether it is understood.

    Raises:
        RecipeError: The API key is not in the environment, or the file is wrong.
    """
    head, draw = request_head(spec), Drawing(spec, text)
    if spec.source.name == "random":
        return head + draw.random_prompt(0, None).rest
    one = msgspec.structs.replace(spec, n_prompts=1)
    return head + draw.prompt_of(chosen(one, estimated_tokens)[0], 0, 0, None).rest


def _own(job: Job, entries: range) -> Iterator[int]:
    n_slots = job.spec.n_slots
    for i in entries:
        if (i % n_slots) % job.n_workers == job.worker:
            yield i


def _places(path: str) -> tuple[list[int], list[int]]:
    """Return the index of each entry's first request, and when it was recorded."""
    starts, times, n = [], [], 0
    for item in handed_over(path):
        starts.append(n)
        times.append(item.at_ns or 0)
        n += item.n_requests
    return starts, times


def _due(spec: LoadSpec, n: int, recorded: list[int] | None) -> "Times | None":
    if spec.arrivals is None:
        return None
    return schedule(spec.arrivals, n, spec.seed, recorded)


def _at(due: "Times | None", i: int) -> int | None:
    return None if due is None else int(due[i])


class Drawing:
    """Draws the prompts of a cell.

    Args:
        spec: The cell.
        text: How text prompts reach their length; None: one word a token.
    """

    def __init__(self, spec: LoadSpec, text: TextPlan | None) -> None:
        self._spec = spec
        self._ids = uses_token_ids(spec)
        length = spec.input_tokens or 1
        self._text = text or TextPlan(words=WORDS, n_words=length, exact=False)
        self._base = length if self._text.n_tokens is None else self._text.n_tokens
        high = spec.vocab_size or _SAFE_VOCAB
        self._low = min(_FIRST_ID, high // 4)
        self._width = high - self._low
        self._block = lru_cache(_BLOCKS_KEPT)(self._drawn_block)
        self._prefix = lru_cache(1)(self._drawn_prefix)

    def random_prompt(self, index: int, due_ns: int | None) -> Prompt:
        """Return a random prompt."""
        words, n_out = self.random_words(index)
        rest = request_rest(self._spec, words, n_out)
        return Prompt(index, rest, output_tokens=n_out, due_ns=due_ns)

    def random_words(self, index: int) -> tuple[Words, int]:
        """Return a random prompt and the length of the answer.

        Source: lengths are even over floor(L (1 - r)) to ceil(L (1 + r)), as ``vllm
            bench serve --random-range-ratio`` draws them.
        """
        spec, source = self._spec, self._spec.source
        # A string is hashed whole, so that near seeds and indices share nothing.
        rng = random.Random(f"{spec.seed}/{index}")  # noqa: S311  # nothing secret
        n_in = max(_ranged(rng, spec.input_tokens or 1, source.input_range), 1)
        n_out = max(_ranged(rng, spec.output_tokens or 1, source.output_range), 1)
        if self._ids:
            return (self._prefix() + self._drawn_ids(rng, n_in)).tolist(), n_out
        n_words = self._n_words(n_in + source.prefix_tokens)
        return self._with_prefix(rng, n_words), n_out

    def prompt_of(self, item: Item, i: int, index: int, due_ns: int | None) -> Prompt:
        """Return the request of an entry, of a conversation its first.

        Args:
            item: The entry.
            i: Its number in the cell.
            index: That of its first request.
            due_ns: When it is due; None in a closed loop.
        """
        spec = self._spec
        if spec.source.name == "conversations":
            return Talk(i, index, item.turns, self._of_messages).opening(due_ns)
        if item.turns:
            words: Words = item.turns[0].text
            n_out = item.turns[0].output_tokens
        else:
            words, n_out = self._trace_words(item, index), item.output_tokens
        rest = request_rest(spec, words, n_out)
        return Prompt(index, rest, output_tokens=n_out, due_ns=due_ns)

    def _of_messages(self, said: list[dict[str, str]], n_out: int | None) -> bytes:
        return request_rest(self._spec, said, n_out)

    def _trace_words(self, item: Item, index: int) -> Words:
        """Return a prompt of the length of a trace's; equal hashes, equal tokens."""
        n_left = item.input_tokens or 1
        size = self._spec.source.block_tokens
        if not self._ids:
            return self._trace_text(item, index)
        ids: array[int] = array("i")
        for name in item.blocks:
            if n_left <= 0:
                break
            ids += self._block(name)[: min(size, n_left)]
            n_left -= size
        if n_left > 0:
            rng = random.Random(f"{self._spec.seed}/{index}")  # noqa: S311
            ids += self._drawn_ids(rng, n_left)
        return ids.tolist()

    def _trace_text(self, item: Item, index: int) -> str:
        """Return the same as words: a block is as many words as make its tokens."""
        size, n_left = self._spec.source.block_tokens, item.input_tokens or 1
        n_words = self._n_words(n_left)
        words: list[str] = []
        each = max(1, round(size * self._text.words_per_token))
        for name in item.blocks:
            if len(words) >= n_words:
                break
            rng = random.Random(f"{self._spec.seed}/block/{name}")  # noqa: S311
            words += rng.choices(self._text.words, k=each)
        rng = random.Random(f"{self._spec.seed}/{index}")  # noqa: S311
        words += rng.choices(self._text.words, k=max(n_words - len(words), 0))
        return " ".join(words[:n_words])

    def _n_words(self, n_tokens: int) -> int:
        more = (n_tokens - self._base) * self._text.words_per_token
        return max(1, round(self._text.n_words + more))

    def _with_prefix(self, rng: random.Random, n_words: int) -> str:
        shared = self._spec.source.prefix_tokens * self._text.words_per_token
        common = random.Random(f"{self._spec.seed}/prefix")  # noqa: S311
        words = common.choices(self._text.words, k=min(round(shared), n_words))
        return " ".join(
            [*words, *rng.choices(self._text.words, k=n_words - len(words))]
        )

    def _drawn_ids(self, rng: random.Random, n: int) -> "array[int]":
        low, width, draw = self._low, self._width, rng.random
        return array("i", [low + int(width * draw()) for _ in range(n)])

    def _drawn_block(self, name: int) -> "array[int]":
        rng = random.Random(f"{self._spec.seed}/block/{name}")  # noqa: S311
        return self._drawn_ids(rng, self._spec.source.block_tokens)

    def _drawn_prefix(self) -> "array[int]":
        rng = random.Random(f"{self._spec.seed}/prefix")  # noqa: S311
        return self._drawn_ids(rng, self._spec.source.prefix_tokens)


def _ranged(rng: random.Random, length: int, share: float) -> int:
    if not share:
        return length
    return rng.randint(
        math.floor(length * (1 - share)), math.ceil(length * (1 + share))
    )
