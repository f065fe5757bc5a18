"""Roles by title and command, as the engines' own processes show them."""

import pytest

from stepscope.engines.processes import sglang_role, single_role, vllm_role


@pytest.mark.parametrize(
    ("argv", "name", "role"),
    [
        # setproctitle overwrites the arguments and leaves empty ones behind.
        (("VLLM::EngineCore", "", ""), "VLLM::EngineCore", "engine-core"),
        (("VLLM::EngineCore_DP3",), "VLLM::EngineCor", "engine-core"),
        ((), "VLLM::EngineCor", "engine-core"),
        (("VLLM::Worker", "", ""), "VLLM::Worker", "worker"),
        (("VLLM::Worker_TP0",), "VLLM::Worker_TP", "worker"),
        (("VLLM::Worker_DP7_EP7",), "VLLM::Worker_DP", "worker"),
        (("VLLM::DPCoordinator",), "VLLM::DPCoordin", "coordinator"),
        (("VLLM::ApiServer_1",), "VLLM::ApiServer", "api-server"),
        (("python", "venv/bin/vllm", "serve", "models/x"), "vllm", "api-server"),
        (
            ("python3", "-m", "vllm.entrypoints.cli.main", "serve", "x"),
            "python3",
            "api-server",
        ),
        (
            ("python3", "-m", "vllm.entrypoints.openai.api_server"),
            "python3",
            "api-server",
        ),
        (
            ("python", "-c", "from multiprocessing.resource_tracker import main"),
            "python",
            "other",
        ),
        (
            ("python", "-c", "from multiprocessing.spawn import spawn_main"),
            "python",
            "other",
        ),
        (("python", "-m", "vllm.model_executor.models.registry"), "python", "other"),
        (("nvidia-smi",), "nvidia-smi", "other"),
    ],
)
def test_a_vllm_process_has_its_role(
    argv: tuple[str, ...], name: str, role: str
) -> None:
    assert vllm_role(argv, name) == role


@pytest.mark.parametrize(
    ("argv", "name", "role"),
    [
        (("python3", "-m", "sglang.launch_server"), "python3", "api-server"),
        (("sglang::scheduler_TP0",), "sglang::schedul", "engine-core"),
        (("sglang::detokenizer",), "sglang::detoken", "detokenizer"),
        ((), "sglang::detoken", "detokenizer"),
        (("bash",), "bash", "other"),
    ],
)
def test_an_sglang_process_has_its_role(
    argv: tuple[str, ...], name: str, role: str
) -> None:
    assert sglang_role(argv, name) == role


def test_an_engine_in_one_process_is_the_server() -> None:
    assert single_role(("llama-server", "--model", "x"), "llama-server") == "server"
