"""How each figure and table of the page was made: its footnotes."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Method:
    """One footnote.

    Attributes:
        id: Of the note on the page.
        title: What it explains.
        formula: How the numbers were computed.
        source: Where the method is from.
        unseen: What it assumes and can not see.
    """

    id: str
    title: str
    formula: str
    source: str
    unseen: str


METHODS: tuple[Method, ...] = (
    Method(
        "latency",
        "Latencies",
        "TTFT = first content - send; E2EL = last content - send; TPOT = (E2EL - TTFT)"
        " / (output tokens - 1) for each request; ITL = gaps between chunks, pooled"
        " over requests. Percentiles interpolate linearly.",
        "The names and formulas of vLLM's serving benchmark; token counts are the"
        " server's usage record.",
        "TPOT is the engine's step only where no prefill shares the steps. In an open"
        " loop time counts from when a request was due.",
    ),
    Method(
        "span",
        "Cell span and telemetry window",
        "Throughput and latencies: first send to last content, all requests counted."
        " Utilization, power and counters: the same span below four waves; from four"
        " waves on, second wave's first send to the last send.",
        "docs/analysis/window.md.",
        "Samples outside the window are drawn and enter no mean.",
    ),
    Method(
        "little",
        "Occupancy and Little's law",
        "mean in flight = throughput x mean time in the system, an identity on records"
        " (to 1e-6); occupancy = mean in flight / C.",
        "J. D. C. Little, Operations Research 9 (1961).",
        "A residual is no noise: requests were lost, doubled or stamped by two clocks.",
    ),
    Method(
        "interval",
        "Intervals",
        "Student's t at 95 % on logarithms, over valid repeats; one run has none.",
        "The unit of replication is the launch where launches repeat, else the run:"
        " docs/analysis/repeats.md.",
        "Requests of one run share its steps and are no repeats. Repeats on one launch"
        " do not show how launches differ.",
    ),
    Method(
        "step-model",
        "Step model",
        "t(x) = L; L + b x; L up to the knee k, then L + b (x - k); or L + bytes(x) /"
        " bandwidth + b x, with experts read 1 - (1 - k/E)^B. Chosen by F-tests and,"
        " for experts, Akaike's criterion; points weigh 1 / t^2.",
        "docs/analysis/step-model.md, with simulations of its coverage.",
        "x is the observed mean of sequences a rank. The asymptote L - b k is a number"
        " of the fit and no cost. The toll is L over the fitted step.",
    ),
    Method(
        "floor",
        "Byte floor",
        "(weights and expected expert bytes and KV read in one decode step by one rank)"
        " / bandwidth of the data sheet.",
        "The model's config.json and the hardware table: docs/physics.",
        "Each byte is moved once; routing is uniform. No implementation is faster; a"
        " real one may move more.",
    ),
    Method(
        "stack",
        "A token's time as parts",
        "TPOT = floor + device busy above it + idle by cause + decode step not told"
        " apart + what slower steps add + what arose after the server.",
        "Client's and server's TPOT, engine step or median gap, floor, and timelines"
        " whose period agrees with the untraced step.",
        "Where no timeline splits it, what lies above the floor is one grey part.",
    ),
    Method(
        "trace",
        "Kernel timelines",
        "An instant belongs to computation, else communication, else copies, else it is"
        " idle; the parts sum to the period between steps.",
        "docs/timeline.md. Used as the untraced step where the two periods agree within"
        " 15 %; a stretched one gives idle time as an upper bound.",
        "A rank that waits inside a collective is busy. A picture is one step; tables"
        " are means.",
    ),
    Method(
        "board",
        "Statuses of hypotheses",
        "Each rule takes one measurement and says what it excludes or shows, with the"
        " share of the step as a bound. Supported needs a measurement that tells the"
        " cause from the others.",
        "docs/board.md lists every rule.",
        "Standing and untestable mean neither innocent nor guilty.",
    ),
    Method(
        "boot",
        "Boot phases and memory",
        "Phases are differences of the server log's stamps; they overlap. requested ="
        " weights + outside torch + activation peak + KV + graphs (where the estimate"
        " was taken off) + unaccounted.",
        "The server's log, parsed: docs/server-logs.md, docs/boot-doctor.md.",
        "Stamps count whole seconds in most logs. Memory is that of the rank with the"
        " least cache.",
    ),
    Method(
        "lanes",
        "Pictures over time",
        "Samples are put into equal bins of time: mean, least and greatest value. CPU"
        " is the difference of counters between two samples.",
        "nvidia-smi or NVML, /proc, the engine's metrics; the instants share one"
        " clock, or an offset was fitted.",
        "A peak between two samples was never seen.",
    ),
    Method(
        "compare",
        "Changes tested",
        "B over A = exp(difference of mean logs) - 1. Variance is pooled over rows, p"
        " after Holm, 'same' by two one-sided tests; verdicts hold over all rows"
        " of a pair together. Rows are pooled where Cochran's Q lets them be one"
        " number.",
        "docs/compare.md.",
        "Sessions are compared only through an anchor measured in both. Undetermined"
        " does not mean equal.",
    ),
    Method(
        "plan",
        "What to run next",
        "value = open hypotheses and claims that a measurement would decide, a quarter"
        " for those it bears on; chosen by value for each minute added. Money ="
        " minutes x price an hour.",
        "docs/plan.md. Minutes are this run's own boots and waves.",
        "Warm-ups are priced at their fewest blocks; a slow one takes longer.",
    ),
)
#: Head of a figure's name -> the notes under it.
OF_FIGURE: dict[str, tuple[str, ...]] = {
    "sweep": ("latency", "span", "interval"),
    "step": ("step-model", "floor"),
    "stack": ("stack", "floor"),
    "trace": ("trace",),
    "memory": ("boot",),
    "session": ("lanes", "boot"),
    "telemetry": ("lanes", "span"),
    "changes": ("compare", "interval"),
}
NUMBER = {method.id: place for place, method in enumerate(METHODS, 1)}


def notes_of(figure: str) -> tuple[str, ...]:
    """Return the footnotes of a figure by its name."""
    return OF_FIGURE.get(figure.split("-", 1)[0], ())
