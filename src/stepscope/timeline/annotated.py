"""Host annotations that say which engine step runs, and of what kind."""

import re

import numpy as np

from stepscope.timeline.columns import I64, Trace

#: Annotations of one engine step: vLLM (old and new form), SGLang, and generic.
_STEP_NAMES = (
    re.compile(r"^execute_context_(?P<c>\d+)\(\d+\)_generation_(?P<g>\d+)"),
    re.compile(r"^execute_\d+_context_(?P<c>\d+)\S*_generation_(?P<g>\d+)"),
    re.compile(r"^step\[(?P<word>EXTEND|DECODE|MIXED)"),
    re.compile(r"^(?P<word>prefill|decode|mixed)\["),
    re.compile(r"^ProfilerStep#"),
)
_WORDS = {"EXTEND": "prefill", "DECODE": "decode", "MIXED": "mixed"}


def _label(name: str) -> str | None:
    for pattern in _STEP_NAMES:
        found = pattern.match(name)
        if not found:
            continue
        groups = found.groupdict()
        if "c" in groups:
            context, generation = int(groups["c"]), int(groups["g"])
            if context and generation:
                return "mixed"
            return "prefill" if context else "decode"
        if "word" in groups:
            return _WORDS.get(groups["word"], groups["word"])
        return "step"
    return None


def step_spans(trace: Trace) -> tuple[I64, I64, list[str]]:
    """Return start, end and label of each step annotation on the host, by start.

    Where some say what kind of step it is, those that do not are around or inside them.
    """
    labels = [_label(n) for n in trace.names]
    if {"decode", "mixed", "prefill"} & {
        labels[i] for i in set(trace.spans.name.tolist())
    }:
        labels = [None if word == "step" else word for word in labels]
    at = [
        i
        for i, name in enumerate(trace.spans.name)
        if trace.spans.is_annotation[i] and labels[name] is not None
    ]
    index = np.array(at, dtype=np.int64)
    words = [labels[trace.spans.name[i]] or "step" for i in at]
    return trace.spans.start_ns[index], trace.spans.end_ns[index], words
