"""Flags of ``vllm bench serve`` that scripts hand over beside the load itself.

Some become part of each request, some say what holds here anyway, and the rest ask for
what is not done here: these are refused by name, with what to do in their place.
"""

from collections.abc import Callable
from typing import Any

import click

from stepscope.errors import RecipeError

#: Parameters of sampling, sent with each request under these names.
_SAMPLING: dict[str, type[int] | type[float]] = {
    "top_p": float,
    "top_k": int,
    "min_p": float,
    "frequency_penalty": float,
    "presence_penalty": float,
    "repetition_penalty": float,
}
#: What each asks for holds here, or has nothing to act on: the server counts tokens
#: and templates chats, and files are read whole.
_NOTHING_TO_DO: dict[str, bool] = {
    "trust-remote-code": True,
    "skip-tokenizer-init": True,
    "tokenizer-mode": False,
    "no-stream": True,
    "skip-chat-template": True,
}
_PROMPTS = "Write the prompts to a file and give it with --dataset-name custom"
#: flag -> (whether it stands alone, what to do in its place).
_NOT_DONE: dict[str, tuple[bool, str]] = {
    "profile": (True, "Measure with stepscope run and capture in its recipe"),
    "plot-timeline": (True, "Save the result and read it with stepscope report"),
    "timeline-itl-thresholds": (False, "Leave it out"),
    "plot-dataset-stats": (True, "Leave it out"),
    "use-beam-search": (True, "Measure without it: a beam streams nothing to time"),
    "lora-modules": (False, "Name one adapter with --served-model-name"),
    "lora-assignment": (False, "Name one adapter with --served-model-name"),
    "chat-template-kwargs": (
        False,
        """Put it into --extra-body '{"chat_template_kwargs": {...}}'""",
    ),
    "probe-request-rate": (False, "Run a second stepscope bench beside this one"),
    "request-id-prefix": (False, "Leave it out: requests are told apart by index"),
    "enable-multimodal-chat": (True, "Measure with text prompts"),
    "no-reranker": (True, "Measure a generating endpoint"),
    "random-batch-size": (False, "Measure a generating endpoint"),
    "self-timed": (True, "Say --replay"),
    "no-self-timed": (True, "Say --request-rate"),
    "hf-name": (False, _PROMPTS),
    "hf-split": (False, _PROMPTS),
    "hf-subset": (False, _PROMPTS),
    "hf-output-len": (False, _PROMPTS),
    "prefix-repetition-prefix-len": (False, "Say --random-prefix-len"),
    "prefix-repetition-suffix-len": (False, "Say --random-input-len"),
    "prefix-repetition-num-prefixes": (False, _PROMPTS),
    "prefix-repetition-output-len": (False, "Say --random-output-len"),
    "spec-bench-category": (False, _PROMPTS),
    "spec-bench-output-len": (False, _PROMPTS),
    "speed-bench-category": (False, _PROMPTS),
    "speed-bench-dataset-subset": (False, _PROMPTS),
    "speed-bench-output-len": (False, _PROMPTS),
}


def vllm_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the flags of this file."""
    for flag, (alone, _) in _NOT_DONE.items():
        command = click.option(
            f"--{flag}", is_flag=alone, hidden=True, default=None, expose_value=True
        )(command)
    for flag, alone in _NOTHING_TO_DO.items():
        command = click.option(
            f"--{flag}", is_flag=alone, hidden=True, expose_value=False
        )(command)
    command = click.option(
        "--logprobs",
        type=int,
        help="Log probabilities a token to ask for, on /v1/completions.",
    )(command)
    for name, kind in reversed(_SAMPLING.items()):
        word = name.replace("_", "-")
        command = click.option(
            f"--{word}", type=kind, help="Of sampling. Default: the server's own."
        )(command)
    return click.option(
        "--ready-check-timeout-sec",
        default=0.0,
        show_default=True,
        help="Wait so long for the server's first answer.",
    )(command)


def refuse_not_done(flags: dict[str, Any]) -> None:
    """Refuse what ``vllm bench serve`` does and we do not.

    Raises:
        RecipeError: Such a flag was given; names it and what to do.
    """
    for flag, (_, do) in _NOT_DONE.items():
        if flags[flag.replace("-", "_")] is not None:
            raise RecipeError(
                f"--{flag}", "vllm bench serve has it, stepscope bench does not", "", do
            )


def sampling(flags: dict[str, Any]) -> dict[str, object]:
    """Return what the flags of sampling add to each request's body."""
    named = {name: flags[name] for name in (*_SAMPLING, "logprobs")}
    return {name: value for name, value in named.items() if value is not None}
