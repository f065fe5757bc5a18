import json
from collections import Counter
from pathlib import Path

import pytest

from stepscope.errors import RecipeError
from stepscope.load.arrivals import Arrivals
from stepscope.load.datasets.choose import chosen, estimated_tokens, n_requests_in
from stepscope.load.datasets.handover import hand_over, handed_over
from stepscope.load.drawing import Drawing
from stepscope.load.messages import TextPlan
from stepscope.load.spec import LoadSpec, Source
from stepscope.load.stock import Prompt, Stock
from stepscope.recipe.records import Dataset

BURST = """Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type
5,ChatGPT,472,18,490,Conversation log
45,GPT-4,1087,230,1317,Conversation log
118,GPT-4,417,0,417,Conversation log
120,GPT-4,17,3,20,API log
"""


def spec_of(source: Source, n: int, **changes: object) -> LoadSpec:
    fields: dict[str, object] = {
        "base_url": "http://127.0.0.1:1",
        "model": "m",
        "n_prompts": n,
        "concurrency": 1,
        "input_tokens": None,
        "output_tokens": None,
        "vocab_size": 4096,
        "source": source,
        "seed": 5,
    }
    return LoadSpec(**(fields | changes))  # type: ignore[arg-type]


def file_of(path: Path, name: Dataset, text: str, **more: object) -> Source:
    path.write_text(text, encoding="utf-8")
    return Source(name=name, path=str(path), **more)  # type: ignore[arg-type]


def jsonl(*entries: object) -> str:
    return "\n".join(json.dumps(entry) for entry in entries) + "\n"


def test_custom_prompts_come_with_their_lengths(tmp_path: Path) -> None:
    text = jsonl(*({"prompt": f"p{i}", "output_tokens": i + 1} for i in range(6)))
    source = file_of(tmp_path / "c.jsonl", "custom", text)
    items = chosen(spec_of(source, 6), estimated_tokens)
    found = {(i.turns[0].text, i.turns[0].output_tokens) for i in items}
    assert found == {(f"p{i}", i + 1) for i in range(6)}
    assert [i.line for i in items] != sorted(i.line for i in items)


def test_one_length_for_all_overrides_the_files(tmp_path: Path) -> None:
    source = file_of(tmp_path / "c", "custom", jsonl({"prompt": "a"}, {"prompt": "b"}))
    items = chosen(spec_of(source, 2, output_tokens=9), estimated_tokens)
    assert {i.turns[0].output_tokens for i in items} == {9}


def test_a_prompt_without_any_length_is_refused_by_its_line(tmp_path: Path) -> None:
    text = jsonl({"prompt": "a", "output_tokens": 2}, {"prompt": "b"})
    source = file_of(tmp_path / "c", "custom", text, shuffle=False)
    with pytest.raises(RecipeError, match="line 2"):
        chosen(spec_of(source, 2), estimated_tokens)


def test_order_is_the_seeds_or_the_files(tmp_path: Path) -> None:
    text = jsonl(*({"prompt": str(i), "output_tokens": 1} for i in range(30)))

    def order(shuffle: bool, seed: int) -> list[str]:
        source = file_of(tmp_path / "c", "custom", text, shuffle=shuffle)
        items = chosen(spec_of(source, 30, seed=seed), estimated_tokens)
        return [item.turns[0].text for item in items]

    assert order(False, 1) == [str(i) for i in range(30)]
    assert order(True, 1) == order(True, 1) != order(True, 2)


def test_too_few_prompts_begin_again_unless_that_is_forbidden(tmp_path: Path) -> None:
    text = jsonl(
        {"prompt": "a", "output_tokens": 1}, {"prompt": "b", "output_tokens": 1}
    )
    source = file_of(tmp_path / "c", "custom", text)
    items = chosen(spec_of(source, 5), estimated_tokens)
    assert Counter(i.turns[0].text for i in items).most_common(1)[0][1] == 3
    once = file_of(tmp_path / "c", "custom", text, repeat=False)
    with pytest.raises(RecipeError, match="2 usable requests"):
        chosen(spec_of(once, 5), estimated_tokens)


def entry(*said: str) -> dict[str, object]:
    roles = ("human", "gpt")
    turns = [{"from": roles[i % 2], "value": text} for i, text in enumerate(said)]
    return {"id": "x", "conversations": turns}


def test_sharegpt_takes_first_words_and_the_length_of_their_answer(
    tmp_path: Path,
) -> None:
    long = "word " * 40
    text = json.dumps(
        [
            entry(long, long, "more"),
            entry("alone"),
            entry("hi", long),
            entry(long, "no"),
        ]
    )
    source = file_of(tmp_path / "s.json", "sharegpt", text)
    items = chosen(spec_of(source, 1), estimated_tokens)
    assert [(i.line, i.turns[0].output_tokens) for i in items] == [(1, 50)]
    assert items[0].turns[0].answer is None


def test_sharegpt_leaves_out_what_vllm_leaves_out(tmp_path: Path) -> None:
    text = json.dumps([entry("x" * 5000, "y" * 100), entry("x" * 3000, "y" * 8000)])
    source = file_of(tmp_path / "s.json", "sharegpt", text)
    with pytest.raises(RecipeError, match="0 usable"):
        chosen(spec_of(source, 1), estimated_tokens)


def test_conversations_are_cut_where_requests_end(tmp_path: Path) -> None:
    text = jsonl(
        {"messages": [{"role": "system", "content": "s"}] + [
            {"role": "user", "content": f"q{i}", "output_tokens": 3} for i in range(4)
        ]},
        entry("a", "b" * 40, "c", "d" * 80),
    )  # fmt: skip
    source = file_of(tmp_path / "t", "conversations", text, shuffle=False)
    assert n_requests_in(source) == 6
    items = chosen(spec_of(source, 5), estimated_tokens)
    assert [len(i.turns) for i in items] == [4, 1]
    assert [t.output_tokens for i in items for t in i.turns] == [3, 3, 3, 3, 10]


def test_a_trace_keeps_its_order_and_its_times(tmp_path: Path) -> None:
    text = jsonl(
        *(
            {"timestamp": t, "input_length": 5, "output_length": 2, "hash_ids": [1]}
            for t in (0, 1500, 1500, 4000)
        )
    )
    source = file_of(tmp_path / "m.jsonl", "mooncake", text)
    items = chosen(spec_of(source, 3), estimated_tokens)
    assert [i.at_ns for i in items] == [0, 1_500_000_000, 1_500_000_000]
    with pytest.raises(RecipeError, match="4 usable requests; expected the 5"):
        chosen(spec_of(source, 5), estimated_tokens)


def test_burstgpt_leaves_out_failures_and_keeps_seconds(tmp_path: Path) -> None:
    source = file_of(tmp_path / "b.csv", "burstgpt", BURST)
    spec = spec_of(source, 3, arrivals=Arrivals(kind="recorded"))
    items = chosen(spec, estimated_tokens)
    assert [(i.at_ns, i.input_tokens, i.output_tokens) for i in items] == [
        (5_000_000_000, 472, 18),
        (45_000_000_000, 1087, 230),
        (120_000_000_000, 17, 3),
    ]
    only = file_of(tmp_path / "b.csv", "burstgpt", BURST, trace_model="GPT-4")
    assert n_requests_in(only) == 2


def test_a_file_without_times_can_not_be_replayed(tmp_path: Path) -> None:
    text = jsonl({"prompt": "a", "output_tokens": 1})
    source = file_of(tmp_path / "c", "custom", text)
    spec = spec_of(source, 1, arrivals=Arrivals(kind="recorded"))
    with pytest.raises(RecipeError, match="records no times"):
        chosen(spec, estimated_tokens)


TRACE = {"timestamp": 1, "input_length": 5, "output_length": 2}
BAD: list[tuple[Dataset, str, int]] = [
    ("custom", '{"prompt": "a"}\n{"prompt": \n', 2),
    ("custom", '{"prompt": "a"}\n\n[1]\n', 3),
    ("custom", '{"text": "a"}\n', 1),
    ("custom", '{"prompt": ""}\n', 1),
    ("custom", '{"prompt": "a", "output_tokens": -1}\n', 1),
    ("custom", '{"prompt": "a", "output_tokens": true}\n', 1),
    ("sharegpt", '[{"id": 1}]', 1),
    ("sharegpt", '{"conversations": [1]}\n', 1),
    ("conversations", '{"messages": [{"role": "user"}]}\n', 1),
    ("conversations", '{"messages": [{"role": "user", "content": ""}]}\n', 1),
    ("mooncake", jsonl(TRACE, {**TRACE, "timestamp": 0}), 2),
    ("mooncake", jsonl({**TRACE, "input_length": "five"}), 1),
    ("mooncake", jsonl({**TRACE, "input_length": 10**12}), 1),
    ("mooncake", jsonl({**TRACE, "hash_ids": ["a"]}), 1),
    ("mooncake", '{"timestamp": NaN}\n', 1),
    ("burstgpt", "Timestamp,Model\n1,GPT-4\n", 1),
    ("burstgpt", BURST + "121,GPT-4,many,3,20,API log\n", 6),
    ("burstgpt", BURST + "1,GPT-4,1,3,20,API log\n", 6),
]


@pytest.mark.parametrize(("name", "text", "line"), BAD)
def test_a_bad_line_is_named_by_its_number(
    tmp_path: Path, name: Dataset, text: str, line: int
) -> None:
    source = file_of(tmp_path / "f", name, text)
    with pytest.raises(RecipeError) as caught:
        n_requests_in(source)
    assert caught.value.where.endswith(f"line {line}")
    assert "\n" not in str(caught.value)


def test_no_file_an_empty_one_and_one_that_is_no_text_are_refused(
    tmp_path: Path,
) -> None:
    with pytest.raises(RecipeError, match="No such file"):
        n_requests_in(Source(name="custom", path=str(tmp_path / "none")))
    with pytest.raises(RecipeError, match="empty"):
        n_requests_in(file_of(tmp_path / "e", "custom", " \n"))
    (tmp_path / "b").write_bytes(b'{"prompt": "\xff"}\n')
    with pytest.raises(RecipeError, match="UTF-8"):
        n_requests_in(Source(name="custom", path=str(tmp_path / "b")))


def test_what_is_handed_over_arrives(tmp_path: Path) -> None:
    text = jsonl(*({"prompt": str(i), "output_tokens": 1} for i in range(9)))
    source = file_of(tmp_path / "c", "custom", text)
    items = chosen(spec_of(source, 9), estimated_tokens)
    path = hand_over(tmp_path, items)
    assert list(handed_over(str(path))) == items


def test_equal_blocks_of_a_trace_are_equal_words_too(tmp_path: Path) -> None:
    text = jsonl(
        *({**TRACE, "input_length": 700, "hash_ids": [9, i]} for i in range(2))
    )
    source = file_of(tmp_path / "m", "mooncake", text)
    spec = spec_of(source, 2, token_ids=False)
    plan = TextPlan(words=("a", "b", "c", "d"), n_words=256, exact=True, n_tokens=256)
    draw = Drawing(spec, plan)
    bodies = [
        json.loads(draw.prompt_of(item, i, i, None).rest.partition(b"\r\n\r\n")[2])[
            "prompt"
        ].split(" ")
        for i, item in enumerate(chosen(spec, estimated_tokens))
    ]
    assert [len(b) for b in bodies] == [700, 700]
    assert bodies[0][:512] == bodies[1][:512]
    assert bodies[0][512:] != bodies[1][512:]


def test_a_stock_keeps_what_does_not_fit_in_a_file(tmp_path: Path) -> None:
    stock = Stock(str(tmp_path), memory_bytes=10)
    sent = [Prompt(i, bytes([65 + i]) * (i + 1), output_tokens=i) for i in range(8)]
    for prompt in sent:
        stock.add(prompt)
    assert len(stock) == stock.n_requests == 8
    assert [stock.take() for _ in range(8)] == sent
    assert len(stock) == 0
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(IndexError):
        stock.take()
    stock.close()
