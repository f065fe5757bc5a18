"""How each load client is started for the same load, and where it writes its figures.

Every client keeps its defaults where the load does not say otherwise: no warm-up, text
or token ids of 128 tokens, a closed loop. Figures are milliseconds; None where a client
has none of that meaning. GuideLLM and AIPerf call TPOT "inter token latency"; GuideLLM
keeps no single gaps, so that it has no p99 ITL.
"""

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Load:
    """The load of one run."""

    url: str
    n: int
    concurrency: int
    output_tokens: int
    tokenizer: str
    folder: Path
    input_tokens: int = 128
    model: str = "tiny"


@dataclass(frozen=True, slots=True)
class Figures:
    """What a client says of the load."""

    ttft_ms: float
    tpot_ms: float
    p99_itl_ms: float | None
    n_ok: int
    verdict: str | None = None
    tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Client:
    """A client: its command for a load, and its figures from the load's folder."""

    command: Callable[[str, Load], list[str]]
    figures: Callable[[Path], Figures]
    environment: dict[str, str | None]


def _vllm_flags(load: Load) -> list[str]:
    return [
        *("--backend", "openai", "--base-url", load.url),
        *("--model", load.model),
        *("--dataset-name", "random", "--num-prompts", str(load.n)),
        *("--random-input-len", str(load.input_tokens)),
        *("--random-output-len", str(load.output_tokens), "--ignore-eos"),
        *("--max-concurrency", str(load.concurrency), "--disable-tqdm"),
        *("--percentile-metrics", "ttft,tpot,itl,e2el", "--save-result"),
        *("--result-dir", str(load.folder), "--result-filename", "result.json"),
    ]


def _stepscope(program: str, load: Load) -> list[str]:
    return [program, "bench", *_vllm_flags(load), "--num-warmups", "0"]


def _vllm(program: str, load: Load) -> list[str]:
    flags = ["--tokenizer", load.tokenizer, "--endpoint", "/v1/completions"]
    return [program, "bench", "serve", *_vllm_flags(load), *flags]


def _vllm_figures(folder: Path) -> Figures:
    found = json.loads((folder / "result.json").read_text())
    return Figures(
        found["mean_ttft_ms"],
        found["mean_tpot_ms"],
        found["p99_itl_ms"],
        found["completed"],
        found.get("client", {}).get("verdict"),
        found["total_output_tokens"],
    )


#: The Rust client is an extension module that needs nothing else of its wheel.
_LOAD_RUST = """
import glob, importlib.machinery as m, importlib.util as u, sys, sysconfig
path = glob.glob(sysconfig.get_path("platlib")
                 + "/sglang/srt/rust_extensions/_bench*.so")[0]
name = "sglang.srt.rust_extensions._bench"
spec = u.spec_from_file_location(name, path)
module = u.module_from_spec(spec)
spec.loader.exec_module(module)
module.run_argv(["sglang-bench", *sys.argv[1:]])
"""


def _sglang_rust(python: str, load: Load) -> list[str]:
    return [
        *(python, "-c", _LOAD_RUST, "--backend", "sglang-oai", "--base-url", load.url),
        *("--model", load.model, "--tokenizer", load.tokenizer),
        *("--dataset-name", "random-ids", "--random-range-ratio", "1.0"),
        *("--random-input-len", str(load.input_tokens)),
        *("--random-output-len", str(load.output_tokens)),
        *("--num-prompts", str(load.n), "--max-concurrency", str(load.concurrency)),
        *("--warmup-requests", "0", "--disable-tqdm"),
        *("--output-file", str(load.folder / "result.jsonl")),
    ]


def _sglang_figures(folder: Path) -> Figures:
    found = json.loads((folder / "result.jsonl").read_text().splitlines()[-1])
    return Figures(
        found["mean_ttft_ms"],
        found["mean_tpot_ms"],
        found["p99_itl_ms"],
        found["completed"],
    )


def _aiperf(program: str, load: Load) -> list[str]:
    return [
        *(program, "profile", "--model", load.model, "--url", load.url),
        "--streaming",
        *("--endpoint-type", "completions", "--tokenizer", load.tokenizer),
        *("--concurrency", str(load.concurrency), "--request-count", str(load.n)),
        *("--isl", str(load.input_tokens), "--osl", str(load.output_tokens)),
        *("--use-legacy-max-tokens", "--use-server-token-count", "--ui", "none"),
        *("--no-gpu-telemetry", "--no-server-metrics"),
        *("--extra-inputs", "ignore_eos:true", "--artifact-dir", str(load.folder)),
    ]


def _aiperf_figures(folder: Path) -> Figures:
    found = json.loads((folder / "profile_export_aiperf.json").read_text())
    return Figures(
        found["time_to_first_token"]["avg"],
        found["inter_token_latency"]["avg"],
        found["inter_chunk_latency"]["p99"],
        int(found["request_count"]["avg"]),
    )


def _guidellm(program: str, load: Load) -> list[str]:
    backend = f"kind=openai_http,model={load.model},request_format=/v1/completions"
    lengths = f"prompt_tokens={load.input_tokens},output_tokens={load.output_tokens}"
    return [
        *(program, "run", "--backend", f"{backend},target={load.url}"),
        *("--profile", f"kind=concurrent,streams={load.concurrency}"),
        *("--constraint", f"kind=max_requests,count={load.n}"),
        *("--tokenizer", f"kind=hf_auto,model={load.tokenizer}"),
        *("--data", f"kind=synthetic_text,{lengths}"),
        *("--output", f"kind=json,path={load.folder / 'result.json'}"),
        "--disable-console-interactive",
    ]


def _guidellm_figures(folder: Path) -> Figures:
    found = json.loads((folder / "result.json").read_text())["benchmarks"][0]
    metrics = found["metrics"]
    return Figures(
        metrics["time_to_first_token_ms"]["successful"]["mean"],
        metrics["inter_token_latency_ms"]["successful"]["mean"],
        None,
        int(metrics["request_totals"]["successful"]),
    )


OURS = "stepscope"
CLIENTS: dict[str, Client] = {
    OURS: Client(_stepscope, _vllm_figures, {}),
    "vllm": Client(_vllm, _vllm_figures, {"HF_HUB_OFFLINE": "1"}),
    "sglang-rust": Client(_sglang_rust, _sglang_figures, {}),
    # AIPerf takes a local tokenizer folder only while this is unset.
    "aiperf": Client(_aiperf, _aiperf_figures, {"HF_HUB_OFFLINE": None}),
    "guidellm": Client(_guidellm, _guidellm_figures, {"HF_HUB_OFFLINE": "1"}),
}

#: What each one is started with, where no flag says otherwise.
PROGRAMS: dict[str, str] = {
    OURS: str(Path(sys.executable).parent / "stepscope"),
    "vllm": "vllm",
    "sglang-rust": "python3",
    "aiperf": "aiperf",
    "guidellm": "guidellm",
}
