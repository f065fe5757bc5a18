"""``stepscope bench`` as a user runs it, against a scripted server."""

import gzip
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from tests.load.scripted import ScriptedServer, answer, stream, text, usage

from stepscope.importers.load import load_foreign

SHARED = Path(__file__).parents[2].parent / "shared" / "data"
MODELS = {"/v1/models": b'{"data":[{"id":"org/m","meta":{"n_vocab":4096}}]}'}


def bench(*words: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "stepscope", "bench", *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def quick(server: ScriptedServer, *words: str) -> "subprocess.CompletedProcess[str]":
    return bench(
        *("--base-url", server.url, "--num-prompts", "6", "--max-concurrency", "2"),
        *("--input-len", "8", "--output-len", "4", *words),
    )


def test_the_saved_result_has_every_field_of_vllms_own(tmp_path: Path) -> None:
    path = SHARED / "h200x1-qwen3moe-baseline" / "c8_0.json.gz"
    if not path.exists():
        pytest.skip("the recorded runs are not beside the repository")
    reference = json.loads(gzip.decompress(path.read_bytes()))
    with ScriptedServer(lambda e: e.write(answer()), MODELS) as server:
        done = quick(
            server,
            *(
                "--metric-percentiles",
                "50,90,99",
                "--save-detailed",
                "--label",
                "x",
                "--save-result",
            ),
            *("--result-dir", str(tmp_path), "--result-filename", "r.json"),
            *("--metadata", "a=1", "b=2", "--seed", "3"),
        )
    assert done.returncode == 0, done.stderr
    saved = json.loads((tmp_path / "r.json").read_text())
    assert set(reference) - set(saved) == set()
    for name, value in reference.items():
        if value is not None and saved[name] is not None:
            number = (int, float)
            kind = number if isinstance(value, number) else type(value)
            assert isinstance(saved[name], kind), name
        if isinstance(value, list):
            assert len(saved[name]) == 6, name
    assert (saved["a"], saved["b"], saved["label"], saved["seed"]) == ("1", "2", "x", 3)
    assert saved["generated_texts"] == [" t0 t1 t2 t3"] * 6
    assert saved["input_lens"] == [8] * 6
    assert saved["client"]["verdict"] in {"ok", "limited"}


def test_its_statistics_follow_from_its_own_details(tmp_path: Path) -> None:
    with ScriptedServer(lambda e: e.write(answer()), MODELS) as server:
        done = quick(
            server,
            *("--save-result", "--save-detailed", "--result-dir", str(tmp_path)),
            *("--result-filename", "r.json", "--goodput", "ttft:60000", "e2el:60000"),
        )
    assert done.returncode == 0, done.stderr
    saved = json.loads((tmp_path / "r.json").read_text())
    ttft, e2el = np.array(saved["ttfts"]), np.array(saved["latencies"])
    tpot = (e2el - ttft) / (np.array(saved["output_lens"]) - 1)
    itl = np.concatenate([np.array(x) for x in saved["itls"]])
    for name, values in {"ttft": ttft, "tpot": tpot, "itl": itl, "e2el": e2el}.items():
        assert saved[f"mean_{name}_ms"] == pytest.approx(1e3 * values.mean())
        assert saved[f"std_{name}_ms"] == pytest.approx(1e3 * values.std())
        expected = 1e3 * np.percentile(values, 99)
        assert saved[f"p99_{name}_ms"] == pytest.approx(expected)
    assert saved["output_throughput"] == pytest.approx(24 / saved["duration"])
    assert saved["request_goodput"] == pytest.approx(6 / saved["duration"])


def test_our_own_importer_reads_what_was_saved(tmp_path: Path) -> None:
    with ScriptedServer(lambda e: e.write(answer()), MODELS) as server:
        quick(
            server,
            *("--save-result", "--save-detailed", "--result-dir", str(tmp_path)),
            *("--result-filename", "r.json"),
        )
    run = load_foreign(tmp_path / "r.json")
    assert len(run.cells[0].requests) == 6
    assert run.cells[0].workload.concurrency == 2


def test_the_table_has_vllms_lines(tmp_path: Path) -> None:
    with ScriptedServer(lambda e: e.write(answer()), MODELS) as server:
        done = quick(server)
    assert done.returncode == 0
    for line in (
        "============ Serving Benchmark Result ============",
        "Successful requests:                     6         ",
        "Maximum request concurrency:             2         ",
        "Total input tokens:                      48        ",
        "Total generated tokens:                  24        ",
        "---------------Time to First Token----------------",
        "-----Time per Output Token (excl. 1st token)------",
        "---------------Inter-token Latency----------------",
        "----------------End-to-end Latency----------------",
    ):
        assert line in done.stdout
    assert "warm-up: 2 requests" in done.stderr
    assert "seed " in done.stderr
    assert "\r" not in done.stderr  # a log has no use for a moving line


def test_json_puts_one_document_on_stdout_and_nothing_else() -> None:
    with ScriptedServer(lambda e: e.write(answer()), MODELS) as server:
        done = quick(server, "--json", "--num-warmups", "0")
    document = json.loads(done.stdout)
    assert (document["completed"], document["failed"]) == (6, 0)
    assert document["model_id"] == "org/m"
    assert len(server.requests) == 7  # one looked, none warmed up


def test_failed_requests_are_counted_by_kind_and_kept_out_of_the_latencies() -> None:
    bad = b"HTTP/1.1 500 X\r\ncontent-length: 2\r\n\r\nno"
    with ScriptedServer(
        lambda e: e.write(bad if e.number == 3 else answer()), MODELS
    ) as server:
        done = quick(server, "--json", "--num-warmups", "0", "--save-detailed")
    document = json.loads(done.stdout)
    assert (document["completed"], document["failed"]) == (5, 1)
    assert document["failures"] == {"http-status": 1}
    assert sum(error.startswith("http-status") for error in document["errors"]) == 1
    assert document["ttfts"].count(None) == 1


def test_answers_that_end_early_are_told(tmp_path: Path) -> None:
    short = stream(text("a"), usage(1))
    with ScriptedServer(lambda e: e.write(short), MODELS) as server:
        done = quick(server, "--json")
    assert "6 of 6 ended before" in done.stderr
    document = json.loads(done.stdout)
    assert document["mean_tpot_ms"] is None
    assert document["mean_itl_ms"] is None


@pytest.mark.parametrize(
    "words",
    [
        ("--request-rate", "0"),
        ("--request-rate", "fast"),
        ("--request-rate", "5", "--burstiness", "0"),
        ("--ramp-up-strategy", "linear"),
        ("--dataset-name", "sharegpt"),
        ("--dataset-name", "nothing"),
        ("--dataset-name", "custom", "--dataset-path", "/nowhere"),
        ("--random-range-ratio", "1.0"),
        ("--replay",),
        ("--goodput", "ttft"),
        ("--goodput", "speed:3"),
        ("--metric-percentiles", "101"),
        ("--percentile-metrics", "tps"),
        ("--metadata", "novalue"),
        ("--extra-body", "[1]"),
        ("--max-concurrency", "0"),
        ("--base-url", "ftp://x"),
        ("--no-such-flag",),
    ],
)
def test_wrong_flags_are_one_line_and_exit_2(words: tuple[str, ...]) -> None:
    done = bench("--model", "m", *words)
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_a_server_that_is_not_there_exits_3() -> None:
    with ScriptedServer(lambda _: None) as server:
        url = server.url
    done = bench("--base-url", url, "--model", "m")
    assert done.returncode == 3
    assert len(done.stderr.splitlines()) == 1
    assert "refused" in done.stderr


def test_a_server_that_refuses_token_ids_gets_text() -> None:
    refusal = b"HTTP/1.1 422 X\r\ncontent-length: 2\r\n\r\nno"
    with ScriptedServer(
        lambda e: e.write(refusal if b'"prompt":[' in e.request else answer()), MODELS
    ) as server:
        done = quick(server, "--json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert (document["prompt_form"], document["completed"]) == ("text", 6)


def test_a_rate_is_saved_as_vllm_saves_it(tmp_path: Path) -> None:
    with ScriptedServer(lambda e: e.write(answer()), MODELS) as server:
        done = bench(
            *("--base-url", server.url, "--num-prompts", "20", "--request-rate", "100"),
            *("--burstiness", "2", "--input-len", "8", "--output-len", "4"),
            *("--save-result", "--save-detailed", "--result-dir", str(tmp_path)),
            *(
                "--percentile-metrics",
                "e2el,client_queue_time,e2el_including_client_queue",
            ),
        )
    assert done.returncode == 0, done.stderr
    (path,) = tmp_path.iterdir()
    assert path.name.startswith("openai-100.0qps-m-")
    saved = json.loads(path.read_text())
    assert (saved["request_rate"], saved["burstiness"]) == (100.0, 2.0)
    assert saved["max_concurrency"] is None
    assert saved["duration"] >= 0.15
    assert len(saved["queue_times"]) == 20
    assert min(saved["queue_times"]) >= 0
    assert saved["mean_client_queue_time_ms"] >= 0
    whole = saved["mean_e2el_including_client_queue_ms"]
    assert whole == pytest.approx(saved["mean_e2el_ms"])


def test_a_bad_line_of_a_data_set_is_the_only_line(tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    path.write_text('{"prompt": "a"}\n{"prompt": 1}\n')
    done = bench(
        *("--model", "m", "--dataset-name", "custom", "--dataset-path", str(path)),
        *("--num-prompts", "2"),
    )
    assert done.returncode == 2
    assert done.stdout == ""
    assert f"{path}: line 2" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--header", "\N{LATIN SMALL LETTER E WITH ACUTE}=x"), "no name of a header"),
        (("--header", "a b=x"), "no name of a header"),
        (("--seed", "99999999999999999999"), "--seed"),
        (("--seed", "-1"), "--seed"),
    ],
)
def test_what_can_not_be_sent_is_told_before_anything_is(
    words: tuple[str, ...], told: str
) -> None:
    with ScriptedServer(lambda e: e.write(answer()), MODELS) as server:
        done = quick(server, *words)
    assert done.returncode == 2
    assert told in done.stderr.splitlines()[-1]


@pytest.mark.parametrize(
    "flags",
    [
        ("--save-result", "--result-dir", "{}/file"),
        ("--save-result", "--result-dir", "{}", "--result-filename", "folder"),
        ("--save-csv", "{}/folder"),
    ],
)
def test_a_result_that_can_not_be_kept_is_told_before_the_load(
    tmp_path: Path, flags: tuple[str, ...]
) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "folder").mkdir()
    # Nothing listens there: a load, or a probe, would be another error.
    done = bench(
        *("--base-url", "http://127.0.0.1:9", "--model", "m", "--num-prompts", "1"),
        *(flag.format(tmp_path) for flag in flags),
    )
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert str(tmp_path) in done.stderr
