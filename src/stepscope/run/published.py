"""What a source published of a measurement: figures without samples, and claims."""

from typing import Literal

import msgspec


class TelemetryMeans(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True
):
    """Means over a window that the source chose; the samples themselves are not there.

    Attributes:
        window_s: Length of that window; None: not stated.
        n_samples: Samples of one GPU in it; None: not stated.
        util_pct: nvidia-smi utilization, mean over samples and GPUs.
        util_spread_points: Highest less lowest mean utilization of a GPU.
        power_w: A GPU.
        power_limit_w: The enforced cap of a GPU.
        sm_clock_mhz: A GPU.
    """

    window_s: float | None = None
    n_samples: int | None = None
    util_pct: float | None = None
    util_spread_points: float | None = None
    power_w: float | None = None
    power_limit_w: float | None = None
    sm_clock_mhz: float | None = None


class Claim(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One statement of the source, to be held against the evidence.

    It says one of five things: a figure (``quantity`` and ``value``), a verdict
    (``hypothesis`` and ``status``), an effect (``effect_pct`` of ``configuration``
    against ``against``), how a log is to be read (``reading``), or which causes were
    looked at (``considered``).

    Attributes:
        id: Short name, unique in the run.
        text: What the source says, in few words.
        configuration: Which it is about; None: the first one.
        concurrency: Where; None: everywhere, or nowhere in particular.
        quantity: A name of ``board.published.quantities.QUANTITIES``.
        value: In the quantity's unit.
        hypothesis: A hypothesis of the board.
        status: What the source concludes about it.
        by: What it concludes from, in few words.
        effect_pct: Change of ``metric``, percent.
        metric: ``output_tokens_per_s`` (also None), ``tpot_ms`` or ``ttft_ms``.
        against: The configuration that it is compared with.
        reading: A name of ``board.published.readings.READINGS``.
        considered: Hypotheses that the source weighed.
    """

    id: str
    text: str
    configuration: str | None = None
    concurrency: int | None = None
    quantity: str | None = None
    value: float | None = None
    hypothesis: str | None = None
    status: Literal["supported", "ruled-out"] | None = None
    by: str | None = None
    effect_pct: float | None = None
    metric: str | None = None
    against: str | None = None
    reading: str | None = None
    considered: tuple[str, ...] = ()
