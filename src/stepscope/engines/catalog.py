"""The engines. A new one is a definition here and nothing else."""

import re
import shlex
import sys

from stepscope.engines.definition import EngineDef, Flags
from stepscope.recipe.records import Layout, Recipe


def _degree(flags: Flags, *names: str) -> int:
    for name in names:
        value = flags.get(name)
        if isinstance(value, int) and not isinstance(value, bool):
            return max(value, 1)
        if isinstance(value, str) and value.isdecimal():
            return max(int(value), 1)
    return 1


def _vllm_layout(flags: Flags) -> Layout:
    tp = _degree(flags, "tensor-parallel-size", "tp")
    dp = _degree(flags, "data-parallel-size", "dp")
    on = bool(flags.get("enable-expert-parallel"))
    return Layout(
        tp=tp,
        dp=dp,
        pp=_degree(flags, "pipeline-parallel-size", "pp"),
        ep=tp * dp if on else 1,
    )


def _sglang_layout(flags: Flags) -> Layout:
    return Layout(
        tp=_degree(flags, "tp-size", "tensor-parallel-size", "tp"),
        dp=_degree(flags, "dp-size", "data-parallel-size", "dp"),
        pp=_degree(flags, "pp-size", "pipeline-parallel-size"),
        ep=_degree(flags, "ep-size", "expert-parallel-size"),
    )


def _one_gpu(flags: Flags) -> Layout:
    return Layout()


_VLLM_WORKER = re.compile(r"VLLM::Worker|VllmWorker|Worker_(?:DP|TP|PP|EP)\d|^Worker\b")


def _vllm_role(argv: tuple[str, ...], name: str) -> str:
    line = " ".join(argv) or name
    if "EngineCore" in line or "EngineCore" in name:
        return "engine-core"
    if _VLLM_WORKER.search(line) or _VLLM_WORKER.search(name):
        return "worker"
    if "DPCoordinator" in line:
        return "coordinator"
    # "vllm serve ..." or "... cli.main serve ...": the API server is the root.
    if re.search(r"\bserve\b|APIServer|ApiServer|api_server", line):
        return "api-server"
    return "other"


def _sglang_role(argv: tuple[str, ...], name: str) -> str:
    line = " ".join(argv) or name
    if "sglang::scheduler" in line:
        return "engine-core"
    if "sglang::detokenizer" in line:
        return "detokenizer"
    if "launch_server" in line or "sglang::http" in line:
        return "api-server"
    return "other"


def _single_role(argv: tuple[str, ...], name: str) -> str:
    return "server"


def _vllm_program(recipe: Recipe) -> tuple[str, ...]:
    return (*(recipe.executable or ("vllm",)), "serve", recipe.model or "")


def _sglang_program(recipe: Recipe) -> tuple[str, ...]:
    start = recipe.executable or ("python3", "-m", "sglang.launch_server")
    return (*start, "--model-path", recipe.model or "")


def _llamacpp_program(recipe: Recipe) -> tuple[str, ...]:
    return (*(recipe.executable or ("llama-server",)), "--model", recipe.model or "")


def _embedded_program(recipe: Recipe) -> tuple[str, ...]:
    start = (sys.executable, "-m", "stepscope.engines.embedded")
    return (*start, "--model", recipe.model) if recipe.model else start


def _no_program(recipe: Recipe) -> tuple[str, ...]:
    return ()


ENGINES: dict[str, EngineDef] = {
    "vllm": EngineDef(
        name="vllm",
        log_format="vllm",
        ready_path="/health",
        metrics_path="/metrics",
        program=_vllm_program,
        role=_vllm_role,
        layout=_vllm_layout,
        own_environment={"VLLM_NO_USAGE_STATS": "1"},
    ),
    "sglang": EngineDef(
        name="sglang",
        log_format="sglang",
        # Its /health generates a token: polling it is load.
        ready_path="/model_info",
        metrics_path="/metrics",
        program=_sglang_program,
        role=_sglang_role,
        layout=_sglang_layout,
        own_flags={"enable-metrics": True},
    ),
    "llamacpp": EngineDef(
        name="llamacpp",
        log_format="llamacpp",
        # 503 with a body while the model loads: only 200 is ready.
        ready_path="/health",
        metrics_path="/metrics",
        program=_llamacpp_program,
        role=_single_role,
        layout=_one_gpu,
        own_flags={"metrics": True},
        # Otherwise a prompt that comes again has no prefill.
        extra_body={"cache_prompt": False},
    ),
    "embedded": EngineDef(
        name="embedded",
        log_format="llamacpp",
        ready_path="/health",
        metrics_path="/metrics",
        program=_embedded_program,
        role=_single_role,
        layout=_one_gpu,
        extra_body={"cache_prompt": False},
    ),
    "url": EngineDef(
        name="url",
        log_format=None,
        ready_path="/v1/models",
        metrics_path="/metrics",
        program=_no_program,
        role=_single_role,
        layout=_one_gpu,
        # Unknown servers: vLLM and SGLang take ids, others may not; the probe tells.
        boots=False,
    ),
}


def shell_line(environment: dict[str, str], command: tuple[str, ...]) -> str:
    """Return a command as one would type it."""
    assignments = [f"{k}={shlex.quote(v)}" for k, v in environment.items()]
    return " ".join([*assignments, *(shlex.quote(part) for part in command)])
