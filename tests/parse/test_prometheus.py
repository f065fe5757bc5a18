import gzip
import math
from pathlib import Path

from hypothesis import given, strategies as st

from stepscope.parse.prometheus import MetricsReader, parse_metrics

DATA = Path(__file__).parents[2].parent / "shared" / "data"
WORD = st.from_regex(r"[a-zA-Z_][a-zA-Z0-9_]{0,8}", fullmatch=True)


def escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def test_every_sample_line_of_a_real_server_is_read() -> None:
    path = DATA / "h200x1-qwen3moe-baseline" / "c64_0.metrics1.txt.gz"
    text = gzip.decompress(path.read_bytes()).decode()
    lines = [line for line in text.split("\n") if line and line[0] != "#"]
    reader = MetricsReader()
    values = reader.read(text)
    assert len(values) == len(lines)
    assert reader.n_unreadable == 0
    assert [value.name for value in values] == [
        line.split("{")[0].split(" ")[0] for line in lines
    ]
    assert [value.value for value in values] == [
        float(line.rsplit(" ", 1)[1]) for line in lines
    ]


def test_metrics_of_other_engines_are_read_to_the_last_line() -> None:
    for name in ("vllm", "sglang"):
        reader = MetricsReader()
        text = (DATA / "engines" / name / "metrics.txt").read_text()
        assert reader.read(text)
        assert reader.n_unreadable == 0


@given(
    name=WORD,
    labels=st.dictionaries(WORD, st.text(max_size=12), max_size=3),
    value=st.floats(),
    spaces=st.sampled_from(["", " ", "  "]),
)
def test_any_series_survives_the_way_through_text(
    name: str, labels: dict[str, str], value: float, spaces: str
) -> None:
    body = ",".join(f'{spaces}{k}{spaces}="{escaped(v)}"' for k, v in labels.items())
    braces = "{" + body + "}" if labels else ""
    line = f"{name}{braces} {value!r}\n"
    found = parse_metrics(f"# HELP x y\n{line}")
    if "\r" in line:
        return
    assert len(found) == 1
    assert (found[0].name, found[0].labels) == (name, labels)
    same = found[0].value
    assert same == value or (math.isnan(same) and math.isnan(value))


@given(st.text())
def test_no_text_raises(text: str) -> None:
    parse_metrics(text)


def test_a_line_that_is_no_sample_is_counted_and_costs_no_other() -> None:
    reader = MetricsReader()
    values = reader.read('a 1\nb{x="y} 2\nc{x="}"} 3 1700000000000\n7 7\nd\ne nope\n')
    assert [(v.name, v.value) for v in values] == [("a", 1.0), ("c", 3.0)]
    assert values[1].labels == {"x": "}"}
    assert reader.n_unreadable == 4


def test_snapshots_of_one_reader_share_their_labels() -> None:
    reader = MetricsReader()
    first, second = reader.read('a{x="y"} 1\n'), reader.read('a{x="y"} 2\n')
    assert first[0].labels is second[0].labels
    assert (first[0].value, second[0].value) == (1.0, 2.0)
