"""Prompts, drawn before the clock starts, as the exact bytes of their requests."""

import os
import random

import msgspec

from stepscope.errors import RecipeError
from stepscope.load.spec import LoadSpec, address

#: Ids below this are in every vocabulary in use; the first are often control tokens.
_FIRST_ID = 100
_SMALL_VOCABULARY = 1000

_WORDS = [
    "time",
    "year",
    "people",
    "way",
    "day",
    "man",
    "thing",
    "woman",
    "life",
    "child",
    "world",
    "school",
    "state",
    "family",
    "student",
    "group",
    "country",
    "problem",
    "hand",
    "part",
    "place",
    "case",
    "week",
    "company",
    "system",
    "program",
    "question",
    "work",
    "government",
    "number",
    "night",
    "point",
    "home",
    "water",
    "room",
    "mother",
    "area",
    "money",
    "story",
    "fact",
    "month",
    "lot",
    "right",
    "study",
    "book",
    "eye",
    "job",
    "word",
    "business",
    "issue",
    "side",
    "kind",
    "head",
    "house",
    "service",
    "friend",
    "father",
    "power",
    "hour",
    "game",
    "line",
    "end",
    "member",
    "law",
    "car",
    "city",
    "name",
]


def requests(spec: LoadSpec, indices: range) -> list[bytes]:
    """Return the whole HTTP request of each prompt index.

    The prompt of an index depends on the seed and the index alone, so any split over
    workers draws the same prompts.
    """
    head = _head(spec)
    return [_framed(head, _body(spec, index)) for index in indices]


def get_request(spec: LoadSpec, path: str) -> bytes:
    """Return a GET request on the spec's server."""
    where = address(spec.base_url)
    return f"GET {path} HTTP/1.1\r\nHost: {where.authority}\r\n\r\n".encode()


def _head(spec: LoadSpec) -> bytes:
    where = address(spec.base_url)
    lines = [
        f"POST {where.prefix}{spec.endpoint} HTTP/1.1",
        f"Host: {where.authority}",
        "Content-Type: application/json",
        "Accept: text/event-stream",
    ]
    if spec.api_key_env is not None:
        key = os.environ.get(spec.api_key_env)
        if not key:
            found = f"{spec.api_key_env} is not set"
            raise RecipeError("api_key_env", found, "expected the key in it")
        lines.append(f"Authorization: Bearer {key}")
    return "\r\n".join(lines).encode()


def _framed(head: bytes, body: bytes) -> bytes:
    return head + b"\r\nContent-Length: %d\r\n\r\n" % len(body) + body


def _body(spec: LoadSpec, index: int) -> bytes:
    # A string seed is hashed with SHA-512: neighbours share nothing.
    draw = random.Random(f"{spec.seed}/{index}")  # noqa: S311  # prompts are no secret
    body: dict[str, object] = {
        "model": spec.model,
        "max_tokens": spec.output_tokens,
        "stream": True,
        "stream_options": {"include_usage": True},
        "ignore_eos": spec.ignore_eos,
    }
    if spec.temperature is not None:
        body["temperature"] = spec.temperature
    if spec.endpoint.endswith("/chat/completions"):
        body["messages"] = [{"role": "user", "content": _text(spec, draw)}]
    elif spec.token_ids:
        high = max(spec.vocab_size or _SMALL_VOCABULARY, _FIRST_ID + 2)
        body["prompt"] = [
            draw.randrange(_FIRST_ID, high) for _ in range(spec.input_tokens)
        ]
    else:
        body["prompt"] = _text(spec, draw)
    if not spec.ignore_eos:
        del body["ignore_eos"]
    body.update(spec.extra_body)
    return msgspec.json.encode(body)


def _text(spec: LoadSpec, draw: random.Random) -> str:
    n = max(1, round(spec.input_tokens * spec.words_per_token))
    return " ".join(draw.choice(_WORDS) for _ in range(n))
