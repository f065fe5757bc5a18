"""Turning away the lines of a serving server that mean nothing, before decoding them.

Only used once the server is ready: from then on nothing but samples, failures and the
end of the server is looked for.
"""

import re

_FRAMED = re.compile(
    rb"(?:\([^()\n]{1,80}\) ?)*(?:INFO|DEBUG) \d\d-\d\d \d\d:\d\d:\d\d "
    rb"\[[^\]]{1,120}\] ?"
    rb"(?!\[)([\w']{0,40})"
)
#: First words of framed messages that are looked at while serving.
_WORDS = frozenset(
    {
        b"Engine", b"Avg", b"SpecDecoding", b"Triton", b"TileLang", b"CuTeDSL",
        b"CUTLASS", b"DeepGEMM", b"FlashInfer", b"Kernel", b"CUDA", b"No",
        b"Shutting", b"Gracefully", b"SIGTERM", b"SIGINT", b"Initializing", b"vLLM",
        b"non", b"version", b"Application", b"Traceback", b"Graph", b"Available", b"",
        b"args", b"Running", b"Capturing", b"Loading",
    }
)  # fmt: skip
#: A line without such a frame holds one of these, or nobody needs it.
STEMS = (
    b"rror", b"WARN", b"xception", b"emory", b"illed", b"ailed", b"died", b"atal",
    b"OOM", b"oom", b"NV_ERR", b"CRITICAL", b"No space", b"nable", b"equires",
    b"imed out", b"egment", b"Bus ", b"borted", b"bad_alloc", b"exited", b"enough",
    b"ssert", b"terminate", b"hutting", b"hutdown", b"nterrupt", b"raceback", b"SIG",
    b"signal", b"Process ", b"cleaning up", b"pplication", b"version ", b"non-default",
    b"Load w", b" time =", b"bind", b"oom_kill", b"atchdog",
)  # fmt: skip


def framed(raw: bytes) -> bytes | None:
    """Return the first word of a framed INFO or DEBUG line, else None."""
    match = _FRAMED.match(raw)
    return None if match is None else match[1]


def dull_word(word: bytes, raw: bytes) -> bool:
    """True when a framed message that starts with this word means nothing."""
    if word in _WORDS or word.isdigit():
        return False
    return word != b"Received" or b"request" in raw[:240]


def dull_bare(raw: bytes) -> bool:
    """True when a line that no known logger framed means nothing."""
    if raw[:1] in (b"[", b"{"):
        return False
    for stem in STEMS:  # noqa: SIM110 (a generator costs more than the search)
        if stem in raw:
            return False
    return True


def sample_kind(raw: bytes) -> str | None:
    """Return what kind of sample a line is that may be left out; None: none.

    One that tells of preemptions is never left out.
    """
    if b"Iteration(" in raw:
        return "iteration" if b"iteration elapsed time: " in raw else None
    if b"Avg prompt throughput" in raw:
        held = b"Preemptions: " in raw and b"Preemptions: 0" not in raw
        return None if held else "stats"
    if b"e batch, #" in raw or b"Prefill batch" in raw:
        held = b"#retracted-req: " in raw and b"#retracted-req: 0" not in raw
        return None if held else "stats"
    if b" print_timing: " in raw and b" time = " in raw:
        return "stats"
    return None
