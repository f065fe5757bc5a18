"""The flags of ``stepscope bench`` that say what is sent and when."""

import math
import sys
from collections.abc import Callable
from typing import Any

import click
import msgspec

from stepscope.errors import RecipeError
from stepscope.load.arrivals import Arrivals
from stepscope.load.datasets.choose import READERS, TIMED, n_requests_in
from stepscope.load.spec import Source

_RAMPS = ("linear", "exponential")
#: Mooncake's traces count milliseconds and blocks of 512 tokens.
_MOONCAKE = {"block_tokens": 512, "time_unit_s": 0.001}

_OPTIONS = (
    click.option(
        "--dataset-name",
        default="random",
        show_default=True,
        help=f"Where prompts come from: {', '.join(('random', *READERS))}.",
    ),
    click.option(
        "--dataset-path", help="File of prompts or of a trace; all but random need one."
    ),
    click.option(
        "--random-input-len",
        "--input-len",
        default=1024,
        show_default=True,
        help="Tokens of each random prompt.",
    ),
    click.option(
        "--random-output-len",
        "--output-len",
        default=128,
        show_default=True,
        help="Tokens asked of each answer to a random prompt.",
    ),
    click.option(
        "--random-range-ratio",
        default="0.0",
        show_default=True,
        help='Random lengths vary by this share, or {"input": R, "output": R}.',
    ),
    click.option(
        "--random-prefix-len",
        default=0,
        show_default=True,
        help="Tokens that all random prompts begin with, beside their own.",
    ),
    click.option(
        "--custom-output-len",
        default=256,
        show_default=True,
        help="Tokens asked of each answer; -1: as the file's lines say.",
    ),
    click.option(
        "--sharegpt-output-len",
        type=int,
        help="Tokens asked of each answer. Default: the file's own.",
    ),
    click.option(
        "--conversation-output-len",
        type=int,
        help="Tokens asked of each answer. Default: the file's own.",
    ),
    click.option(
        "--timed-trace-chunk-hash-size",
        default=16,
        show_default=True,
        help="Tokens that one hash of a timed_trace stands for.",
    ),
    click.option(
        "--timed-trace-sec-multiplier",
        default=1.0,
        show_default=True,
        help="Seconds that one unit of a timed_trace's stamps is.",
    ),
    click.option("--disable-shuffle", is_flag=True, help="Prompts in a file's order."),
    click.option("--no-oversample", is_flag=True, help="Send no prompt twice."),
    click.option(
        "--request-rate",
        default="inf",
        show_default=True,
        help="Requests a second; inf: as many in flight as --max-concurrency says.",
    ),
    click.option(
        "--burstiness",
        default=1.0,
        show_default=True,
        help="Shape of the gamma distribution of gaps; 1: Poisson; inf: even.",
    ),
    click.option(
        "--ramp-up-strategy",
        type=click.Choice(_RAMPS),
        help="How the rate rises, in place of --request-rate.",
    ),
    click.option("--ramp-up-start-rps", type=float, help="Its first rate, requests/s."),
    click.option("--ramp-up-end-rps", type=float, help="Its last rate, requests/s."),
    click.option("--replay", is_flag=True, help="Send when the file's times say."),
    click.option(
        "--replay-scale",
        default=1.0,
        show_default=True,
        help="Recorded times, times this.",
    ),
)


def load_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the flags of this file."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def read_arrivals(flags: dict[str, Any]) -> Arrivals | None:
    """Return when requests are due; None: a closed loop.

    Raises:
        RecipeError: A rate is none, or the flags contradict each other.
    """
    rate = _rate(flags["request_rate"])
    burstiness = flags["burstiness"]
    ramp = flags["ramp_up_strategy"]
    self_timed = flags["dataset_name"] in TIMED and rate is None and ramp is None
    if flags["replay"] or self_timed:
        if rate is not None or ramp is not None:
            raise RecipeError("--replay", "a rate beside it", "one of the two")
        arrivals = Arrivals(kind="recorded", scale=flags["replay_scale"])
    elif ramp is not None:
        if rate is not None:
            raise RecipeError(
                "--ramp-up-strategy", "a --request-rate beside it", "one of the two"
            )
        arrivals = Arrivals(
            kind=ramp,
            burstiness=burstiness,
            start_rps=flags["ramp_up_start_rps"],
            end_rps=flags["ramp_up_end_rps"],
        )
    elif rate is None:
        return None
    elif math.isinf(burstiness):
        arrivals = Arrivals(kind="constant", rate=rate)
    else:
        arrivals = Arrivals(kind="gamma", rate=rate, burstiness=burstiness)
    arrivals.check()
    return arrivals


def _rate(text: str) -> float | None:
    try:
        rate = float(text)
    except ValueError:
        rate = math.nan
    if math.isnan(rate) or rate <= 0:
        raise RecipeError("--request-rate", text, "requests a second, or inf")
    return None if math.isinf(rate) else rate


def read_source(flags: dict[str, Any]) -> Source:
    """Return where prompts come from.

    Raises:
        RecipeError: The data set is unknown, or a flag's value is wrong.
    """
    name = flags["dataset_name"]
    names = ("random", *READERS)
    if name not in names:
        raise RecipeError("--dataset-name", name, f"one of {', '.join(names)}")
    input_range, output_range = _ranges(flags["random_range_ratio"])
    trace = {
        "block_tokens": flags["timed_trace_chunk_hash_size"],
        "time_unit_s": flags["timed_trace_sec_multiplier"],
    }
    random = name == "random"
    source = Source(
        name=name,
        path=flags["dataset_path"],
        input_range=input_range if random else 0.0,
        output_range=output_range if random else 0.0,
        prefix_tokens=flags["random_prefix_len"] if random else 0,
        shuffle=not flags["disable_shuffle"],
        repeat=not flags["no_oversample"],
        # vllm bench serve takes these rows alone where it draws lengths.
        trace_model="GPT-4" if name == "burstgpt" and not flags["replay"] else None,
        **(_MOONCAKE if name == "mooncake" else trace),
    )
    if random and flags["replay"]:
        raise RecipeError("--replay", "random prompts", "a trace that has times")
    if not random and source.path is None:
        raise RecipeError("--dataset-path", "missing", f"the file for {name}")
    source.check()
    return source


def _ranges(text: str) -> tuple[float, float]:
    try:
        value = msgspec.json.decode(text, type=float | dict[str, float])
        if isinstance(value, dict):
            return value["input"], value["output"]
    except (msgspec.DecodeError, KeyError):
        raise RecipeError(
            "--random-range-ratio",
            text,
            'a share below 1, or {"input": R, "output": R}',
        ) from None
    return value, value


def lengths(flags: dict[str, Any]) -> tuple[int | None, int | None]:
    """Return tokens of each prompt and asked of each answer; None: the file says."""
    name = flags["dataset_name"]
    if name == "random":
        return flags["random_input_len"], flags["random_output_len"]
    asked = {
        "custom": None
        if flags["custom_output_len"] < 0
        else flags["custom_output_len"],
        "sharegpt": flags["sharegpt_output_len"],
        "conversations": flags["conversation_output_len"],
    }
    return None, asked.get(name)


def fitting(
    n_prompts: int, source: Source, arrivals: Arrivals | None, *, asked: bool
) -> int:
    """Return how many requests to send of those asked for: no more than there are.

    Raises:
        RecipeError: The file is missing or a line is wrong.
    """
    if source.name == "random":
        return n_prompts
    held = n_requests_in(source)
    recorded = arrivals is not None and arrivals.kind == "recorded"
    once = recorded or source.name in TIMED or not source.repeat
    if held >= n_prompts or not held:
        return n_prompts
    if once:
        if asked:
            print(f"{source.path} holds {held} requests", file=sys.stderr)
        return held
    print(
        f"{source.path} holds {held} requests: some are sent again, and a prefix cache"
        " will answer them",
        file=sys.stderr,
    )
    return n_prompts
