"""Causes outside memory: packages, tools, arguments, names, ports, patience."""

import re
from collections.abc import Callable

from stepscope.analysis.boot.advice import Advice, flag, number
from stepscope.analysis.boot.kernels import architecture_advice, toolchain_advice
from stepscope.analysis.boot.spelling import meant
from stepscope.run.serverlog import Failure, ServerLog

#: Distributions whose name is not the module's.
_DISTRIBUTIONS = {
    "PIL": "pillow",
    "cv2": "opencv-python-headless",
    "yaml": "pyyaml",
    "sgl_kernel": "sgl-kernel",
    "flash_attn": "flash-attn",
    "flashinfer": "flashinfer-python",
    "pynvml": "nvidia-ml-py",
    "zmq": "pyzmq",
}


_TRUST = re.compile(r"trust.remote.code")


def _package(failure: Failure, log: ServerLog) -> Advice:
    library = failure.names.get("library")
    if library is not None:
        advice = Advice(why=f"A shared library is missing: {failure.text[:200]}")
        advice.fix(
            "LD_LIBRARY_PATH",
            "set",
            f"the folder that holds {library}",
            "or install the driver or toolkit that it belongs to",
            "medium",
        )
        return advice
    name = failure.names.get("package")
    name = _DISTRIBUTIONS.get(name or "", name)
    advice = Advice(why=f"A Python package is missing: {failure.text[:200]}")
    advice.fix(
        "pip install",
        "set",
        name.split(".")[0] if name else None,
        "into the environment that starts the server; take the version that the"
        " engine's release pins",
        "high" if name else "low",
    )
    return advice


def _argument(failure: Failure, log: ServerLog) -> Advice:
    text = failure.text
    advice = Advice(why=f"The command does not fit: {text[:300]}")
    if failure.signature == "allocator-clash":
        advice.why = (
            "Two settings exclude each other: the allocator's expandable segments and"
            f" this server's memory pool ({text[:160]})."
        )
        advice.fix(
            "PYTORCH_CUDA_ALLOC_CONF",
            "remove",
            "expandable_segments:True",
            "the pool does not support it",
            "high",
        )
        advice.wrong.append(
            "GPU memory ran out: the words alloc and expandable_segments also stand in"
            " out-of-memory messages, but nothing was refused here."
        )
    elif "piecewise CUDA graphs" in text:
        advice.fix(
            "VLLM_USE_BREAKABLE_CUDAGRAPH",
            "set",
            "1",
            "makes piecewise graphs possible without compilation",
            "high",
        )
        advice.fix(
            "--compilation-config",
            "set",
            '{"cudagraph_mode": "FULL_DECODE_ONLY"}',
            "full graphs for decode steps only; mixed steps run without",
        )
    elif "CUDAGraphMode" in text:
        advice.fix(
            "--compilation-config",
            "set",
            '{"cudagraph_mode": "PIECEWISE"}',
            "a mode that the attention backend supports",
        )
    elif not (_refused(failure, log, advice) or _limits(failure, log, advice)):
        _words(failure, log, advice)
    return advice


def _refused(failure: Failure, log: ServerLog, advice: Advice) -> bool:
    """A value that this model, this GPU or this release does not take."""
    text = failure.text
    if "custom code" in text or _TRUST.search(text) is not None:
        advice.fix(
            "--trust-remote-code",
            "set",
            "true",
            "runs Python code of the model's repository: read it first",
            "high",
        )
    elif "cache" in failure.names:
        given = log.non_default_args.get("kv_cache_dtype")
        effect = "the type of the weights for the cache too; it takes twice the memory"
        if given is not None:
            effect += f" of {given}"
        advice.fix("--kv-cache-dtype", "set", "auto", effect, "medium")
    elif "stored" in failure.names:
        why = f"the checkpoint says that it is {failure.names['stored']}"
        advice.fix("--quantization", "remove", None, why, "high")
    elif "path-like" in text:
        advice.fix("--chat-template", "set", None, "a file that exists", "medium")
    elif "parser" in failure.names:
        name = failure.names["parser"].replace(" ", "-")
        why = f"{failure.names['given']} is none that this release has"
        advice.fix(f"--{name}-parser", "set", None, why, "medium")
    elif "ordinal" in failure.names:
        why = "there are more ranks than GPUs that are visible"
        advice.fix(flag(log, "tp"), "lower", None, why, "medium")
    else:
        return False
    return True


def _limits(failure: Failure, log: ServerLog, advice: Advice) -> bool:
    """Two numbers of the message that must agree."""
    found = {name: int(value) for name, value in failure.numbers.items()}
    if "derived" in found:
        why = "the model's own limit"
        advice.fix(flag(log, "length"), "lower", found["derived"], why, "high")
    elif "batched" in found and "limit" in found:
        why = "the smallest step that the other limit allows"
        advice.fix(flag(log, "chunk"), "raise", found["limit"], why, "high")
    elif "heads" in found and "tp" in found:
        heads, ranks = found["heads"], found["tp"]
        fits = max(n for n in range(1, max(1, ranks) + 1) if heads % n == 0)
        advice.fix(flag(log, "tp"), "lower", fits, f"divides {heads} heads", "high")
    elif "world" in found and "gpus" in found:
        why = "one rank for each GPU that is visible; or make more GPUs visible"
        advice.fix(flag(log, "tp"), "lower", found["gpus"], why, "high")
    else:
        return False
    return True


def _words(failure: Failure, log: ServerLog, advice: Advice) -> None:
    """A flag that the message names."""
    names = failure.names
    words = ("arguments", "unknown", "invalid", "option")
    word = next((names[n].split() for n in words if n in names), None)
    named = names.get("argument")
    if word:
        _unknown(word, meant(word[0], log.engine), advice)
    elif named is not None:
        parts = [part.strip() for part in named.replace(",", "/").split("/")]
        long = next((part for part in parts if part.startswith("--")), parts[0])
        advice.fix(long, "set", None, "its value is not allowed", "medium")


def _unknown(words: list[str], right: str | None, advice: Advice) -> None:
    """An unknown flag, the words after it, and the flag that was meant, if a slip."""
    effect = "this release does not know it"
    if right is None:
        advice.fix(words[0], "remove", None, effect, "high")
        return
    given, _, value = words[0].partition("=")
    if not value and len(words) > 1 and not words[1].startswith("-"):
        value = words[1]
    advice.why += f" Did you mean {right}?"
    advice.fix(given, "remove", None, f"{effect}; did you mean {right}?", "high")
    if value:
        advice.fix(right, "set", value, f"what {given} was to set", "medium")


def _port(failure: Failure, log: ServerLog) -> Advice:
    port = failure.numbers.get("port") or number(log, "port")
    if "server socket has failed" in failure.text or "TCPStore" in failure.text:
        name = "--nccl-port" if log.engine == "sglang" else "--master-port"
        advice = Advice(why=f"The ranks' own port is taken: {failure.text[:200]}")
        advice.fix(name, "set", None, "another port, or end the earlier server")
        return advice
    if "ZMQError" in failure.text or "tcp://" in failure.text:
        advice = Advice(
            why="A socket between the engine's own processes is taken, not the port of"
            f" the API: {failure.text[:200]}"
        )
        advice.fix(
            "earlier server process",
            "remove",
            None,
            "a process that outlived its server most often holds it; else set another"
            " VLLM_PORT",
            "medium",
        )
        return advice
    shown = f" {int(port)}" if port else ""
    advice = Advice(why=f"Another process listens on the port{shown}.")
    advice.fix(
        flag(log, "port"),
        "set",
        int(port) + 1 if port else None,
        "or end the process that listens; often it is an earlier server",
        "medium",
    )
    return advice


def _model(failure: Failure, log: ServerLog) -> Advice:
    part = failure.names.get("part")
    if "clip_model_loader" in failure.text:
        advice = Advice(why=f"The projector was not found: {failure.text[:240]}")
        advice.fix("--mmproj", "set", None, "a file that exists, or remove the flag")
        return advice
    if part is not None:
        advice = Advice(why=f"The model's {part} was not found: {failure.text[:240]}")
        if part == "tokenizer":
            advice.fix("--tokenizer", "set", None, "a folder that holds one", "medium")
    else:
        advice = Advice(why=f"The model was not found: {failure.text[:240]}")
    if "outgoing traffic" in failure.text or "couldn't connect" in failure.text:
        why = "nothing was fetched, and the cache does not hold it; or fetch it before"
        advice.fix("HF_HUB_OFFLINE", "set", "0", why, "medium")
    gated = "gated" in failure.text.lower() or "401" in failure.text
    if gated:
        advice.fix("HF_TOKEN", "set", None, "the repository needs access", "medium")
    advice.fix(
        flag(log, "model"),
        "set",
        None,
        "a folder that holds config.json and weights, or a repository that exists",
        "medium",
    )
    return advice


def _timeout(failure: Failure, log: ServerLog) -> Advice:
    boot = log.boot
    waited = failure.numbers.get("waited_s")
    advice = Advice(
        why="The frontend gave up waiting for the engine"
        + (f" after {waited:.0f} s" if waited else "")
        + "; the engine itself had not failed."
    )
    value: int | None = None
    effect = "twice the time"
    if waited:
        value = int(waited * 2)
    if boot.shards_loaded and boot.shards_total and boot.load_s:
        total = boot.load_s * boot.shards_total / boot.shards_loaded
        effect = (
            f"loading had done {boot.shards_loaded} of {boot.shards_total} shards in"
            f" {boot.load_s:.0f} s, so it takes about {total:.0f} s"
        )
        rest = total - boot.load_s
        value = int(round(((waited or boot.load_s) + rest) * 1.5, -1))
    advice.fix("VLLM_ENGINE_READY_TIMEOUT_S", "raise", value, effect, "high")
    advice.wrong.append(
        "The engine crashed: its last lines are progress, and no process failed before"
        " the frontend gave up."
    )
    return advice


def _shm(failure: Failure, log: ServerLog) -> Advice:
    ranks = number(log, "tensor_parallel_size", "world_size") or 1
    size = max(8, 2 * ranks)
    advice = Advice(
        why="Shared memory (/dev/shm) is full: processes of one server exchange data"
        f" there. {failure.text[:160]}"
    )
    advice.fix(
        "--shm-size",
        "raise",
        f"{size}g",
        "of the container (or --ipc=host); Docker's default is 64 MB",
        "high",
    )
    advice.wrong.append(
        "The network or NCCL is broken: the system error that NCCL reports is a failed"
        " allocation on this host."
    )
    return advice


def _nccl(failure: Failure, log: ServerLog) -> Advice:
    told = next((f for f in log.failures if "call" in f.names), None)
    if told is not None:
        advice = Advice(
            why=f"NCCL could not reach another rank: {told.names['call']} failed:"
            f" {told.names['reason'].strip()}. {failure.text[:200]}"
        )
        advice.fix(
            "NCCL_SOCKET_IFNAME",
            "set",
            "the interface on which the hosts reach each other",
            "NCCL chose one on which they do not",
            "medium",
        )
        return advice
    advice = Advice(
        why="A system call under NCCL failed; NCCL does not say which."
        f" {failure.text[:200]}"
    )
    advice.fix(
        "NCCL_DEBUG",
        "set",
        "INFO",
        "prints the call; look for NCCL WARN above the error",
        "high",
    )
    advice.fix(
        "--shm-size", "raise", "16g", "the most frequent reason in containers", "low"
    )
    return advice


ADVICE: dict[str, Callable[[Failure, ServerLog], Advice]] = {
    "missing-package": _package,
    "missing-toolchain": toolchain_advice,
    "unsupported-arch": architecture_advice,
    "bad-argument": _argument,
    "port-in-use": _port,
    "model-not-found": _model,
    "ready-timeout": _timeout,
    "shm-exhausted": _shm,
    "nccl-system-error": _nccl,
}
