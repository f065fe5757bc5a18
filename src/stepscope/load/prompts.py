"""Requests: the head that all of a server's share, and what follows it."""

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from stepscope.errors import RecipeError
from stepscope.load.spec import LoadSpec
from stepscope.load.wire import Server, parse_address

#: Files that hold words; the others hold lengths.
WORDED = frozenset({"sharegpt", "custom", "conversations"})

#: What is asked: token ids, text, or the messages of a conversation so far.
Words = Sequence[int] | str | list[dict[str, str]]


def uses_token_ids(spec: LoadSpec) -> bool:
    """Return whether prompts are sent as token ids; chat has no way to.

    Prompts that a file holds as words go as words.
    """
    words = spec.source.name in WORDED
    return spec.token_ids and not words and spec.endpoint != "/v1/chat/completions"


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
    fields |= authorization(spec.api_key_env, spec.api_key_file)
    fields |= spec.headers
    _check_headers(fields)
    lines = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    path = address.prefix + spec.endpoint
    return f"POST {path} HTTP/1.1\r\n{lines}Content-Length: ".encode()


def server_of(spec: LoadSpec) -> Server:
    """Return whom to ask before the clock starts, with the key and the headers.

    Raises:
        RecipeError: The key is not where it should be, or a header is not one.
    """
    headers = authorization(spec.api_key_env, spec.api_key_file) | spec.headers
    _check_headers(headers)
    return Server(spec.base_url, headers, spec.insecure)


def _check_headers(fields: Mapping[str, str]) -> None:
    for name, value in fields.items():
        if any(c in name + value for c in "\r\n\0"):
            raise RecipeError(f"header {name!r}", "a control character", "one line")
        if not name.isascii() or not name or set(name) & set(' :"(),/;<=>?@[]{}\\'):
            expected = "letters, digits and dashes"
            raise RecipeError(f"header {name!r}", "no name of a header", expected)


def authorization(env: str | None, file: str | None) -> dict[str, str]:
    """Return the header that carries the server's key; empty without one.

    Raises:
        RecipeError: The key is not where it should be. Its value is never shown.
    """
    if env is not None:
        key = os.environ.get(env, "").strip()
        if not key:
            raise RecipeError(
                "api_key_env",
                f"{env} is not set",
                "expected the server's key in it",
                f"Export {env} where stepscope is started",
            )
    elif file is not None:
        try:
            key = Path(file).read_text().strip()
        except (OSError, UnicodeDecodeError) as error:
            why = getattr(error, "strerror", None) or "no text"
            raise RecipeError(f"API key file {file}", why, "the server's key") from (
                error
            )
        if not key:
            raise RecipeError(f"API key file {file}", "empty", "the server's key")
    else:
        return {}
    return {"Authorization": f"Bearer {key}"}


def request_rest(spec: LoadSpec, words: Words, n_out: int | None) -> bytes:
    """Return what follows the head of a request: the length of its body, and that.

    Args:
        spec: The cell.
        words: What is asked.
        n_out: Tokens asked of the answer; None: as the spec says.
    """
    body = msgspec.json.encode(request_body(spec, words, n_out))
    return f"{len(body)}\r\n\r\n".encode() + body


def request_body(
    spec: LoadSpec, words: Words, n_out: int | None = None
) -> dict[str, object]:
    """Return a request's body. ``extra_body`` has the last word."""
    n_tokens = spec.output_tokens if n_out is None else n_out
    return _BODIES[spec.endpoint](spec, words, n_tokens) | spec.extra_body


def _completions(spec: LoadSpec, words: Words, n_out: int | None) -> dict[str, object]:
    return {"model": spec.model, "prompt": _plain(words), **_openai(spec, n_out)}


def _chat(spec: LoadSpec, words: Words, n_out: int | None) -> dict[str, object]:
    said: object = [{"role": "user", "content": words}]
    if isinstance(words, list) and words and isinstance(words[0], dict):
        said = words
    return {"model": spec.model, "messages": said, **_openai(spec, n_out)}


def _openai(spec: LoadSpec, n_out: int | None) -> dict[str, object]:
    return {
        "max_tokens": n_out,
        "stream": True,
        "stream_options": {"include_usage": True},
        **_sampling(spec),
    }


def _llamacpp(spec: LoadSpec, words: Words, n_out: int | None) -> dict[str, object]:
    asked = {"prompt": _plain(words), "n_predict": n_out, "stream": True}
    return asked | _sampling(spec)


def _sglang(spec: LoadSpec, words: Words, n_out: int | None) -> dict[str, object]:
    words = _plain(words)
    sampling = {"max_new_tokens": n_out, **_sampling(spec)}
    name = "text" if isinstance(words, str) else "input_ids"
    return {name: words, "sampling_params": sampling, "stream": True}


def _sampling(spec: LoadSpec) -> dict[str, object]:
    asked: dict[str, object] = {}
    if spec.temperature is not None:
        asked["temperature"] = spec.temperature
    if spec.ignore_eos:
        asked["ignore_eos"] = True
    return asked


_BODIES: dict[str, Callable[[LoadSpec, Words, int | None], dict[str, object]]] = {
    "/v1/completions": _completions,
    "/v1/chat/completions": _chat,
    "/completion": _llamacpp,
    "/generate": _sglang,
}


def _plain(words: Words) -> Sequence[int] | str:
    """Return a prompt for an endpoint that knows no roles."""
    if isinstance(words, str):
        return words
    said = [part["content"] for part in words if isinstance(part, dict)]
    return "\n".join(said) if said else [n for n in words if isinstance(n, int)]
