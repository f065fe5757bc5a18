"""Processes of a server and what each of them does, by title and command."""

import re

# vLLM titles its processes (setproctitle); before that, and where the title is not
# set, the command tells. The kernel's own name is cut to 15 characters, which is why
# both are read.
_VLLM = (
    (re.compile(r"EngineCore|VLLM::EngineCor"), "engine-core"),
    (
        re.compile(r"VLLM::Worker|VllmWorker|RayWorker|\bWorker_(?:DP|PP|TP|EP)"),
        "worker",
    ),
    (re.compile(r"DPCoordinator|DPSupervisor|VLLM::DP"), "coordinator"),
    (re.compile(r"API_?SERVER", re.IGNORECASE), "api-server"),
    (re.compile(r"\bvllm\b.* serve\b"), "api-server"),
)
_SGLANG = (
    # One process schedules and runs the model: its CPU is the engine's.
    (re.compile(r"sglang::schedul"), "engine-core"),
    (re.compile(r"sglang::data_parallel_controller|sglang::data_p"), "coordinator"),
    (re.compile(r"sglang::detoken"), "detokenizer"),
    (re.compile(r"sglang::(?:http|tokeni)|launch_server|sglang serve"), "api-server"),
)
#: What nsys puts before and beside a server repeats the server's words.
_HELPERS = re.compile(
    r"resource_tracker|multiprocessing\.forkserver|^(?:\S*/)?nsys(?:-\w+)?(?:\s|$)"
)


def vllm_role(argv: tuple[str, ...], name: str) -> str:
    """Return the role of one of vLLM's processes."""
    return _first(_VLLM, argv, name)


def sglang_role(argv: tuple[str, ...], name: str) -> str:
    """Return the role of one of SGLang's processes."""
    return _first(_SGLANG, argv, name)


def single_role(argv: tuple[str, ...], name: str) -> str:
    """Return the role of an engine in one process."""
    return "other" if _HELPERS.search(" ".join(argv)) else "server"


def _first(
    table: tuple[tuple[re.Pattern[str], str], ...], argv: tuple[str, ...], name: str
) -> str:
    line = " ".join(argv)
    if _HELPERS.search(line):
        return "other"
    for pattern, role in table:
        if pattern.search(line) or pattern.search(name):
            return role
    return "other"
