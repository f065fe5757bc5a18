"""The JSON of ``vllm bench serve``, and of what writes the same form, to requests.

Its lists hold every request in the order of the prompts, failed ones too; the figures
``mean_ttft_ms`` and so on are over those that succeeded. Its clock is the client's
monotonic one, in seconds. A failed request has output length 0 and, mostly, a text in
``errors``; when it ended is not written down.
"""

import math
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np

from stepscope.run.requests import Request
from stepscope.run.run import Summary
from stepscope.units import NS_PER_S

_LISTS = ("start_times", "ttfts", "itls", "output_lens", "input_lens")
_NEVER_NEGATIVE = frozenset(
    {"duration", "completed", "failed", "num_prompts", "total_input_tokens",
     "total_output_tokens"}
)  # fmt: skip
#: What files call a metric -> our name. SGLang's client writes the same form.
_METRICS: dict[str, str] = {
    "ttft": "ttft_ms",
    "tpot": "tpot_ms",
    "itl": "itl_ms",
    "e2el": "e2el_ms",
    "e2e_latency": "e2el_ms",
}
#: What the client writes -> our failure kind; the first text found decides.
_FAILURES: tuple[tuple[str, str], ...] = (
    ("Too Many Requests", "rate-limited"),
    ("Service Unavailable", "rate-limited"),
    ("ConnectionRefusedError", "refused"),
    ("Connect call failed", "refused"),
    ("ClientConnectorError", "connect"),
    ("Connection reset", "reset"),
    ("ServerDisconnected", "closed"),
    ("TransferEncodingError", "closed"),
    ("ClientPayloadError", "closed"),
    ("TimeoutError", "stall"),
    ("Never received a valid chunk", "empty"),
    ("JSONDecodeError", "malformed"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchResult:
    """One result file.

    Attributes:
        requests: On the client's monotonic clock; empty without details.
        summary: The file's own figures.
        concurrency: ``--max-concurrency``; None for an open loop.
        n_prompts: Requests asked for.
        request_rate: Requests per second; None when unlimited.
        model: As the client named it.
        backend: The client's ``--backend``.
        failures_known: False when the file does not say how many requests failed;
            ``summary.n_failed`` is then 0 and means nothing.
    """

    requests: tuple[Request, ...]
    summary: Summary
    concurrency: int | None
    n_prompts: int
    request_rate: float | None
    model: str | None
    backend: str | None
    failures_known: bool


def parse_bench(data: bytes) -> BenchResult:
    """Read one result file.

    Raises:
        ValueError: It is no JSON, or not this form; the text names the key.
    """
    try:
        raw = msgspec.json.decode(data)
    except msgspec.DecodeError as error:
        raise ValueError(f"is no JSON: {error}") from error
    if not isinstance(raw, dict):
        raise ValueError(f"holds a JSON {type(raw).__name__}, not one object")  # noqa: TRY004
    return read_result(raw)


def read_result(raw: dict[str, Any]) -> BenchResult:
    """Read one result that is already decoded; see ``parse_bench``."""
    for key in ("duration", "completed"):
        if not isinstance(raw.get(key), (int, float)):
            raise ValueError(f"key {key}: {_seen(raw.get(key))}; a number is needed")  # noqa: TRY004
    _refuse_impossible(raw)
    requests = _requests(raw)
    return BenchResult(
        requests=requests,
        summary=_summary(raw),
        concurrency=_whole(raw.get("max_concurrency")),
        n_prompts=_whole(raw.get("num_prompts"))
        or len(requests)
        or int(raw["completed"]),
        request_rate=_rate(raw.get("request_rate")),
        model=_text(raw.get("model_id")),
        backend=_text(raw.get("backend")),
        failures_known=_failed(raw) is not None,
    )


def _refuse_impossible(raw: dict[str, Any]) -> None:
    """Raise where a count or a time is negative, or there are slots and none."""
    for key, value in raw.items():
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        mean = key.endswith("_ms") and key.startswith(("mean_", "median_"))
        if number and value < 0 and (key in _NEVER_NEGATIVE or mean):
            raise ValueError(f"key {key}: {_seen(value)}; 0 or more is needed")
    slots = _whole(raw.get("max_concurrency"))
    if slots is not None and slots < 1:
        raise ValueError(f"key max_concurrency: {_seen(slots)}; 1 or more is needed")


def _seen(value: object) -> str:
    return "is missing" if value is None else f"is {str(value)[:40]!r}"


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _rate(value: object) -> float | None:
    """Return the rate; the client writes ``inf`` as a text."""
    if isinstance(value, (int, float)) and math.isfinite(value) and value > 0:
        return float(value)
    return None


def _summary(raw: dict[str, Any]) -> Summary:
    stats: dict[str, dict[str, float]] = {}
    for metric, name in _METRICS.items():
        tail = f"_{metric}_ms"
        for key, value in raw.items():
            if key.endswith(tail) and isinstance(value, (int, float)):
                stats.setdefault(name, {})[key.removesuffix(tail)] = value
    return Summary(
        n_completed=int(raw["completed"]),
        n_failed=_failed(raw) or 0,
        duration_s=float(raw["duration"]),
        input_tokens=_whole(raw.get("total_input_tokens")),
        output_tokens=_whole(raw.get("total_output_tokens")),
        stats=stats,
    )


def _failed(raw: dict[str, Any]) -> int | None:
    """Return the failures, which older files count only indirectly or not at all."""
    failed = _whole(raw.get("failed"))
    if failed is not None:
        return failed
    errors = raw.get("errors")
    if isinstance(errors, list):
        return sum(bool(error) for error in errors)
    asked = _whole(raw.get("num_prompts"))
    return None if asked is None else max(0, asked - int(raw["completed"]))


def _requests(raw: dict[str, Any]) -> tuple[Request, ...]:
    """Return the requests in order of sending; none without ``--save-detailed``."""
    # Old files have no start_times: then nothing says when a request was sent.
    if any(raw.get(key) is None for key in ("ttfts", "itls", "start_times")):
        return ()
    lists: dict[str, list[Any]] = {key: _list(raw, key) for key in _LISTS}
    n = _length(lists)
    errors = raw.get("errors")
    if not isinstance(errors, list) or len(errors) != n:
        errors = [""] * n
    found = []
    for index in range(n):
        row = {key: values[index] for key, values in lists.items()}
        try:
            found.append(_request(index, row, str(errors[index] or "")))
        except (TypeError, ValueError, OverflowError) as error:
            raise ValueError(f"request {index} can not be read: {error}") from error
    n_ok = sum(request.ok for request in found)
    if n_ok != int(raw["completed"]):
        raise ValueError(
            f"key completed: is {int(raw['completed'])}, but {n_ok} of its {n}"
            " requests have output"
        )
    return tuple(sorted(found, key=lambda request: request.sent_at_ns))


def _list(raw: dict[str, Any], key: str) -> list[Any]:
    values = raw.get(key)
    if not isinstance(values, list):
        raise ValueError(f"key {key}: {_seen(values)}; a list is needed")  # noqa: TRY004
    return values


def _length(lists: dict[str, list[Any]]) -> int:
    lengths = {key: len(values) for key, values in lists.items()}
    if len(set(lengths.values())) != 1:
        raise ValueError(
            "its lists differ in length: "
            + ", ".join(f"{key} {n}" for key, n in lengths.items())
        )
    return next(iter(lengths.values()))


def _request(index: int, row: dict[str, Any], error: str) -> Request:
    sent = round(float(row["start_times"]) * NS_PER_S)
    ttft = float(row["ttfts"] or 0.0)
    gaps = np.asarray(row["itls"] or (), dtype=np.float64)
    output_tokens = int(row["output_lens"] or 0)
    failed = bool(error) or output_tokens == 0
    offsets = np.empty(0, dtype="<i8")
    if ttft > 0:
        seconds = ttft + np.concatenate(([0.0], np.cumsum(gaps)))
        if not np.isfinite(seconds).all():
            raise ValueError("its ttft or itls hold something that is no number")
        offsets = np.rint(seconds * NS_PER_S).astype("<i8")
    first = sent + int(offsets[0]) if len(offsets) else None
    last = sent + int(offsets[-1]) if len(offsets) else None
    return Request(
        index=index,
        sent_at_ns=sent,
        ended_at_ns=sent if last is None else last,
        first_content_at_ns=first,
        last_content_at_ns=last,
        prompt_tokens=_whole(row["input_lens"]),
        output_tokens=None if failed else output_tokens,
        n_chunks=len(offsets),
        chunk_offsets_ns=offsets.tobytes(),
        failure=_failure(error) if failed else None,
        failure_detail=_last_line(error) if failed else None,
    )


def _failure(error: str) -> str:
    """Return our kind of failure; without a text the client saw a bad status."""
    if not error:
        return "http-status"
    for text, kind in _FAILURES:
        if text in error:
            return kind
    # A traceback is an exception of the client; anything else is a reason phrase.
    return "closed" if "Traceback" in error else "http-status"


def _last_line(error: str) -> str | None:
    lines = error.strip().splitlines()
    return lines[-1].strip()[:300] if lines else None
