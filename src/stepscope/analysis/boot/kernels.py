"""Kernels that can not be compiled here, or that this GPU can not run."""

from stepscope.analysis.boot.advice import Advice, at_least
from stepscope.run.serverlog import Failure, ServerLog


def toolchain_advice(failure: Failure, log: ServerLog) -> Advice:
    """A compiler that is missing, or older than the GPU."""
    near = [f for f in log.failures if abs(f.line - failure.line) <= 400]
    text = failure.text + " ".join(f.text for f in near if f.signature == "toolchain")
    advice = Advice(
        why="Kernels are compiled at start-up, and the toolchain cannot do it:"
        f" {failure.text[:200]}"
    )
    majors = failure.names.get("majors")
    old = (
        majors is not None
        or "compress-mode" in text
        or "arch" in failure.names
        or failure.signature == "unsupported-arch"
    )
    if old:
        advice.fix(
            "CUDA_HOME",
            "set",
            "a CUDA toolkit of 12.9 or later, first in PATH",
            "nvcc older than the GPU or than the kernel library knows neither",
            "high",
        )
        advice.wrong.append(
            "The GPU is too old: it is newer than this toolkit, which does not know it."
        )
    elif "compiler" in failure.names:
        advice.fix("CC", "set", "an installed C compiler (gcc)", "or put one in PATH")
    elif "Python.h" in text:
        advice.fix("python headers", "set", "install", "the compiler needs them")
    elif "Ninja is required" in text or "'ninja'" in text:
        advice.fix("pip install", "set", "ninja", "the build tool is missing", "high")
    else:
        advice.fix(
            "CUDA_HOME",
            "set",
            "an installed CUDA toolkit with nvcc, and a C++ compiler in PATH",
            "or use kernels that come compiled",
        )
    return advice


def architecture_advice(failure: Failure, log: ServerLog) -> Advice:
    """Kernels that do not exist for this GPU."""
    advice = Advice(
        why=f"A kernel does not support this GPU: {failure.text[:200]}",
    )
    if "dtype" in failure.names:
        _eight_bits(failure.names["dtype"], log, advice)
    elif "dtype" in failure.text:
        advice.fix("--dtype", "set", "half", "16-bit floats that it has", "high")
    elif "quantization method" in failure.text:
        why = "a format that this GPU has kernels for, and a checkpoint in it"
        advice.fix("--quantization", "set", None, why, "medium")
    elif "only supports" in failure.text and "sm" in failure.numbers:
        least = f"compute capability {failure.numbers['sm'] / 10:g} or later"
        advice.fix("GPU", "set", least, "there are no kernels for older ones", "high")
    elif "image" in failure.names and log.engine == "llamacpp":
        why = "a build with kernels for this GPU's architecture; this one has none"
        advice.fix("CMAKE_CUDA_ARCHITECTURES", "set", "native", why, "medium")
    elif "image" in failure.names:
        advice.fix(
            "pip install",
            "set",
            None,
            "builds of the engine and of its libraries with kernels for this GPU's"
            " architecture; these have none",
            "medium",
        )
    else:
        older = log.engine == "vllm" and not at_least(log.version, 0, 12)
        advice.fix(
            "VLLM_ATTENTION_BACKEND" if older else "--attention-backend",
            "set",
            None,
            "choose a backend that supports this GPU; or a build for its architecture",
            "low",
        )
    return advice


def _eight_bits(name: str, log: ServerLog, advice: Advice) -> None:
    """Kernels for an 8-bit float that this GPU does not have."""
    used = log.non_default_args.get("kv_cache_dtype")
    used = used or log.resolved.get("kv_cache_dtype")
    why = f"this GPU can not compute with {name}"
    if str(used).startswith("fp8"):
        advice.fix("--kv-cache-dtype", "set", "auto", why, "high")
        return
    advice.fix("--quantization", "set", None, why + "; another format", "low")
