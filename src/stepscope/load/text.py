"""Text prompts of an exact length, where the server lends its tokenizer.

Text is cut at blanks before it is split into tokens, so the tokens of words add up. It
is enough to find the words that are one token each and what the template adds; then a
prompt of any length needs no further question. The sum is checked on whole prompts.
"""

import random
from collections.abc import Callable

from stepscope.load.ask import ask
from stepscope.load.messages import TextPlan
from stepscope.load.spec import LoadSpec
from stepscope.load.words import WORDS

#: Counts the prompt tokens of a text as the endpoint would; None: can not.
Count = Callable[[str], int | None]

_ENOUGH_WORDS = 64
_N_CHECKS = 2


def text_plan(spec: LoadSpec) -> TextPlan:
    """Return how to draw text prompts of ``spec.input_tokens`` tokens.

    ``exact`` is False where the server has no tokenizer to ask, or its counts do not
    add up; then a word is taken for a token and the usage record tells the truth.
    """
    guess = TextPlan(words=WORDS, n_words=spec.input_tokens, exact=False)
    count = _counter(spec)
    return guess if count is None else _fitted(spec, count) or guess


def _fitted(spec: LoadSpec, count: Count) -> TextPlan | None:
    one = count(WORDS[0])
    two = count(f"{WORDS[0]} {WORDS[0]}")
    if one is None or two is None:
        return None
    words = tuple(_single_tokens(list(WORDS), count, one - (two - one)))
    if len(words) < _ENOUGH_WORDS:
        return None
    first = count(words[0])
    if first is None:
        return None
    n_words = spec.input_tokens - (first - 1)
    if n_words < 1:
        return None
    rng = random.Random(spec.seed)  # noqa: S311  # nothing secret
    for _ in range(_N_CHECKS):
        text = " ".join(rng.choices(words, k=n_words))
        if count(text) != spec.input_tokens:
            return None
    return TextPlan(words=words, n_words=n_words, exact=True)


def _single_tokens(words: list[str], count: Count, overhead: int) -> list[str]:
    """Return the words that add one token each, asking for halves at a time."""
    # Led by a word of its own, so that each one stands behind a blank.
    lead = WORDS[0]
    base = count(lead)
    if base is None or base < overhead:
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
        answer = ask(spec.base_url, "/tokenize", asked)
        n = answer.get("count") if isinstance(answer, dict) else None
        return n if isinstance(n, int) else None

    return count


def _llamacpp_counter(spec: LoadSpec, *, chat: bool) -> Count:
    def count(text: str) -> int | None:
        if chat:
            asked = {"messages": [{"role": "user", "content": text}]}
            answer = ask(spec.base_url, "/apply-template", asked)
            text = answer.get("prompt", "") if isinstance(answer, dict) else ""
        question = {"content": text, "add_special": True, "parse_special": True}
        answer = ask(spec.base_url, "/tokenize", question) if text else None
        tokens = answer.get("tokens") if isinstance(answer, dict) else None
        return len(tokens) if isinstance(tokens, list) and tokens else None

    return count
