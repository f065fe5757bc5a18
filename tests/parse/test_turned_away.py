"""Lines that are turned away unread still say when, and that somebody works."""

from stepscope.parse.log.bars import Bars
from stepscope.parse.log.plain import PlainLines
from stepscope.parse.log.shapes import Dull, Shapes, shape_of
from stepscope.parse.serverlog import parse_log
from stepscope.run.serverlog import ServerLog


def vllm(who: str, at: str, text: str, level: str = "INFO") -> str:
    return f"({who}) {level} 05-02 10:{at} [some.py:1] {text}\n"


def parsed(*lines: str) -> ServerLog:
    head = vllm("APIServer pid=1", "00:00", "vLLM API server version 0.19.0")
    return parse_log("".join((head, *lines)).encode())


def test_a_shape_leaves_numbers_out_and_keeps_the_process() -> None:
    one = b"(Worker_TP3 pid=33) INFO 05-02 10:00:01 [a.py:1] Wrote 12 of 99"
    assert shape_of(one) == shape_of(one.replace(b"12", b"73").replace(b":01", b":58"))
    assert shape_of(one) != shape_of(one.replace(b"TP3", b"TP4"))
    assert shape_of(one) != shape_of(one.replace(b"12", b"123"))


def test_what_was_learnt_is_forgotten_before_it_grows_without_bound() -> None:
    shapes, word = Shapes(), ""
    for n in range(20_000):
        word = "".join(chr(97 + n // 26**k % 26) for k in range(4))
        shapes.learn(word.encode(), Dull(stamped=False))
    assert len(shapes._known) <= 8192
    assert shapes.skips(1, word.encode())


def test_a_process_that_goes_on_with_dull_lines_has_outlived_its_exception() -> None:
    failed = vllm("Worker_TP0 pid=5", "00:05", "ValueError: odd", "ERROR")
    dull = "".join(
        vllm("Worker_TP0 pid=5", f"{n // 60:02d}:{n % 60:02d}", f"Routine {n} is done")
        for n in range(600)
    )
    other = dull.replace("TP0 pid=5", "TP1 pid=6")
    assert [f.survived for f in parsed(dull, failed, dull).failures] == [True]
    assert [f.survived for f in parsed(dull, failed, other).failures] == [False]


def test_the_time_of_a_line_that_was_turned_away_dates_the_next_one_without() -> None:
    dull = "".join(
        vllm("APIServer pid=1", f"00:{n:02d}", f"Route {n} is there") for n in range(50)
    )
    log = parsed(dull, "(APIServer pid=1) INFO:     Application startup complete.\n")
    assert log.boot.seconds_to_ready == 49.0
    assert log.boot.last_at_s is not None
    assert log.boot.first_at_s is not None


def test_a_rule_that_asks_for_a_number_is_not_fooled_by_another_number() -> None:
    log = parsed(
        vllm("EngineCore pid=2", "00:01", "Using V1 Model Runner"),
        vllm("EngineCore pid=2", "00:02", "Using V1 Model Runner"),
        vllm("EngineCore pid=2", "00:03", "Using V2 Model Runner"),
    )
    assert log.resolved["model_runner"] == "v2"
    assert log.resolved_lines["model_runner"] == 4


def bar(k: int, total: int = 67) -> bytes:
    text = (
        f"Capturing CUDA graphs (decode, FULL): {100 * k // total:3d}%|##| {k}/{total}"
        " [00:01<00:01, 9it/s]"
    )
    return text.encode()


def test_of_a_climbing_bar_the_first_and_the_last_state_are_read() -> None:
    bars = Bars()
    told = [bars.holds(n, bar(n)) for n in range(68)]
    assert told == [False, *[True] * 67]
    assert bars.taken() == [(67, bar(67))]
    assert bars.taken() == []


def test_a_bar_that_falls_back_has_begun_anew() -> None:
    bars = Bars()
    bars.holds(1, bar(0))
    bars.holds(2, bar(60))
    assert bars.holds(3, bar(0)) is False
    assert bars.taken() == [(2, bar(60))]
    assert bars.holds(4, b"42% of nothing") is None


def test_bars_of_a_state_a_line_count_every_graph() -> None:
    lines = b"\n".join(bar(n) for n in range(68)).decode() + "\n"
    log = parsed(lines)
    assert [p.n_graphs for p in log.capture_passes] == [67]
    assert log.boot.last_progress_line == 69


def test_harmless_words_are_known_and_dangerous_ones_never_are() -> None:
    lines = PlainLines(frozenset({b"Loading"}))
    assert lines.has(b"the quick brown fox")
    assert lines.has(b"fox brown quick the")
    for loud in (
        b"the quick MemoryError fox",
        b"fox was killed",
        b"(EngineCore pid=1) the quick fox",
        b"Loading the quick fox",
        b"7 quick foxes",
        b"brown fox: 12%| 3/9",
        b"name-1  | the quick fox",
        b"",
    ):
        assert not lines.has(loud), loud
