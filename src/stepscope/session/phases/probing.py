"""Probe: one request before anything is measured, and what its answer means."""

import threading
from collections.abc import Iterator

import msgspec

from stepscope.archive.atomic import write_bytes
from stepscope.errors import StepscopeError
from stepscope.findings import Finding
from stepscope.load.patience import after, next_try_at_ns
from stepscope.load.probe import ProbeResult
from stepscope.load.spec import LoadSpec
from stepscope.recipe.records import CellPlan
from stepscope.run.run import Launch
from stepscope.session.context import Context
from stepscope.session.phases.boot import ending
from stepscope.session.server import Server
from stepscope.units import seconds

_PROBE_TOKENS = 16
#: No cell's seed: a prefix cache must not know a prompt from here.
_PROBE_SEED = 999_983
_POLL_S = 0.1
_POLL_NS = 100_000_000
_MODELS_TIMEOUT_S = 5.0
PROBE_RAW = "probe.raw"


def probed(
    context: Context, launch: Launch, cell: CellPlan, server: Server
) -> tuple[Launch, str | None]:
    """Ask the server one short request in the form that the cells will have.

    Returns:
        The launch as it was recorded, and why nothing can be measured; None: it can.
    """
    context.observer.phase("probe", launch.name)
    spec = msgspec.structs.replace(
        context.load_spec(launch, cell),
        n_prompts=1,
        concurrency=1,
        seed=_PROBE_SEED,
        output_tokens=min(_PROBE_TOKENS, cell.workload.output_tokens or _PROBE_TOKENS),
    )
    result, why = answer_of(context, spec, server)
    if result is None:
        return launch, why
    write_bytes(context.launch_folder(launch) / PROBE_RAW, result.raw)
    launch = msgspec.structs.replace(launch, probe=_summary(result))
    context.book.put_launch(launch)
    if result.failure is not None and result.failure != "no-usage":
        return launch, _refusal(context, spec, result)
    for finding in _findings(launch.name, result, spec):
        context.book.put_finding(finding)
    if not result.usage:
        return launch, (
            "probe: no usage record came, so tokens can not be counted. The server"
            " must honour stream_options.include_usage"
        )
    return launch, None


def answer_of(
    context: Context, spec: LoadSpec, server: Server
) -> tuple[ProbeResult | None, str | None]:
    """Ask one request, again where its failure may pass.

    Returns:
        The answer, and why there is none; one of the two is None.

    Raises:
        RecipeError: The spec is wrong.
    """
    result, why = _once(context, spec, server)
    while result is not None:
        at_ns = next_try_at_ns(result, context.clock)
        if at_ns is None:
            return result, None
        wait_s = seconds(at_ns - context.clock.now_ns())
        context.observer.note(
            "warning",
            f"{_failure(result)}; it is asked again in {wait_s:.0f} s",
        )
        while (now_ns := context.clock.now_ns()) < at_ns:
            why = _no_use(context, server)
            if why is not None:
                return None, f"{why}; before that, {_failure(result)}"
            context.clock.sleep_until(min(at_ns, now_ns + _POLL_NS))
        earlier = result
        result, why = _once(context, spec, server)
        result = result and after(earlier, result)
    return None, why


def _once(
    context: Context, spec: LoadSpec, server: Server
) -> tuple[ProbeResult | None, str | None]:
    """Ask in a thread: a server that dies or hangs must not hold us."""
    found: list[ProbeResult | StepscopeError] = []

    def ask() -> None:
        try:
            found.append(context.site.probe(spec))
        except StepscopeError as error:
            found.append(error)

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    while thread.is_alive():
        thread.join(_POLL_S)
        why = _no_use(context, server)
        if why is not None and not found:
            return None, why
    if not found:
        return None, "probe: it ended without an answer"
    if isinstance(found[0], StepscopeError):
        raise found[0]
    return found[0], None


def _no_use(context: Context, server: Server) -> str | None:
    """Return why waiting for the server is of no use; None: it may be."""
    if context.halt.asked.is_set():
        return "interrupted while it was probed"
    code = server.exit_code()
    return None if code is None else f"probe: the server ended: {ending(code)}"


def _summary(result: ProbeResult) -> dict[str, str | int | float | bool | None]:
    fields = msgspec.structs.asdict(result)
    return {
        name: value
        for name, value in fields.items()
        if value is None or isinstance(value, str | int | float | bool)
    }


def _refusal(context: Context, spec: LoadSpec, result: ProbeResult) -> str:
    """Return in one line why the probe failed, and which models there are."""
    text = _failure(result)
    if result.n_tries > 1:
        text += f" ({result.n_tries} tries)"
    known = served_models(context)
    if known and spec.model not in known:
        text += f"; no model {spec.model!r} here, there is {', '.join(known)}"
    return text


def _failure(result: ProbeResult) -> str:
    status = f" HTTP {result.http_status}" if result.http_status else ""
    detail = " ".join((result.failure_detail or "").split())
    return f"probe:{status} {result.failure}: {detail}"


def served_models(context: Context) -> tuple[str, ...]:
    """Return the names under which the server serves; empty: it does not say."""
    url = f"{context.base_url.rstrip('/')}/v1/models"
    answer = context.site.get(url, timeout_s=_MODELS_TIMEOUT_S)
    if answer is None or answer[0] != 200:
        return ()
    try:
        listed = msgspec.json.decode(answer[1], type=_Models)
    except msgspec.DecodeError:
        return ()
    return tuple(model.id for model in listed.data)


class _Model(msgspec.Struct):
    id: str


class _Models(msgspec.Struct):
    data: list[_Model]


def _findings(launch: str, result: ProbeResult, spec: LoadSpec) -> Iterator[Finding]:
    if result.n_tries > 1:
        yield Finding(
            code="probe-retried",
            severity="warning",
            message=f"the probe was answered at try {result.n_tries} of a server that"
            f" said it was ready; the one before failed ({result.failed_before})",
            hint="Look into the server's log: cells do not try again.",
            launch=launch,
        )
    if result.streams is False:
        yield Finding(
            code="not-streaming",
            severity="warning",
            message=f"{result.output_tokens} tokens came in one piece: the server does"
            " not stream, so TTFT is the whole answer and TPOT means nothing",
            hint="Turn streaming on in the server, or in the proxy before it.",
            launch=launch,
        )
    got = result.output_tokens
    if got is not None and got != spec.output_tokens:
        yield Finding(
            code="early-stop",
            severity="warning",
            message=f"the probe asked for {spec.output_tokens} tokens and got {got}:"
            " ignore_eos may not be honoured",
            hint="Set ignore_eos in the recipe as the server has it.",
            launch=launch,
        )
    prompt = result.prompt_tokens
    if spec.token_ids and prompt is not None and prompt != spec.input_tokens:
        yield Finding(
            code="probe-prompt-tokens",
            severity="warning",
            message=f"the server counts {prompt} tokens in a prompt of"
            f" {spec.input_tokens} token ids",
            launch=launch,
        )
