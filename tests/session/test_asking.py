"""The questions of a run with several configurations: when, which, and what is kept."""

import msgspec
from tests.session.scripted_session import PROBED, RECIPE, World

from stepscope.archive.reader import open_run
from stepscope.load.spec import LoadSpec
from stepscope.session.phases.asking import N_QUESTIONS, answer, question_spec


def said(*pieces: str) -> bytes:
    """A completion stream with these pieces of text, as bytes on the wire."""
    events = [
        *(f'data: {{"choices":[{{"text":"{piece}"}}]}}' for piece in pieces),
        f'data: {{"choices":[],"usage":{{"completion_tokens":{len(pieces)}}}}}',
        "data: [DONE]",
    ]
    body = "".join(f"{event}\n\n" for event in events)
    head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n{body}".encode()


SPEC = LoadSpec(
    base_url="http://127.0.0.1:1",
    model="m",
    n_prompts=64,
    concurrency=8,
    input_tokens=100,
    output_tokens=4,
    temperature=0.7,
)


def test_every_launch_keeps_what_it_said(world: World) -> None:
    world.site.probed = msgspec.structs.replace(PROBED, raw=said("a", " b"))
    world.run()
    for launch in open_run(world.out).launches:
        assert [a.question for a in launch.answers] == list(range(N_QUESTIONS))
        assert {a.pieces for a in launch.answers} == {("a", " b")}
        kept = world.out / "launches" / launch.name / "answer-0.raw"
        assert kept.read_bytes() == said("a", " b")


def test_a_run_of_one_configuration_is_asked_nothing(world: World) -> None:
    world.run(RECIPE.partition("[[patch]]")[0])
    assert "[ask]" not in world.site.events
    assert open_run(world.out).launches[0].answers == ()


def test_a_question_is_greedy_and_stays_inside_the_cells_context() -> None:
    specs = [question_spec(SPEC, i) for i in range(N_QUESTIONS)]
    for spec in specs:
        assert spec.temperature == 0.0
        assert (spec.n_prompts, spec.concurrency) == (1, 1)
        assert (spec.input_tokens, spec.output_tokens) == (32, 64)
    assert len({spec.seed for spec in specs}) == N_QUESTIONS
    short = question_spec(msgspec.structs.replace(SPEC, input_tokens=8), 0)
    assert (short.input_tokens, short.output_tokens) == (8, 4)


def test_a_response_without_text_is_an_answer_without_pieces() -> None:
    assert answer(0, b"data: x").pieces == ()
    assert answer(3, said("x", "y")).text == "xy"
    assert answer(3, said("x", "y")).output_tokens == 2
