"""Before anything is measured: does each server answer as it must, in which form?"""

import sys
from typing import Any

import msgspec

from stepscope.cli.bench_flags import Asked, read_flags
from stepscope.clock import Clock, SystemClock
from stepscope.errors import SessionError
from stepscope.load.patience import patient_probe
from stepscope.load.spec import LoadSpec
from stepscope.units import NS_PER_S


def when_ready(flags: dict[str, Any]) -> tuple[Asked, LoadSpec]:
    """Read the flags and send each server a request, again where waiting was asked.

    Raises:
        RecipeError: A flag's value is wrong.
        SessionError: The server does not answer as it must, and the time is over.
    """
    clock = SystemClock()
    until_ns = clock.now_ns() + int(flags["ready_check_timeout_sec"] * NS_PER_S)
    while True:
        try:
            asked, spec = read_flags(flags)
            return asked, _probed(spec, clock)
        except SessionError:
            next_ns = clock.now_ns() + NS_PER_S
            if next_ns > until_ns:
                raise
            clock.sleep_until(next_ns)


def _probed(spec: LoadSpec, clock: Clock) -> LoadSpec:
    """Send each server one request; fall back to text where token ids are refused.

    A replica that is dead before the start fails the command whichever it is: what is
    left would be another load than the one that was asked for.

    Raises:
        SessionError: A server does not answer as a streaming endpoint must.
    """
    for number, url in enumerate(spec.base_urls):
        one = msgspec.structs.replace(
            spec, base_url=url, replicas=(), n_prompts=1, seed=spec.seed + 2 + number
        )
        found = patient_probe(one, clock)
        if found.failure in {"http-status", "stream-error"} and spec.token_ids:
            as_text = msgspec.structs.replace(one, token_ids=False)
            again = patient_probe(as_text, clock)
            if again.failure is None:
                print("prompts are text: token ids were refused", file=sys.stderr)
                spec = msgspec.structs.replace(spec, token_ids=False)
                continue
        if found.failure is not None:
            raise SessionError(
                url,
                f"the first request failed ({found.failure}: {found.failure_detail})"
                f"{f' {found.n_tries} times' if found.n_tries > 1 else ''}",
                "expected a streamed answer with a usage record",
            )
    return spec
