"""Kernel names: short forms, and which of them communicate."""

import re

import numpy as np

from stepscope.timeline.columns import KERNEL, Bool, Ops, Trace

#: Kernel families that exchange data between ranks. A new one is added here.
#: Source: names seen in NCCL, RCCL, vLLM, SGLang, FlashInfer, TensorRT-LLM, DeepEP
#: and NVSHMEM traces.
_COMMUNICATION = re.compile(
    r"nccl|rccl|cross_device_reduce|multimem|nvshmem|deep_?ep|\bdispatch\b|\bcombine\b"
    r"|all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|one_shot_|two_shot_|quickreduce",
    re.IGNORECASE,
)
#: Annotations of collectives on the processor. Source: torch names a process group's
#: work "backend:operation"; seen on the group's own thread in torch 2.x traces.
_ON_HOST = re.compile(r"^(?:gloo|mpi|ucc):")
_TEMPLATE = re.compile(r"<.*", re.DOTALL)
_ARGUMENTS = re.compile(r"\((?!anonymous).*", re.DOTALL)


def short_name(name: str) -> str:
    """Return a kernel's name without return type, template and arguments."""
    text = name.replace("(anonymous namespace)::", "").replace("void ", "")
    text = _ARGUMENTS.sub("", _TEMPLATE.sub("", text)).strip()
    return text[:80] or name[:80]


def is_communication(name: str) -> bool:
    """True when a kernel of this name exchanges data between ranks."""
    return _COMMUNICATION.search(short_name(name)) is not None


def is_host_communication(name: str) -> bool:
    """True when an annotation of this name is a collective between processors."""
    return _ON_HOST.match(name) is not None


def communication_mask(trace: Trace, ops: Ops) -> Bool:
    """Return bool[n]: kernels that communicate."""
    by_name = np.array([is_communication(n) for n in trace.names], dtype=np.bool_)
    if not len(by_name):
        return np.zeros(len(ops), dtype=np.bool_)
    mask: Bool = by_name[ops.name] & (ops.kind == KERNEL)
    return mask
