"""Every term of the page in one sentence each; docs/glossary.md holds the same."""

#: (word, what it means), in the order in which they build on one another.
WORDS: tuple[tuple[str, str], ...] = (
    (
        "request",
        "one prompt and its answer",
    ),
    (
        "chunk",
        "one event of the stream that carries content. It is not a token: engines"
        " and frontends merge tokens",
    ),
    (
        "token count",
        "what the server's usage record says. Text is never tokenised again to"
        " count it",
    ),
    (
        "TTFT",
        "from sending to the first chunk with content",
    ),
    (
        "E2EL",
        "from sending to the last chunk with content",
    ),
    (
        "TPOT",
        "(E2EL - TTFT) / (output tokens - 1), one figure a request; the mean is"
        " over requests",
    ),
    (
        "ITL",
        "gap between two chunks of one request; pooled over requests, so long"
        " answers weigh more",
    ),
    (
        "concurrency, C",
        "requests that the client keeps in flight, in a closed loop: a new one is"
        " sent when one ends",
    ),
    (
        "wave",
        "C requests",
    ),
    (
        "occupancy",
        "mean requests in flight over C",
    ),
    (
        "step",
        "one iteration of the engine",
    ),
    (
        "decode step",
        "a step without prefill tokens",
    ),
    (
        "engine step time",
        "the period from one decode step to the next of the same engine",
    ),
    (
        "step time seen by a request",
        "TPOT, wherever prefill may share the steps",
    ),
    (
        "toll",
        "the part of a decode step that does not depend on the batch",
    ),
    (
        "floor",
        "bytes that a step must read over the memory bandwidth of the data sheet",
    ),
    (
        "configuration",
        "a server command: flags, environment, processors",
    ),
    (
        "launch",
        "one start of a server",
    ),
    (
        "cell",
        "one configuration at one workload point, one repeat",
    ),
    (
        "point",
        "what repeats share: configuration, session, shape of requests,"
        " concurrency, number of prompts",
    ),
    (
        "session",
        "one host and container, from its first server start to its last stop",
    ),
    (
        "row",
        "a workload point at which configurations are compared: everything that was"
        " asked but the seed",
    ),
    (
        "unit",
        "what repeats in a comparison: a launch where launches repeat, else a run",
    ),
    (
        "anchor",
        "a configuration measured in two sessions, through which others are"
        " compared between them",
    ),
    (
        "run",
        "all cells of one invocation; one directory",
    ),
    (
        "rank",
        "one GPU's share of the model; sequences per rank are in flight over"
        " data-parallel ranks",
    ),
    (
        "cell span",
        "first send to last content",
    ),
    (
        "telemetry window",
        "the cell span; from four waves on, second wave's first send to the last send",
    ),
    (
        "steady",
        "all slots in use: after the first completion and before the last send",
    ),
    (
        "finding",
        "a code, a severity, a sentence with its numbers, and what to do",
    ),
    (
        "void",
        "a cell that only the codes client-bound, little-violated, token-count-mismatch"
        " and clock-step can make; it is shown and supports nothing, except"
        " a case against the client",
    ),
    (
        "identity",
        "an equality that holds exactly on true records; a residual means wrong"
        " records and no noise",
    ),
    (
        "undetermined",
        "the evidence does not decide; it does not mean equal",
    ),
    (
        "utilization",
        "share of time in which a kernel was resident on the GPU. It does not say how"
        " much of the GPU worked, and a rank that waits in a collective is busy",
    ),
    (
        "SM active, DRAM, tensor",
        "the GPU's own counters: multiprocessors with a warp, bandwidth of the memory,"
        " tensor pipes; each over what is possible, a mean since the sample before",
    ),
    (
        "memory ledger",
        "a GPU's memory as the server's log tells it: what was requested, and weights,"
        " activation peak, graphs and KV cache that sum to it",
    ),
    (
        "decode efficiency",
        "1 - TTFT / E2EL: the share of a request's life in which it receives tokens",
    ),
    (
        "prefill share",
        "steps in which some prompt was computed over all steps",
    ),
    (
        "hypothesis",
        "one of sixteen possible causes of a long step; each gets a status in each"
        " range of concurrencies",
    ),
    (
        "supported",
        "a measurement that tells this cause from the others says so; the share is what"
        " at least of the step it explains",
    ),
    (
        "ruled out",
        "a measurement excludes it as the larger part of the step; the share is what"
        " at most of the step it can be",
    ),
    ("standing", "not excluded, and not shown either"),
    ("untestable", "nothing measured here bears on it; what would is named"),
    (
        "solid",
        "a headline number without a known hole: repeated, settled, sampled inside"
        " its window, and agreed on by client and server",
    ),
)
