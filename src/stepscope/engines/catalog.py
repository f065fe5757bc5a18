"""The engines. A new one is a definition here and nothing else."""

import dataclasses
import shlex
import sys

from stepscope.engines.definition import EngineDef
from stepscope.engines.embedded import ALIAS
from stepscope.engines.gguf_model import CONFIG_JSON, N_TOKENS
from stepscope.engines.layouts import sglang_layout, vllm_layout, whole_layout
from stepscope.engines.processes import sglang_role, single_role, vllm_role
from stepscope.engines.profilers import SGLANG_PROFILER, VLLM_PROFILER
from stepscope.recipe.records import Recipe


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
        role=vllm_role,
        layout=vllm_layout,
        capture_flags={"iteration-details": {"enable-logging-iteration-details": True}},
        profiler=VLLM_PROFILER,
        # Source: vLLM's page on profiling; a forked worker may hide its kernels.
        nsys_environment={"VLLM_WORKER_MULTIPROC_METHOD": "spawn"},
        # It reports usage to its makers from a thread of the server: no part of a step.
        own_environment={"VLLM_NO_USAGE_STATS": "1"},
    ),
    "sglang": EngineDef(
        name="sglang",
        log_format="sglang",
        # Its /health generates a token: polling it is load. This one answers while
        # the warm-up request still runs, so the log has the last word.
        ready_path="/model_info",
        ready_log="The server is fired up and ready to roll!",
        metrics_path="/metrics",
        program=_sglang_program,
        role=sglang_role,
        layout=sglang_layout,
        own_flags={"enable-metrics": True},
        profiler=SGLANG_PROFILER,
    ),
    "llamacpp": EngineDef(
        name="llamacpp",
        log_format="llamacpp",
        # 503 with a body while the model loads.
        ready_path="/health",
        metrics_path="/metrics",
        program=_llamacpp_program,
        role=single_role,
        layout=whole_layout,
        own_flags={"metrics": True},
        # Otherwise a prompt that comes again has no prefill.
        extra_body={"cache_prompt": False},
        name_flag="alias",
    ),
    "embedded": EngineDef(
        name="embedded",
        log_format="llamacpp",
        ready_path="/health",
        metrics_path="/metrics",
        program=_embedded_program,
        role=single_role,
        layout=whole_layout,
        extra_body={"cache_prompt": False},
        n_vocabulary=N_TOKENS,
        model_config=CONFIG_JSON,
        model_name=ALIAS,
        name_flag="alias",
    ),
    "url": EngineDef(
        name="url",
        log_format=None,
        ready_path="/v1/models",
        metrics_path="/metrics",
        program=_no_program,
        role=single_role,
        layout=whole_layout,
        # Text works everywhere; token ids are refused by some servers.
        token_ids=frozenset(),
        boots=False,
    ),
}


def engine_of(recipe: Recipe) -> EngineDef:
    """Return the definition that a recipe needs.

    An address whose ``[server] engine`` is known is read like that engine and still
    not booted. A model of the recipe's own replaces what an engine says of its own.
    """
    engine = ENGINES[recipe.engine]
    if recipe.server is not None and recipe.server.engine is not None:
        served = ENGINES[recipe.server.engine]
        return dataclasses.replace(
            engine,
            log_format=served.log_format,
            role=served.role,
            extra_body=served.extra_body,
            token_ids=served.token_ids,
        )
    if engine.n_vocabulary is not None and recipe.model is not None:
        return dataclasses.replace(engine, n_vocabulary=None, model_config=None)
    return engine


def shell_line(environment: dict[str, str], command: tuple[str, ...]) -> str:
    """Return a command as one would type it."""
    assignments = [f"{k}={shlex.quote(v)}" for k, v in environment.items()]
    return " ".join([*assignments, *(shlex.quote(part) for part in command)])
