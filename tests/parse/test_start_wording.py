"""What single lines of a start mean, in the wording of their versions."""

import pytest

from stepscope.analysis.boot.explain import audited_suggestions, kv_reading
from stepscope.parse.serverlog import parse_log
from stepscope.run.serverlog import ServerLog


def vllm(version: str, *lines: str, args: str = "{'model': 'm'}") -> ServerLog:
    head = "(EngineCore pid=2) INFO 06-02 09:00:{:02d} [a.py:1] {}\n"
    told = [
        f"vLLM API server version {version}",
        f"non-default args: {args}",
        f"Initializing a V1 LLM engine (v{version}) with config: model='m',"
        " max_seq_len=8192, tensor_parallel_size=1",
        *lines,
    ]
    return parse_log(
        "".join(head.format(n, text) for n, text in enumerate(told)).encode()
    )


def test_the_arguments_that_vllm_0_8_printed_are_the_ones_that_are_set() -> None:
    log = parse_log(
        b"INFO 04-20 10:00:00 [api_server.py:1034] vLLM API server version 0.8.4\n"
        b"INFO 04-20 10:00:00 [api_server.py:1035] args: Namespace(subparser='serve',"
        b" model='/m/foo', host=None, port=8000, enable_ssl_refresh=False,"
        b" gpu_memory_utilization=0.5, max_num_seqs=None,"
        b" dispatch_function=<function f at 0x7f>)\n"
    )
    assert log.non_default_args == {
        "model": "/m/foo",
        "port": 8000,
        "gpu_memory_utilization": 0.5,
    }
    assert log.resolved_lines["gpu_memory_utilization"] == 2


@pytest.mark.parametrize(
    ("line", "version"),
    [
        ("[2026-06-02 09:00:00 TP0] NCCL version 2.27.3+cuda12.9", None),
        ("INFO 06-02 09:00:00 [a.py:1]  \u2588\u2584\u2588\u2580 version 0.30.1",
         "0.30.1"),
        ("INFO 06-02 09:00:00 [a.py:1] vLLM API server version 0.9.2", "0.9.2"),
        ("INFO 06-02 09:00:00 [a.py:1] Using FlashAttention version 3", None),
    ],
)  # fmt: skip
def test_only_an_engine_tells_its_version(line: str, version: str | None) -> None:
    assert parse_log(line.encode() + b"\n").version == version


def test_ranks_of_sglang_capture_at_the_same_time() -> None:
    lines = "".join(
        f"[2026-06-02 09:01:1{n} TP{rank}] Capture {kind} CUDA graph end. bs=[1, 2, 4],"
        f" elapsed={8 + rank}.50 s, mem usage=0.50 GB, avail mem=21.50 GB.\n"
        for n, kind in enumerate(("decode", "prefill"))
        for rank in (0, 1)
    )
    log = parse_log(lines.encode())
    (capture,) = log.capture_passes
    assert (capture.seconds, capture.gib) == (19.0, 1.0)  # Rank 1: 9.5 and 9.5 s.
    assert [p.seconds for p in log.phases if p.name == "graph_capture"] == [19.0]
    assert log.ledger.graph_actual_gib == 1.0


def test_sglang_requests_no_share_of_the_device() -> None:
    log = parse_log(
        b"[2026-06-02 09:00:00] server_args=ServerArgs(model_path='m',"
        b" mem_fraction_static=0.83)\n"
        b"[2026-06-02 09:00:09 TP0] Load weight begin. avail mem=31.20 GB\n"
        b"[2026-06-02 09:00:19 TP0] Scheduler hit an exception: Traceback (most recent"
        b" call last):\n"
        b'  File "/x/loader.py", line 3, in load_model\n'
        b"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.00 GiB. GPU 0"
        b" has a total capacity of 79.11 GiB of which 0.50 GiB is free.\n"
    )
    assert log.ledger.device_gib == 79.11
    assert log.ledger.requested_gib is None


def test_blocks_that_were_asked_for_are_not_the_cache_that_would_fit() -> None:
    log = vllm(
        "0.24.0",
        "Overriding num_gpu_blocks=0 with num_gpu_blocks_override=2048",
        "Available KV cache memory: 24.0 GiB",
        "Overriding num_gpu_blocks=12288 with num_gpu_blocks_override=2048",
        "GPU KV cache size: 32,768 tokens",
        "Maximum concurrency for 8,192 tokens per request: 4.00x",
    )
    reading = kv_reading(log)
    # A sixth of the blocks: 4 GiB for 32,768 tokens.
    assert reading.bytes_per_token == 4 * 2**30 / 32768
    assert reading.request_gib == 1.0
    assert "2,048 blocks" in reading.text
    assert log.resolved_lines["n_blocks"] == 6


def test_the_hint_that_counts_graphs_twice_is_mended_by_their_estimate() -> None:
    # 128.62 requested - 82.5 consumed - 6.12 peak (1.10 of it for graphs) - 1.80
    # - 0.15 = 38.05; with what the graphs took instead of the estimate it is 39.15.
    hint = int((128.62 - 82.5 - 6.12 - 1.8 - 150 / 1024) * 2**30)
    log = vllm(
        "0.30.0",
        "Model loading took 80.0 GiB memory and 82.500000 seconds",
        "Available KV cache memory: 40.0 GiB",
        "CUDA graph memory profiling is enabled (default since v0.21.0). The current"
        " --gpu-memory-utilization=0.9200 is equivalent to"
        " --gpu-memory-utilization=0.9121 without CUDA graph memory profiling. To"
        " maintain the same effective KV cache size as before, increase"
        " --gpu-memory-utilization to 0.9279. To disable, set"
        " VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS=0.",
        "Graph capturing finished in 20 secs, took 1.8 GiB",
        "Free memory on device (139.2/139.8 GiB) on startup. Desired GPU memory"
        " utilization is (0.92, 128.62 GiB). Actual usage is 82.5 GiB for consumed"
        " memory (weights + non-torch), 6.12 GiB for peak activation, and 1.8 GiB for"
        " CUDAGraph memory. Replace gpu_memory_utilization config with"
        f" `--kv-cache-memory={hint}` (38.05 GiB) to fit into requested memory, or"
        " `--kv-cache-memory=52219839774` (48.63 GiB) to fully utilize gpu memory."
        " Current kv cache memory in use is 40.0 GiB.",
    )
    assert log.ledger.graph_estimate_gib == 1.1
    fit = next(s for s in audited_suggestions(log) if s.flag == "--kv-cache-memory")
    assert fit.sound is False
    assert isinstance(fit.better, int)
    assert fit.better / 2**30 == pytest.approx(39.15, abs=0.01)
    assert "estimate of 1.1 GiB" in fit.why
    assert "1.8 GiB that they took" in fit.why


LISTED = (
    "0.00.228.419 I device_info:\n"
    "0.00.228.419 I   - CUDA0   : NVIDIA GeForce RTX 3090 (24123 MiB, 23552 MiB free)\n"
    "0.00.228.420 I   - CUDA1   : NVIDIA GeForce RTX 3090 (24123 MiB, 23040 MiB free)\n"
    "0.00.228.426 I   - CPU     : CPU (31169 MiB, 31169 MiB free)\n"
    "0.00.229.743 I srv          main: loading model\n"
)
USED = (
    "0.00.330.001 I llama_model_load_from_file_impl: using device CUDA0 (NVIDIA GeForce"
    " RTX 3090) (0000:01:00.0) - 23500 MiB free\n"
)


@pytest.mark.parametrize(
    ("text", "n_gpus", "free_mib"),
    [(LISTED, 2, 23552 + 23040), (LISTED + USED, 1, 23500), (USED, 1, 23500)],
)
def test_llama_server_lists_gpus_and_says_which_it_uses(
    text: str, n_gpus: int, free_mib: int
) -> None:
    log = parse_log(text.encode(), "llamacpp")
    assert log.resolved["n_gpus"] == n_gpus
    assert log.ledger.free_at_start_gib == pytest.approx(free_mib / 1024, abs=1e-3)


def test_a_release_without_an_estimate_has_none_in_what_is_unaccounted() -> None:
    lines = (
        "Initial free memory: 79.50 GiB, requested memory: 0.9 (util), 72.00 GiB",
        "Model loading took 20.0 GiB memory and 8.500000 seconds",
        "Available KV cache memory: 40.0 GiB",
    )
    for version, named in (("0.17.1", False), ("0.18.0", True)):
        ledger = vllm(version, *lines).ledger
        assert ledger.unaccounted_gib == 12.0  # 72 requested, 20 and 40 taken.
        assert ("graph estimate" in (ledger.unaccounted_name or "")) is named


@pytest.mark.parametrize(
    ("value", "free", "sound"), [(0.9358, 78.5, True), (0.99, 78.5, False),
                                 (0.95, 70.0, False)],
)  # fmt: skip
def test_a_share_that_is_not_there_is_no_sound_hint(
    value: float, free: float, sound: bool
) -> None:
    log = vllm(
        "0.26.0",
        f"Initial free memory: {free} GiB, requested memory: 0.9 (util), 71.20 GiB",
        "CUDA graph memory profiling is enabled (default since v0.21.0). The current"
        " --gpu-memory-utilization=0.9000 is equivalent to"
        " --gpu-memory-utilization=0.8642 without CUDA graph memory profiling. To"
        " maintain the same effective KV cache size as before, increase"
        f" --gpu-memory-utilization to {value}. To disable, set"
        " VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS=0.",
    )
    (hint,) = audited_suggestions(log)
    assert (hint.value, hint.sound) == (value, sound), hint
