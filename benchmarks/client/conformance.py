"""Does the client understand a real server? Every endpoint, counted and failed.

    python conformance.py URL [--model NAME] [--endpoints /v1/completions,...]
        [--too-long 100000]

Drives each endpoint with a small closed loop and asks it things that it should refuse;
prints one row each. Exit code 1 when an endpoint that answers is not measured whole. An
endpoint that the server does not have is said and is no failure.
"""

import argparse
import sys
import tempfile
from pathlib import Path

import msgspec

from stepscope.clock import SystemClock
from stepscope.load.ask import served_models
from stepscope.load.drive import drive
from stepscope.load.journal import read_requests
from stepscope.load.probe import probe
from stepscope.load.spec import ENDPOINTS, LoadSpec
from stepscope.load.wire import Server

_ABSENT = ("http-status", "not-a-stream")


def main() -> int:
    flags = argparse.ArgumentParser()
    flags.add_argument("url")
    flags.add_argument("--model")
    flags.add_argument("--endpoints", default=",".join(ENDPOINTS))
    flags.add_argument("--too-long", type=int, default=100_000)
    flags.add_argument("--vocab-size", type=int)
    flags.add_argument("--no-ignore-eos", action="store_true")
    asked = flags.parse_args()
    model = asked.model or served_models(Server(asked.url))[0]["id"]
    print(
        "| endpoint | prompt | what | requests | tokens | per chunk | stamps | said |"
    )
    print("|---|---|---|---|---|---|---|---|")
    bad = 0
    for endpoint in asked.endpoints.split(","):
        for ids in (True, False):
            if ids and "chat" in endpoint:
                continue
            spec = LoadSpec(
                base_url=asked.url,
                endpoint=endpoint,
                model=model,
                n_prompts=12,
                concurrency=4,
                input_tokens=16,
                output_tokens=16,
                token_ids=ids,
                seed=len(endpoint),
                ignore_eos=not asked.no_ignore_eos,
                vocab_size=asked.vocab_size,
                stall_timeout_s=60,
            )
            bad += _check(spec, asked.too_long)
    return 1 if bad else 0


def _row(spec: LoadSpec, what: str, *cells: object) -> None:
    prompt = "ids" if spec.token_ids else "text"
    shown = " | ".join(str(c) for c in cells)
    print(f"| {spec.endpoint} | {prompt} | {what} | {shown} |", flush=True)


def _check(spec: LoadSpec, too_long: int) -> bool:
    found = probe(spec, SystemClock())
    if found.failure in _ABSENT:
        _row(spec, "probe", 1, "-", "-", "-", f"{found.failure_detail}"[:70])
        return False
    bad = _loop(spec, "closed loop")
    one = msgspec.structs.replace(spec, n_prompts=2, concurrency=1, output_tokens=1)
    bad |= _loop(one, "one token")
    _row(spec, "too long", 1, "-", "-", "-", _refused(spec, too_long))
    return bad


def _loop(spec: LoadSpec, what: str) -> bool:
    with tempfile.TemporaryDirectory() as folder:
        result = drive(spec, Path(folder), clock=SystemClock())
        requests = read_requests(Path(folder))
    ok = [r for r in requests if r.ok]
    tokens = [r.output_tokens or 0 for r in ok]
    chunks = sum(r.n_chunks for r in ok)
    per_chunk = f"{sum(tokens) / chunks:.2f}" if chunks else "-"
    whole = all(n <= (spec.output_tokens or 0) for n in tokens) and bool(ok)
    said = {r.failure_detail for r in requests if not r.ok}
    counts = f"{len(ok)} of {len(requests)}"
    note = "; ".join(str(s) for s in said)[:70] if said else result.health.verdict
    _row(spec, what, counts, sum(tokens), per_chunk, result.health.stamps, note)
    return not whole or len(ok) < len(requests)


def _refused(spec: LoadSpec, too_long: int) -> str:
    longer = msgspec.structs.replace(spec, n_prompts=1, input_tokens=too_long)
    found = probe(longer, SystemClock())
    if found.failure is None:
        return f"served: {found.prompt_tokens} prompt tokens"
    return f"{found.failure}: {found.failure_detail}"[:90]


if __name__ == "__main__":
    sys.exit(main())
