"""The flags of ``stepscope bench``, turned into records."""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from stepscope.cli.bench_load import fitting, lengths, read_arrivals, read_source
from stepscope.errors import RecipeError, SessionError
from stepscope.load.ask import served_models
from stepscope.load.bench_result import METRICS
from stepscope.load.spec import LoadSpec

#: Backend, as vLLM names it, to endpoint.
BACKENDS = {
    "openai": "/v1/completions",
    "vllm": "/v1/completions",
    "openai-chat": "/v1/chat/completions",
}
#: Warm-up requests before an open loop that has no cap.
_OPEN_WARM_UPS = 16
_GOODPUT = ("ttft", "tpot", "e2el")


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What the flags say beyond the load itself."""

    backend: str
    model: str
    tokenizer: str | None
    label: str | None
    metadata: dict[str, str]
    metrics: tuple[str, ...]
    percentiles: tuple[float, ...]
    goodput_ms: dict[str, float]
    n_warmups: int
    max_concurrency: int | None
    detailed: bool
    burstiness: float = 1.0


def _pairs(name: str, words: Sequence[str], by: str) -> dict[str, str]:
    pairs = {}
    for word in words:
        key, found, value = word.partition(by)
        if not found or not key.strip():
            raise RecipeError(f"--{name}", repr(word), f"NAME{by}VALUE")
        pairs[key.strip()] = value.strip()
    return pairs


def _number(name: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise RecipeError(f"--{name}", repr(text), "a number") from None
    if not 0 <= value < float("inf"):
        raise RecipeError(f"--{name}", repr(text), "a number not below 0")
    return value


def _metrics(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    for name in names:
        if name not in METRICS:
            raise RecipeError("--percentile-metrics", name, f"of {', '.join(METRICS)}")
    return names


def _percentiles(text: str) -> tuple[float, ...]:
    values = tuple(_number("metric-percentiles", part) for part in text.split(","))
    for value in values:
        if value > 100:
            raise RecipeError("--metric-percentiles", f"{value:g}", "at most 100")
    return values


def _goodput(words: Sequence[str]) -> dict[str, float]:
    limits = {}
    for name, text in _pairs("goodput", words, ":").items():
        if name not in _GOODPUT:
            raise RecipeError("--goodput", name, f"of {', '.join(_GOODPUT)}")
        limits[name] = _number("goodput", text)
    return limits


def _extra_body(text: str | None) -> dict[str, object]:
    if text is None:
        return {}
    try:
        return msgspec.json.decode(text, type=dict[str, object])
    except msgspec.DecodeError as error:
        raise RecipeError("--extra-body", str(error), "a JSON object") from error


def _model(base_url: str, model: str | None) -> str:
    """Return the model asked for, or the first one that the server lists."""
    if model is not None:
        return model
    for listed in served_models(base_url):
        if isinstance(listed.get("id"), str):
            return str(listed["id"])
    raise SessionError(
        base_url,
        "/v1/models lists no model",
        "a server with one",
        "Check the address, or name the model with --model",
    )


def read_flags(flags: dict[str, Any]) -> tuple[Asked, LoadSpec]:
    """Turn the flags into what is asked and the load.

    Raises:
        RecipeError: A flag's value is wrong.
        SessionError: No model was named and the server lists none.
    """
    arrivals, source = read_arrivals(flags), read_source(flags)
    for flag in ("num_prompts", "max_concurrency"):
        if flags[flag] is not None and flags[flag] < 1:
            name = flag.replace("_", "-")
            raise RecipeError(f"--{name}", f"{flags[flag]}", "a number above 0")
    base_url = flags["base_url"] or f"http://{flags['host']}:{flags['port']}"
    seed = flags["seed"] if flags["seed"] is not None else secrets.randbelow(1 << 31)
    n_prompts = fitting(flags["num_prompts"], source, arrivals, asked=True)
    concurrency = flags["max_concurrency"]
    if arrivals is None:
        concurrency = concurrency or n_prompts
    input_tokens, output_tokens = lengths(flags)
    goodput_ms = _goodput(flags["goodput"])
    metrics = _metrics(flags["percentile_metrics"])
    percentiles = _percentiles(flags["metric_percentiles"])
    metadata = _pairs("metadata", flags["metadata"], "=")
    headers = _pairs("header", flags["header"], "=")
    extra_body = _extra_body(flags["extra_body"])
    model = _model(base_url, flags["model"])
    n_warmups = flags["num_warmups"]
    if n_warmups is None:
        n_warmups = min(concurrency or _OPEN_WARM_UPS, n_prompts)
    asked = Asked(
        backend=flags["backend"],
        model=model,
        tokenizer=flags["tokenizer"],
        label=flags["label"],
        metadata=metadata,
        metrics=metrics,
        percentiles=percentiles,
        goodput_ms=goodput_ms,
        n_warmups=n_warmups,
        max_concurrency=flags["max_concurrency"],
        detailed=flags["save_detailed"],
        burstiness=flags["burstiness"],
    )
    spec = LoadSpec(
        base_url=base_url,
        endpoint=flags["endpoint"] or BACKENDS[flags["backend"]],
        model=flags["served_model_name"] or model,
        n_prompts=n_prompts,
        concurrency=concurrency,
        input_tokens=input_tokens,
        output_tokens=output_tokens,
        arrivals=arrivals,
        source=source,
        ignore_eos=flags["ignore_eos"],
        temperature=flags["temperature"],
        seed=seed,
        vocab_size=flags["vocab_size"],
        extra_body=extra_body,
        headers=headers,
        header_timeout_s=flags["header_timeout"],
        stall_timeout_s=flags["stall_timeout"],
        processes=flags["processes"],
        cpus=flags["cpus"],
        keep_text=flags["save_detailed"],
    )
    return asked, spec
