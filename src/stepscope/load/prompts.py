"""Prompts and whole requests, drawn and built before the clock starts."""

import os
import random

import msgspec

from stepscope.errors import RecipeError
from stepscope.load.lane import Prompt
from stepscope.load.messages import TextPlan
from stepscope.load.spec import LoadSpec, parse_address
from stepscope.load.words import WORDS

#: Token ids below this are control and byte tokens in the vocabularies in use.
_FIRST_ID = 1_000
#: Where the vocabulary is unknown: every served model of a public family has this
#: many ordinary tokens, and none of them has a control token below.
_SAFE_VOCAB = 4_096


def prompts_of(
    spec: LoadSpec, worker: int, n_workers: int, text: TextPlan | None
) -> list[Prompt]:
    """Draw the prompts of one worker and build their requests.

    A prompt depends on the cell's seed and its index alone, so that the number of
    workers does not change the load. Prompt ``i`` goes to the worker of slot
    ``i mod slots``.

    Args:
        spec: The cell.
        worker: Number of the worker.
        n_workers: Workers in all.
        text: How text prompts reach their length; None: one word a token.

    Raises:
        RecipeError: The API key is not in the environment.
    """
    head = request_head(spec)
    n_slots = spec.n_slots
    return [
        Prompt(index, _request(head, spec, draw_prompt(spec, index, text)))
        for index in range(spec.n_prompts)
        if (index % n_slots) % n_workers == worker
    ]


def request_bytes(spec: LoadSpec, index: int, text: TextPlan | None) -> bytes:
    """Return one whole request, as ``prompts_of`` builds it."""
    return _request(request_head(spec), spec, draw_prompt(spec, index, text))


def draw_prompt(spec: LoadSpec, index: int, text: TextPlan | None) -> list[int] | str:
    """Return a prompt: token ids where the spec wants them, else text."""
    # A string is hashed whole, so that near seeds and indices share nothing.
    rng = random.Random(f"{spec.seed}/{index}")  # noqa: S311  # nothing secret
    if uses_token_ids(spec):
        high = spec.vocab_size or _SAFE_VOCAB
        low = min(_FIRST_ID, high // 4)
        width = high - low
        return [low + int(width * rng.random()) for _ in range(spec.input_tokens)]
    plan = text or TextPlan(words=WORDS, n_words=spec.input_tokens, exact=False)
    return " ".join(rng.choices(plan.words, k=plan.n_words))


def uses_token_ids(spec: LoadSpec) -> bool:
    """Return whether prompts are sent as token ids; chat has no way to."""
    return spec.token_ids and spec.endpoint == "/v1/completions"


def request_head(spec: LoadSpec) -> bytes:
    """Return the head of a request up to the value of Content-Length.

    Raises:
        RecipeError: The API key is not in the environment, or a header is not one.
    """
    address = parse_address(spec.base_url)
    fields = {
        "Host": address.authority,
        "User-Agent": "stepscope",
        "Accept": "text/event-stream",
        "Accept-Encoding": "identity",
        "Content-Type": "application/json",
    }
    if spec.api_key_env is not None:
        key = os.environ.get(spec.api_key_env)
        if not key:
            raise RecipeError(
                "api_key_env",
                f"{spec.api_key_env} is not set",
                "the server's key",
                f"export {spec.api_key_env}=...",
            )
        fields["Authorization"] = f"Bearer {key}"
    fields |= spec.headers
    for name, value in fields.items():
        if any(c in name + value for c in "\r\n\0"):
            raise RecipeError(f"header {name!r}", "a control character", "one line")
    lines = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    path = address.prefix + spec.endpoint
    return f"POST {path} HTTP/1.1\r\n{lines}Content-Length: ".encode()


def _request(head: bytes, spec: LoadSpec, prompt: list[int] | str) -> bytes:
    body = msgspec.json.encode(request_body(spec, prompt))
    return head + f"{len(body)}\r\n\r\n".encode() + body


def request_body(spec: LoadSpec, prompt: list[int] | str) -> dict[str, object]:
    """Return a request's body. ``extra_body`` has the last word."""
    body: dict[str, object] = {"model": spec.model}
    if spec.endpoint == "/v1/completions":
        body["prompt"] = prompt
    else:
        body["messages"] = [{"role": "user", "content": prompt}]
    body["max_tokens"] = spec.output_tokens
    body["stream"] = True
    body["stream_options"] = {"include_usage": True}
    if spec.temperature is not None:
        body["temperature"] = spec.temperature
    if spec.ignore_eos:
        body["ignore_eos"] = True
    return body | spec.extra_body
