"""Which flags of a server that does not boot may be changed, and how far.

A change is safe when the server comes up and what is measured stays what it was. The
table ``SAFE`` holds all of them.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from stepscope.recipe.records import Configuration, LaunchPlan, Recipe
from stepscope.run.run import AppliedFix
from stepscope.run.serverlog import BootVerdict, Fix
from stepscope.session.context import Context

#: A share is not raised beyond: too little is left for what comes after the cache.
_LARGEST_SHARE = 0.95
_SMALLEST_SHARE = 0.05
#: A prompt that is sent as text is tokenized anew, and a chat adds its template:
#: factor and tokens on top.
_AS_TEXT = (1.1, 256)


@dataclass(frozen=True, slots=True)
class _Needs:
    """What the workload asks of the server: tokens a request, requests at once.

    None: the recipe does not bound it.
    """

    tokens: int | None
    requests: int | None


Flag = str | int | float | bool | None
#: To what the change would spoil; None: nothing.
Rule = Callable[[Fix, Configuration, _Needs], str | None]


def safe_fix(
    context: Context, plan: LaunchPlan, verdict: BootVerdict
) -> tuple[AppliedFix | None, str]:
    """Return the first fix that is safe, or why the best one is not.

    A fix of the table that would spoil the measurement lets the next one have its turn;
    one that is not in the table does not: it names another trouble first.

    Args:
        context: The session.
        plan: The launch that failed, under the flags that it had.
        verdict: Why it failed.

    Returns:
        The change, or None and the reason in words.
    """
    reasons = []
    needs = _needs(context)
    for fix in verdict.fixes:
        rule = SAFE.get((context.engine.log_format or "", fix.flag))
        if rule is None:
            reasons.append(f"{fix.flag} is none that may be changed here")
            break
        spoilt = _spoilt(context.recipe, plan.configuration, fix) or rule(
            fix, plan.configuration, needs
        )
        if spoilt is None and isinstance(fix.value, int | float):
            name = fix.flag.removeprefix("--")
            before = _asked(context.recipe, plan.configuration.name, name)
            return AppliedFix(
                flag=name,
                before=before,
                value=fix.value,
                cause=verdict.cause or "unknown",
                failed_launch=plan.name,
            ), ""
        reasons.append(f"{fix.flag} {spoilt}")
    return None, "; ".join(reasons)


def _asked(recipe: Recipe, configuration: str, flag: str) -> Flag:
    """Return what the recipe gives a flag; None: it leaves it to the engine."""
    found = next(c for c in recipe.configurations if c.name == configuration)
    return found.flags.get(flag)


def _spoilt(recipe: Recipe, configuration: Configuration, fix: Fix) -> str | None:
    """Return what speaks against any change of this flag."""
    name = fix.flag.removeprefix("--")
    if not isinstance(fix.value, int | float) or isinstance(fix.value, bool):
        return "has no computed value"
    if fix.confidence == "low":
        return "has a guessed value, not a computed one"
    values = {str(c.flags.get(name)) for c in recipe.configurations}
    if len(values) > 1:
        return "is what the recipe compares"
    now = configuration.flags.get(name)
    if isinstance(now, int | float) and not isinstance(now, bool):
        moves = {"lower": fix.value < now, "raise": fix.value > now}
        if not moves.get(fix.direction, False):
            return f"is {now} already"
    return None


def _share(fix: Fix, configuration: Configuration, needs: _Needs) -> str | None:
    """The share of the GPU sizes the cache and nothing else."""
    del needs
    if any(k.startswith("kv-cache-memory") for k in configuration.flags):
        return "does nothing beside a fixed cache"
    if not isinstance(fix.value, float) or fix.value < _SMALLEST_SHARE:
        return f"would be {fix.value}, below {_SMALLEST_SHARE}"
    if fix.direction != "lower" and fix.value > _LARGEST_SHARE:
        return f"would be {fix.value}, beyond {_LARGEST_SHARE}"
    return None


def _length(fix: Fix, configuration: Configuration, needs: _Needs) -> str | None:
    """A shorter limit refuses longer requests; those of the workload must fit."""
    del configuration
    if fix.direction != "lower":
        return "may only be lowered"
    if needs.tokens is None:
        return "is not lowered where the recipe does not bound a request's tokens"
    if isinstance(fix.value, int) and fix.value >= needs.tokens:
        return None
    return f"would be {fix.value}, and requests have up to {needs.tokens} tokens"


def _context_of_all(
    fix: Fix, configuration: Configuration, needs: _Needs
) -> str | None:
    """llama-server divides its context among the slots."""
    slots = configuration.flags.get("parallel")
    if not isinstance(slots, int) or isinstance(slots, bool) or slots < 1:
        return "is divided among slots whose number the recipe does not give"
    each = msgspec.structs.replace(fix, value=int(fix.value or 0) // slots)
    return _length(each, configuration, needs)


def _requests(fix: Fix, configuration: Configuration, needs: _Needs) -> str | None:
    """A smaller batch makes requests wait; all that are in flight must fit."""
    del configuration
    if fix.direction != "lower":
        return "may only be lowered"
    if needs.requests is None:
        return "is not lowered where the recipe does not bound the requests in flight"
    if isinstance(fix.value, int) and fix.value >= needs.requests:
        return None
    return f"would be {fix.value}, and {needs.requests} requests are in flight"


#: (engine, flag) to the condition under which it may be changed. What is not here is
#: never touched: parallelism, quantization, types and models above all, but also sizes
#: of steps and graphs, which change how long a step takes.
SAFE: dict[tuple[str, str], Rule] = {
    ("vllm", "--gpu-memory-utilization"): _share,
    ("vllm", "--max-model-len"): _length,
    ("vllm", "--max-num-seqs"): _requests,
    ("sglang", "--mem-fraction-static"): _share,
    ("sglang", "--context-length"): _length,
    ("sglang", "--max-running-requests"): _requests,
    ("llamacpp", "--ctx-size"): _context_of_all,
}


def _needs(context: Context) -> _Needs:
    sweep, warm_up = context.recipe.sweep, context.recipe.warm_up
    requests = None
    at_once = [c for c, _ in sweep.concurrency]
    if sweep.max_concurrency is not None:
        at_once.append(sweep.max_concurrency)
    if at_once and (not sweep.request_rate or sweep.max_concurrency is not None):
        requests = max(*at_once, warm_up.concurrency or 0)
    if sweep.dataset != "random" or not sweep.input_tokens or not sweep.output_tokens:
        return _Needs(None, requests)
    tokens = sweep.prefix_tokens + math.ceil(
        sweep.input_tokens * (1 + sweep.input_range)
        + sweep.output_tokens * (1 + sweep.output_range)
    )
    if not context.engine.accepts_token_ids(sweep.endpoint):
        factor, more = _AS_TEXT
        tokens = math.ceil(tokens * factor) + more
    return _Needs(tokens, requests)
