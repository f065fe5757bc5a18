"""What ``stepscope bench`` saves, held against what ``vllm bench serve`` saved."""

import csv
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.cli.test_bench import MODELS, bench, quick
from tests.load.scripted import Exchange, ScriptedServer, answer, stream, text, usage

from stepscope.load.bench_result import chunks, samples, statistics, totals
from stepscope.load.columns import columns
from stepscope.load.speculation import Drafts, speculation
from stepscope.parse.vllm_bench import read_result

DATA = Path(__file__).parents[1] / "data" / "bench"
#: Saved by vLLM 0.32 with the flags below against a server of known times.
REFERENCE = json.loads((DATA / "vllm-0.32.json").read_text())
FLAGS = (
    *("--num-prompts", "4", "--max-concurrency", "2", "--random-input-len", "8"),
    *("--random-output-len", "4", "--ignore-eos"),
    *("--percentile-metrics", "ttft,tpot,itl,e2el"),
    *("--metric-percentiles", "50,90,99.9", "--goodput", "ttft:100", "tpot:25"),
    *("--metadata", "team=a", "--save-result", "--save-detailed", "--disable-tqdm"),
)


def saved(tmp_path: Path, *words: str) -> dict[str, Any]:
    with ScriptedServer(lambda e: e.write(answer()), MODELS) as server:
        done = bench(
            *("--backend", "openai", "--base-url", server.url, *FLAGS, *words),
            *("--result-dir", str(tmp_path), "--result-filename", "r.json"),
        )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads((tmp_path / "r.json").read_text())
    return found


def kind(value: object) -> str:
    if isinstance(value, bool) or value is None:
        return str(value)
    if isinstance(value, (int, float)):
        return "number"
    if isinstance(value, list):
        return f"list of {len(value)} {kind(value[0]) if value else ''}"
    return type(value).__name__


def test_every_field_of_vllms_is_there_in_its_order_with_its_type(
    tmp_path: Path,
) -> None:
    found = saved(tmp_path)
    shared = [name for name in found if name in REFERENCE]
    assert shared == list(REFERENCE)
    kinds = {name: kind(found[name]) for name in REFERENCE}
    assert kinds == {name: kind(value) for name, value in REFERENCE.items()}


def test_a_script_written_for_vllms_result_reads_ours(tmp_path: Path) -> None:
    for result in (REFERENCE, saved(tmp_path)):
        assert result["completed"] + result["failed"] == result["num_prompts"]
        tokens = sum(result["output_lens"])
        assert tokens == result["total_output_tokens"] == 16
        rate = result["output_throughput"]
        assert rate == pytest.approx(tokens / result["duration"])
        for ttft, itl, latency in zip(
            result["ttfts"], result["itls"], result["latencies"], strict=True
        ):
            assert ttft + sum(itl) == pytest.approx(latency, rel=1e-3)
        middle = result["median_ttft_ms"]
        assert middle == pytest.approx(result["p50_ttft_ms"])
        good = result["request_goodput"]
        assert good == pytest.approx(result["request_throughput"])
        assert all(q >= 0 for q in result["queue_times"])


def test_our_formulas_on_vllms_raw_times_give_vllms_own_figures() -> None:
    saved = json.loads((DATA / "vllm-0.32-rate.json").read_text())
    requests = read_result(saved).requests
    queued = [
        msgspec.structs.replace(r, intended_at_ns=r.sent_at_ns - round(queue * 1e9))
        for r, queue in zip(requests, saved["queue_times"], strict=True)
    ]
    percentiles = (50.0, 90.0, 99.9)
    cell = columns(requests)
    itl = chunks(requests, cell, percentiles).gaps
    ours = statistics(samples(cell), itl, ("ttft", "tpot", "itl", "e2el"), percentiles)
    queues = ("client_queue_time", "e2el_including_client_queue")
    ours |= statistics(samples(columns(queued)), itl, queues, percentiles)
    assert len(ours) == 6 * 6
    for name, value in ours.items():
        assert value == pytest.approx(saved[name], rel=1e-5, abs=1e-5), name
    found = totals(cell, {"ttft": 46.0, "tpot": 25.0})
    assert found["request_goodput"] * found["duration"] == pytest.approx(3)
    theirs = saved["request_goodput"] * saved["duration"]
    assert theirs == pytest.approx(3)
    for name in ("completed", "failed", "total_input_tokens", "total_output_tokens"):
        assert found[name] == saved[name], name
    # Its clock starts before the first request is due; ours with the first send.
    assert found["duration"] < saved["duration"]
    for name in ("output_throughput", "request_throughput", "total_token_throughput"):
        counted = saved[name] * saved["duration"]
        assert found[name] * found["duration"] == pytest.approx(counted), name


def test_vllms_queue_metrics_are_taken_by_their_names(tmp_path: Path) -> None:
    names = "ttft,client_queue_time,e2el_including_client_queue"
    found = saved(tmp_path, "--percentile-metrics", names)
    assert found["mean_client_queue_time_ms"] >= 0
    whole = found["mean_e2el_including_client_queue_ms"]
    mean = 1e3 * sum(found["latencies"]) / 4
    assert whole == pytest.approx(mean + found["mean_client_queue_time_ms"])


def test_each_run_is_a_row_of_the_csv_under_one_header(tmp_path: Path) -> None:
    path = tmp_path / "all.csv"
    for _ in range(2):
        with ScriptedServer(lambda e: e.write(answer()), MODELS) as server:
            done = quick(server, "--save-csv", str(path), "--metric-percentiles", "95")
        assert done.returncode == 0, done.stderr
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["completed"] for row in rows] == ["6", "6"]
    assert float(rows[0]["p95_ttft_ms"]) > 0
    assert rows[0]["client_verdict"] in {"ok", "limited"}
    assert rows[0]["server_tpot_ms"] == ""
    with ScriptedServer(lambda e: e.write(answer()), MODELS) as server:
        done = quick(server, "--save-csv", str(path), "--metric-percentiles", "50")
    assert done.returncode == 2
    assert "columns" in done.stderr


def test_a_result_file_named_csv_is_one(tmp_path: Path) -> None:
    with ScriptedServer(lambda e: e.write(answer()), MODELS) as server:
        where = ("--result-dir", str(tmp_path), "--result-filename", "r.csv")
        done = quick(server, "--save-result", *where)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "r.csv").read_text().startswith("date,")


def counters(n: int) -> bytes:
    return (
        f'vllm:spec_decode_num_drafts_total{{engine="0"}} {n}.0\n'
        f'vllm:spec_decode_num_draft_tokens_total{{engine="0"}} {3 * n}.0\n'
        f'vllm:spec_decode_num_accepted_tokens_total{{engine="0"}} {2 * n}.0\n'
        "vllm:spec_decode_num_accepted_tokens_per_pos_total"
        f'{{engine="0",position="0"}} {n}.0\n'
        "vllm:spec_decode_num_accepted_tokens_per_pos_total"
        f'{{engine="0",position="1"}} {n // 2}.0\n'
    ).encode()


def test_tokens_per_step_come_from_the_servers_counters_and_gaps_are_of_events(
    tmp_path: Path,
) -> None:
    others = {**MODELS, "/metrics": counters(10)}

    def two_a_step(exchange: Exchange) -> None:
        others["/metrics"] = counters(10 + 2 * exchange.number)
        exchange.write(stream(text(" a b"), text(" c d"), usage(4)))

    server = ScriptedServer(two_a_step, others)
    with server:
        words = ("--num-warmups", "0", "--result-filename", "r.json", "--save-result")
        done = quick(server, *words, "--result-dir", str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert "Tokens per step and sequence:            3.00" in done.stdout
    found = json.loads((tmp_path / "r.json").read_text())
    assert found["spec_decode_num_drafts"] == 12
    assert found["spec_decode_acceptance_length"] == 3
    assert found["spec_decode_acceptance_rate"] == pytest.approx(200 / 3)
    assert found["spec_decode_per_position_acceptance_rates"] == [1.0, 0.5]
    assert found["client"]["tokens_per_chunk_mean"] == 2


def drafts_at(n: int) -> Drafts:
    return Drafts(
        n_drafts=n,
        n_draft_tokens=3 * n,
        n_accepted_tokens=2 * n,
        accepted_by_position={0: n, 1: n / 2},
    )


def test_a_restart_or_no_drafts_gives_no_figures() -> None:
    assert speculation(drafts_at(30), drafts_at(10)) == {}
    assert speculation(drafts_at(10), drafts_at(10)) == {}
    assert speculation(None, drafts_at(10)) == {}


def test_the_wire_is_chosen_by_flags_and_the_key_is_told_to_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-the-environment-123456")
    key = tmp_path / "key"
    key.write_text("sk-of-the-file-123456789\n")
    where = ("--save-result", "--result-dir", str(tmp_path), "--result-filename", "r")
    load = ("--num-prompts", "4", "--max-concurrency", "2", "--input-len", "8")
    with ScriptedServer(
        lambda e: e.write(answer()), MODELS, path=tmp_path / "s"
    ) as server:
        done = bench(
            *("--unix-socket", str(tmp_path / "s"), "--api-key-file", str(key)),
            *("--output-len", "4", *load, *where),
        )
    assert done.returncode == 0, done.stderr
    assert all(b"Bearer sk-of-the-file-123456789\r" in r for r in server.requests)
    saved_text = (tmp_path / "r").read_text()
    assert json.loads(saved_text)["client"]["stamps"] == "user"
    assert "sk-of-the" not in done.stdout + done.stderr + saved_text
    assert "P99 delay, user stamps (ms):" in done.stdout
    with ScriptedServer(lambda e: e.write(answer()), MODELS) as server:
        assert quick(server).returncode == 0
    assert all(b"Bearer sk-of-the-environment-123456\r" in r for r in server.requests)


def test_several_base_urls_are_replicas_and_each_is_told(tmp_path: Path) -> None:
    with (
        ScriptedServer(lambda e: e.write(answer()), MODELS) as one,
        ScriptedServer(lambda e: e.write(answer()), MODELS) as other,
    ):
        done = quick(
            one,
            *("--base-url", other.url, "--save-result", "--result-filename", "r"),
            *("--result-dir", str(tmp_path)),
        )
        urls = [one.url, other.url]
    assert done.returncode == 0, done.stderr
    told = json.loads((tmp_path / "r").read_text())["replicas"]
    assert [part["base_url"] for part in told] == urls
    assert sum(part["completed"] for part in told) == 6
    assert all(part["completed"] > 0 and part["failed"] == 0 for part in told)
