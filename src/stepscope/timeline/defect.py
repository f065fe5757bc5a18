"""A way in which a trace lies: its code, consequence and meaning."""

from dataclasses import dataclass

#: code -> (spoils every idle figure, what it means, what to do)
DEFECTS: dict[str, tuple[bool, str, str]] = {
    "no-device-records": (
        True,
        "no GPU work is in it",
        "Profile the process that launches the kernels, with CUDA activities on.",
    ),
    "graph-granularity": (
        True,
        "graph launches were recorded as one box, so kernels inside them are absent",
        "Capture again with --cuda-graph-trace=node (nsys) or with a profiler that"
        " records graph nodes.",
    ),
    "records-dropped": (
        True,
        "device records are missing: replays of one graph differ in their node count,"
        " or stamps are zero, or far fewer nodes arrived than the graph has",
        "Capture fewer steps, or enlarge the profiler's buffers.",
    ),
    "late-flush": (
        True,
        "most steps hold almost none of the kernels that others hold",
        "Synchronise before the profiler stops, and capture again.",
    ),
    "step-cut": (
        True,
        "a device operation waited on work that is not in the file: the window was"
        " cut by launches, not by device time",
        "Extend the window to the device work that precedes the first step.",
    ),
    "mixed-processes": (
        True,
        "several processes ran, or may have run, on one device, or share correlation"
        " ids: what is idle for one may be another's work",
        "Profile one server alone on the GPU, one file a process.",
    ),
    "duplicate-records": (
        False,
        "device records stand in the file twice; one of each was kept",
        "",
    ),
    "edge-steps-cut": (
        False,
        "the window begins or ends inside a step; that step was left out",
        "",
    ),
    "stalled-steps": (
        False,
        "a few steps last more than five times the median one: they were left out",
        "See what held the server up then: a profiler that started or wrote, a pause of"
        " the host, another rank. If the load has such steps, the mean is with them.",
    ),
    "host-clock-skew": (
        False,
        "operations begin before the call that launched them, outlast a device"
        " synchronisation, or never begin soon after their call: host and device clocks"
        " differ, so idle time has no cause",
        "Device time holds. Capture again; a newer profiler aligns the clocks better.",
    ),
    "profiler-slowdown": (
        False,
        "the traced step is longer than the untraced one: idle time that the host"
        " causes is inflated by the profiler",
        "Profile without stacks and shapes, and compare again.",
    ),
    "stitched-timestamps": (
        False,
        "more than half of the gaps are exactly zero: ends were stitched to the next"
        " start, so busy time is an upper bound and gaps inside graphs are unknown",
        "Bound kernel time with another profiler; only gaps between launches hold.",
    ),
    "microsecond-resolution": (
        False,
        "stamps are whole microseconds: gaps below 1 us are invisible",
        "Use a profiler that writes nanoseconds.",
    ),
    "stream-overlap": (
        False,
        "operations of one stream overlap (programmatic dependent launch): time is"
        " taken as the union, sums of durations would count it twice",
        "",
    ),
    "duration-overflow": (
        False,
        "some durations reach over later operations of their stream and lie far above"
        " the same kernel's median; they were cut at the next start",
        "",
    ),
    "no-host-records": (
        False,
        "no host calls were recorded: idle time has no cause",
        "Profile with CPU activities on.",
    ),
    "unlinked-operations": (
        False,
        "operations without a launch record: their gaps have no cause",
        "",
    ),
    "unequal-ranks": (
        False,
        "the ranks' collectives can not be matched: they end before the last rank"
        " arrived, or differ in number",
        "Take all ranks' traces of the same steps.",
    ),
    "clock-offset": (
        False,
        "ranks' clocks differ: ends of matched collectives were aligned by median",
        "",
    ),
}


@dataclass(frozen=True, slots=True)
class Defect:
    """A defect found in one trace, with the numbers that show it."""

    code: str
    detail: str

    @property
    def spoils_idle(self) -> bool:
        """True when no idle figure may be printed."""
        return DEFECTS[self.code][0]
