"""Probe: one request before anything is measured, and what its answer means."""

import threading
from collections.abc import Iterator

import msgspec

from stepscope.archive.atomic import write_bytes
from stepscope.errors import StepscopeError
from stepscope.findings import Finding
from stepscope.load.probe import ProbeResult
from stepscope.load.spec import LoadSpec
from stepscope.recipe.records import CellPlan
from stepscope.run.run import Launch
from stepscope.session.context import Context
from stepscope.session.phases.boot import ending
from stepscope.session.server import Server

_PROBE_TOKENS = 16
#: No cell's seed: a prefix cache must not know a prompt from here.
_PROBE_SEED = 999_983
_POLL_S = 0.1
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
    """Ask one request in a thread: a server that dies or hangs must not hold us.

    Returns:
        The answer, and why there is none; one of the two is None.

    Raises:
        RecipeError: The spec is wrong.
    """
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
        if context.halt.asked.is_set():
            return None, "interrupted while it was probed"
        code = server.exit_code()
        if code is not None and not found:
            return None, f"probe: the server ended: {ending(code)}"
    if not found:
        return None, "probe: it ended without an answer"
    if isinstance(found[0], StepscopeError):
        raise found[0]
    return found[0], None


def _summary(result: ProbeResult) -> dict[str, str | int | float | bool | None]:
    fields = msgspec.structs.asdict(result)
    return {
        name: value
        for name, value in fields.items()
        if value is None or isinstance(value, str | int | float | bool)
    }


def _refusal(context: Context, spec: LoadSpec, result: ProbeResult) -> str:
    """Return in one line why the probe failed, and which models there are."""
    status = f" HTTP {result.http_status}" if result.http_status else ""
    detail = " ".join((result.failure_detail or "").split())
    text = f"probe:{status} {result.failure}: {detail}"
    known = served_models(context)
    if known and spec.model not in known:
        text += f"; no model {spec.model!r} here, there is {', '.join(known)}"
    return text


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
