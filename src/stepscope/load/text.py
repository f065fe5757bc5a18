"""Text prompts of an exact length, where the server lends its tokenizer.

Text is cut at blanks before it is split into tokens, so the tokens of words add up. It
is enough to find the words that are one token each and what the template adds; then a
prompt of any length needs no further question. The sum is checked on whole prompts.
"""

import random
from collections.abc import Callable

import msgspec

from stepscope.load.ask import ask
from stepscope.load.datasets.choose import estimated_tokens
from stepscope.load.messages import TextPlan
from stepscope.load.prompts import server_of
from stepscope.load.spec import LoadSpec
from stepscope.load.words import LETTERS, WORDS

#: Counts the prompt tokens of a text as the endpoint would; None: can not.
Count = Callable[[str], int | None]

_ENOUGH_WORDS = 24
#: Length that a plan is fitted at where a trace brings lengths of its own.
_SOME_TOKENS = 256
_N_CHECKS = 2


def text_plan(spec: LoadSpec) -> TextPlan:
    """Return how to draw text prompts of ``spec.input_tokens`` tokens and a prefix.

    ``exact`` is False where the server has no tokenizer to ask, or its counts do not
    add up; then the words are so many as make that length on average, or one a token
    where nothing is known. The usage record tells what it became.
    """
    n_tokens = (spec.input_tokens or _SOME_TOKENS) + spec.source.prefix_tokens
    count = _counter(spec)
    if count is not None:
        plan = _fitted(n_tokens, spec.seed, count) or _scaled(n_tokens, count)
        if plan is not None:
            return plan
    return TextPlan(words=WORDS, n_words=n_tokens, exact=False, n_tokens=n_tokens)


class Lengths:
    """Counts the tokens of texts with the server's tokenizer, no template around them.

    Attributes:
        guessed: It could not be asked, so that lengths are of four bytes a token.
    """

    def __init__(self, spec: LoadSpec) -> None:
        self._spec = msgspec.structs.replace(spec, endpoint="/v1/completions")
        self._count: Count | None = None
        self.guessed = False

    def __call__(self, text: str) -> int:
        """Return the number of tokens."""
        if self._count is None and not self.guessed:
            self._count = _counter(self._spec)
        n = None if self._count is None else self._count(text)
        if n is None:
            self.guessed = True
            return estimated_tokens(text)
        return n


def _fitted(n_tokens: int, seed: int, count: Count) -> TextPlan | None:
    words = tuple(_single_tokens([*WORDS, *LETTERS], count))
    if len(words) < _ENOUGH_WORDS:
        return None
    few, many = count(" ".join(words[:2])), count(" ".join(words[:3]))
    if few is None or many != few + 1:
        return None
    # The first word stands behind no blank and may be several tokens; it is kept.
    n_words = n_tokens - few + 2
    if n_words < 2:
        return None
    rng = random.Random(seed)  # noqa: S311  # nothing secret
    for _ in range(_N_CHECKS):
        text = " ".join(rng.choices(words, k=n_words))
        if count(text) != n_tokens:
            return None
    return TextPlan(words=words, n_words=n_words, exact=True, n_tokens=n_tokens)


def _scaled(n_tokens: int, count: Count) -> TextPlan | None:
    """Return a plan by the mean number of tokens that a word makes."""
    few, many = count(WORDS[0]), count(" ".join(WORDS))
    if few is None or many is None or many <= few:
        return None
    each = (many - few) / (len(WORDS) - 1)
    n_words = max(1, round((n_tokens - few) / each) + 1)
    return TextPlan(
        words=WORDS,
        n_words=n_words,
        exact=False,
        n_tokens=n_tokens,
        words_per_token=1 / each,
    )


def _single_tokens(words: list[str], count: Count) -> list[str]:
    """Return the words that add one token each, asking for halves at a time."""
    # Led by a word of its own, so that each one stands behind a blank.
    lead = WORDS[0]
    base = count(lead)
    if base is None:
        return []

    def search(part: list[str]) -> list[str]:
        n = count(" ".join([lead, *part]))
        if n is None:
            return []
        if n == base + len(part):
            return part
        if len(part) == 1:
            return []
        half = len(part) // 2
        return search(part[:half]) + search(part[half:])

    return search(words)


def _counter(spec: LoadSpec) -> Count | None:
    """Return how to ask this server; None when it has no tokenizer to ask."""
    chat = spec.endpoint == "/v1/chat/completions"
    for counter in (_vllm_counter(spec, chat=chat), _llamacpp_counter(spec, chat=chat)):
        if counter("time") is not None:
            return counter
    return None


def _vllm_counter(spec: LoadSpec, *, chat: bool) -> Count:
    def count(text: str) -> int | None:
        asked: dict[str, object] = {"model": spec.model}
        if chat:
            asked["messages"] = [{"role": "user", "content": text}]
        else:
            asked["prompt"] = text
        answer = ask(server_of(spec), "/tokenize", asked)
        n = answer.get("count") if isinstance(answer, dict) else None
        return n if isinstance(n, int) else None

    return count


def _llamacpp_counter(spec: LoadSpec, *, chat: bool) -> Count:
    def count(text: str) -> int | None:
        if chat:
            asked = {"messages": [{"role": "user", "content": text}]}
            answer = ask(server_of(spec), "/apply-template", asked)
            text = answer.get("prompt", "") if isinstance(answer, dict) else ""
        question = {"content": text, "add_special": True, "parse_special": True}
        answer = ask(server_of(spec), "/tokenize", question) if text else None
        tokens = answer.get("tokens") if isinstance(answer, dict) else None
        return len(tokens) if isinstance(tokens, list) and tokens else None

    return count
