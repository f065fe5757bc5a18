"""The same few questions to every launch: does a patch change what is answered?

Asked only where a run has several configurations. A flag that is faster because it
computes something else is no improvement; only the text can tell.
"""

import msgspec

from stepscope.archive.atomic import write_bytes
from stepscope.findings import Finding
from stepscope.load.response import Response
from stepscope.load.spec import LoadSpec, Source
from stepscope.recipe.records import CellPlan
from stepscope.run.run import Answer, Launch
from stepscope.session.context import Context
from stepscope.session.phases.probing import answer_of
from stepscope.session.server import Server

N_QUESTIONS = 4
_PROMPT_TOKENS = 32
_ANSWER_TOKENS = 64
#: No cell's seeds, and not the probe's: a prefix cache must not know these prompts.
_FIRST_SEED = 999_900


def asked(context: Context, launch: Launch, cell: CellPlan, server: Server) -> Launch:
    """Ask a launch the run's questions and keep what it says.

    A question that gets no answer is left out with a finding; it never fails a launch.

    Args:
        context: The session.
        launch: A launch that answered its probe.
        cell: A cell of it: its endpoint and the room of its context are used.
        server: What would tell that it died.

    Returns:
        The launch as it was recorded.

    Raises:
        OSError: The disk failed or is full.
    """
    if len(context.recipe.configurations) < 2:
        return launch
    context.observer.phase("ask", launch.name)
    answers: list[Answer] = []
    for question in range(N_QUESTIONS):
        spec = question_spec(context.load_spec(launch, cell), question)
        result, why = answer_of(context, spec, server)
        if result is None or result.failure not in (None, "no-usage"):
            _missing(context, launch, why or f"{result and result.failure_detail}")
            break
        raw = context.launch_folder(launch) / f"answer-{question}.raw"
        write_bytes(raw, result.raw)
        answers.append(answer(question, result.raw))
    launch = msgspec.structs.replace(launch, answers=tuple(answers))
    context.book.put_launch(launch)
    return launch


def question_spec(spec: LoadSpec, question: int) -> LoadSpec:
    """Return the request of a question: greedy, and within a cell's context.

    Args:
        spec: The load of a cell of the launch.
        question: Number of the question.
    """
    asked_in, asked_out = spec.input_tokens, spec.output_tokens
    n_prompt = min(_PROMPT_TOKENS, asked_in or _PROMPT_TOKENS)
    room = (asked_in or _PROMPT_TOKENS) + (asked_out or _ANSWER_TOKENS)
    return msgspec.structs.replace(
        spec,
        n_prompts=1,
        concurrency=1,
        seed=_FIRST_SEED + question,
        input_tokens=n_prompt,
        output_tokens=min(_ANSWER_TOKENS, room - n_prompt),
        temperature=0.0,
        arrivals=None,
        source=Source(),
    )


def answer(question: int, raw: bytes) -> Answer:
    """Read a kept response again, this time for its text."""
    response = Response(keep_text=True)
    response.feed(raw, 0)
    response.end_of_input()
    return Answer(
        question=question,
        pieces=tuple(response.stream.texts or ()),
        output_tokens=response.stream.output_tokens,
    )


def _missing(context: Context, launch: Launch, why: str) -> None:
    context.book.put_finding(
        Finding(
            code="answers-missing",
            severity="info",
            message=f"a question to {launch.name} got no answer ({why}): its text is"
            " not compared with other configurations'",
            launch=launch.name,
        )
    )
