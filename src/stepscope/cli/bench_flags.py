"""The flags of ``stepscope bench``, turned into records."""

import os
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from stepscope.cli.bench_load import fitting, lengths, read_arrivals, read_source
from stepscope.cli.bench_words import refuse_not_done, sampling
from stepscope.errors import RecipeError, SessionError
from stepscope.load.ask import served_models
from stepscope.load.prompts import server_of
from stepscope.load.spec import LoadSpec
from stepscope.load.wire import connected

#: Backend, as vLLM names it, to endpoint.
BACKENDS = {
    "openai": "/v1/completions",
    "vllm": "/v1/completions",
    "openai-chat": "/v1/chat/completions",
    "llamacpp": "/completion",
    "sglang": "/generate",
}
#: As vLLM's client has it: the key goes along when this is set.
_KEY_VARIABLE = "OPENAI_API_KEY"
#: Long enough to hear whether anything listens.
_REACH_S = 5.0
#: Warm-up requests before an open loop that has no cap.
_OPEN_WARM_UPS = 16
#: What may be asked for by --percentile-metrics.
METRICS = (
    "ttft",
    "tpot",
    "itl",
    "e2el",
    "client_queue_time",
    "e2el_including_client_queue",
)
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


def _model(spec: LoadSpec, model: str | None) -> str:
    """Return the model asked for, or the first one that the server lists."""
    if model is not None:
        return model
    for listed in served_models(server_of(spec)):
        if isinstance(listed.get("id"), str):
            return str(listed["id"])
    _reach(spec)
    raise SessionError(
        spec.base_url,
        "/v1/models lists no model",
        "expected a server with one",
        "Check the address and the key, or name the model with --model",
    )


def _reach(spec: LoadSpec) -> None:
    """Tell a server that is not there from one that lists nothing."""
    try:
        connected(spec.base_url, _REACH_S, insecure=spec.insecure).close()
    except OSError as error:
        raise SessionError(
            spec.base_url,
            f"no server answers there ({error.strerror or error})",
            "expected one that listens",
            "Start it, or check the address",
        ) from error


def _base_urls(flags: dict[str, Any]) -> tuple[str, ...]:
    """Return the servers' addresses."""
    urls: tuple[str, ...] = flags["base_url"]
    if flags["unix_socket"] is not None:
        if urls:
            raise RecipeError("--unix-socket", "beside --base-url", "one of them")
        return (f"unix://{flags['unix_socket'].absolute()}",)
    return urls or (f"http://{flags['host']}:{flags['port']}",)


def _key_variable(flags: dict[str, Any]) -> str | None:
    if flags["api_key_file"] is not None:
        return None
    return _KEY_VARIABLE if os.environ.get(_KEY_VARIABLE) else None


def read_flags(flags: dict[str, Any]) -> tuple[Asked, LoadSpec]:
    """Turn the flags into what is asked and the load.

    Raises:
        RecipeError: A flag's value is wrong.
        SessionError: No model was named and the server lists none.
    """
    refuse_not_done(flags)
    arrivals, source = read_arrivals(flags), read_source(flags)
    for flag in ("num_prompts", "max_concurrency"):
        if flags[flag] is not None and flags[flag] < 1:
            name = flag.replace("_", "-")
            raise RecipeError(f"--{name}", f"{flags[flag]}", "a number above 0")
    if flags["seed"] is not None and not 0 <= flags["seed"] < 1 << 62:
        raise RecipeError("--seed", f"{flags['seed']}", "a whole number from 0 to 2^62")
    base_url, *replicas = _base_urls(flags)
    seed = flags["seed"]
    if seed is None:  # not by secrets, which loads OpenSSL
        seed = random.SystemRandom().randrange(1 << 31)
    n_prompts = fitting(flags["num_prompts"], source, arrivals, asked=True)
    concurrency = flags["max_concurrency"]
    if arrivals is None:
        concurrency = concurrency or n_prompts
    input_tokens, output_tokens = lengths(flags)
    asked = _asked(flags)
    spec = LoadSpec(
        base_url=base_url,
        replicas=tuple(replicas),
        insecure=flags["insecure"],
        api_key_env=_key_variable(flags),
        api_key_file=flags["api_key_file"],
        endpoint=flags["endpoint"] or BACKENDS[flags["backend"]],
        model=flags["served_model_name"] or flags["model"] or "",
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
        extra_body=sampling(flags) | _extra_body(flags["extra_body"]),
        headers=_pairs("header", flags["header"], "="),
        header_timeout_s=flags["header_timeout"],
        stall_timeout_s=flags["stall_timeout"],
        total_timeout_s=flags["total_timeout"],
        processes=flags["processes"],
        workers=flags["load_workers"],
        cpus=flags["cpus"],
        keep_text=flags["save_detailed"],
    )
    spec.check()
    model = _model(spec, flags["model"])
    n_warmups = flags["num_warmups"]
    if n_warmups is None:
        n_warmups = min(concurrency or _OPEN_WARM_UPS, n_prompts)
    return (
        replace(asked, model=model, n_warmups=n_warmups),
        msgspec.structs.replace(spec, model=spec.model or model),
    )


def _asked(flags: dict[str, Any]) -> Asked:
    """Return what needs no server; the model and the warm-up are not yet known."""
    return Asked(
        backend=flags["backend"],
        model="",
        tokenizer=flags["tokenizer"],
        label=flags["label"],
        metadata=_pairs("metadata", flags["metadata"], "="),
        metrics=_metrics(flags["percentile_metrics"]),
        percentiles=_percentiles(flags["metric_percentiles"]),
        goodput_ms=_goodput(flags["goodput"]),
        n_warmups=0,
        max_concurrency=flags["max_concurrency"],
        detailed=flags["save_detailed"],
        burstiness=flags["burstiness"],
    )
