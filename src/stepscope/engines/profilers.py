"""How engines are told to take a kernel timeline with the torch profiler."""

import json
import re

from stepscope.engines.definition import Flags, Profiler, TraceOrder

#: vLLM took its profiler from the environment before this version.
_VLLM_FLAG_SINCE = (0, 13)
_VERSION = re.compile(r"(\d+)\.(\d+)")


def _vllm_by_flag(order: TraceOrder) -> bool:
    """Tell whether vLLM knows the flag; an unknown version is taken for a new one."""
    found = _VERSION.search(order.version or "")
    return found is None or (int(found[1]), int(found[2])) >= _VLLM_FLAG_SINCE


def _vllm_flags(order: TraceOrder) -> Flags:
    if not _vllm_by_flag(order):
        return {}
    config = {
        "profiler": "torch",
        "torch_profiler_dir": order.folder,
        # Stacks multiply the size of a trace and the time to write it.
        "torch_profiler_with_stack": False,
        "ignore_frontend": True,
    }
    return {"profiler-config": json.dumps(config, separators=(",", ":"))}


def _vllm_environment(order: TraceOrder) -> dict[str, str]:
    if _vllm_by_flag(order):
        return {}
    return {
        "VLLM_TORCH_PROFILER_DIR": order.folder,
        "VLLM_TORCH_PROFILER_WITH_STACK": "0",
        "VLLM_TORCH_PROFILER_DISABLE_ASYNC_LLM": "1",
    }


def _no_flags(order: TraceOrder) -> Flags:
    return {}


def _no_body(order: TraceOrder) -> bytes:
    return b""


def _sglang_environment(order: TraceOrder) -> dict[str, str]:
    return {"SGLANG_TORCH_PROFILER_DIR": order.folder}


def _sglang_body(order: TraceOrder) -> bytes:
    return json.dumps(
        {
            "output_dir": order.folder,
            "activities": ["CPU", "GPU"],
            "with_stack": False,
            "record_shapes": False,
        }
    ).encode()


#: No limit of iterations is set: some vLLM versions that stopped by itself at such a
#: limit ignored every later start.
VLLM_PROFILER = Profiler(
    flags=_vllm_flags,
    environment=_vllm_environment,
    start_path="/start_profile",
    start_body=_no_body,
    stop_path="/stop_profile",
)
SGLANG_PROFILER = Profiler(
    flags=_no_flags,
    environment=_sglang_environment,
    start_path="/start_profile",
    start_body=_sglang_body,
    stop_path="/stop_profile",
)
