"""Step time over sequences per rank: constant, line, hinge, or bytes that grow."""

from collections import defaultdict
from collections.abc import Callable, Sequence

import numpy as np

from stepscope.analysis.across.fits import Fit, Floats, better, hinge, linear
from stepscope.analysis.across.groups import readable, whole_waves
from stepscope.analysis.records import CellResult, StepModel

#: Bytes of one step of one rank at x sequences per rank.
BytesAt = Callable[[float], float]
_N_CURVE = 60
#: A knee whose interval spans more is not claimed.
_MOST_KNEE_SPAN = 4.0


def step_ms(cell: CellResult) -> float | None:
    """Return the step time of a cell: the engine's own, else TPOT as the server saw it.

    TPOT is the step time only when no prefill shares the steps.
    """
    for value in (cell.engine_step_ms, cell.server_tpot_ms, cell.tpot_ms.mean):
        if value is not None:
            return value
    return None


def step_models(
    cells: Sequence[CellResult],
    dp: int,
    bytes_at: BytesAt | None,
    contaminated: frozenset[str] = frozenset(),
) -> tuple[StepModel, ...]:
    """Fit each configuration of each session that has three sizes or more.

    Args:
        cells: All cells; void, failed, warm-up and partial-wave cells are left out,
            and the contaminated. A cell with an odd TTFT stays: its steps are sound.
        dp: Data-parallel ranks.
        bytes_at: Bytes per step and rank; None for an unknown model.
        contaminated: Names of first runs that stand apart from their repeats.
    """
    rows: dict[tuple[str, str], list[CellResult]] = defaultdict(list)
    for cell in readable(cells):
        usable = whole_waves(cell) and cell.name not in contaminated
        if usable and step_ms(cell) is not None and cell.concurrency:
            rows[(cell.configuration, cell.session)].append(cell)
    models = [_model(name, points, dp, bytes_at) for (name, _), points in rows.items()]
    return tuple(m for m in models if m is not None)


def _model(
    name: str, cells: Sequence[CellResult], dp: int, bytes_at: BytesAt | None
) -> StepModel | None:
    slots = np.array([(c.concurrency or 1) for c in cells], dtype=np.float64)
    held = np.array([c.occupancy or 1.0 for c in cells])
    x = slots * np.minimum(held, 1.0) / dp
    y = np.array([step_ms(c) or 0.0 for c in cells])
    # An observed occupancy differs from repeat to repeat: sizes are the asked ones.
    if np.unique(slots).size < 3 or (y <= 0).any():
        return None
    plain = _plain(name, x, y, slots / dp)
    if bytes_at is None:
        return plain
    grown = _coverage(name, x, y, bytes_at)
    if grown is None or (grown.residual_pct or 0) >= (plain.residual_pct or 0):
        return plain
    return grown


def _plain(name: str, x: Floats, y: Floats, sizes: Floats) -> StepModel:
    ones = np.ones_like(x)
    flat = linear(ones[:, None], y)
    line = linear(np.column_stack([ones, x]), y)
    bent = hinge(sizes, y) if np.unique(sizes).size >= 5 else None
    n = x.size
    rejected = []
    if bent is not None:
        spread = (bent.knee_ci or (1.0, 99.0))[1] / (bent.knee_ci or (1.0, 99.0))[0]
        wins = better(line.sse, bent.sse, n, 2, 3) and bent.slope > 0
        if wins and spread <= _MOST_KNEE_SPAN and not bent.at_the_end:
            level, slope, knee = bent.level, bent.slope, bent.knee
            return _record(
                name, "hinge", x, y, bent.sse,
                lambda at: level + slope * np.maximum(at - knee, 0),
                level=(level, bent.level_ci), slope=(slope, bent.slope_ci),
                knee=(knee, bent.knee_ci),
            )  # fmt: skip
        why = "not better than a line" if not wins else "its knee is not pinned down"
        rejected.append(f"hinge: {why}")
    if better(flat.sse, line.sse, n, 1, 2):
        theta = line.theta
        return _record(
            name, "line", x, y, line.sse, lambda at: theta[0] + theta[1] * at,
            level=(float(theta[0]), line.interval(0)),
            slope=(float(theta[1]), line.interval(1)), rejected=tuple(rejected),
        )  # fmt: skip
    level = float(flat.theta[0])
    return _record(
        name, "constant", x, y, flat.sse, lambda at: np.full_like(at, level),
        level=(level, flat.interval(0)), slope=(0.0, None),
        rejected=(*rejected, "line: not better than a constant"),
    )  # fmt: skip


def _coverage(name: str, x: Floats, y: Floats, bytes_at: BytesAt) -> StepModel | None:
    """Fit t = toll + bytes(x) / bandwidth + slope x, none of them negative.

    Assumes: bytes are read at one bandwidth at every size.
    """
    if np.unique(np.round(x, 1)).size < 4:
        return None
    size = np.array([bytes_at(float(at)) for at in x])
    columns = {"toll": np.ones_like(x), "bytes": size, "slope": x}
    fit, kept = _positive(columns, y)
    if "bytes" not in kept:
        return None
    at = {key: i for i, key in enumerate(kept)}
    per_byte = float(fit.theta[at["bytes"]])
    ci = fit.interval(at["bytes"])
    toll = float(fit.theta[at["toll"]]) if "toll" in at else 0.0
    slope = float(fit.theta[at["slope"]]) if "slope" in at else 0.0

    def curve(xs: Floats) -> Floats:
        moved = np.array([bytes_at(float(v)) for v in xs])
        return np.asarray(toll + per_byte * moved + slope * xs)

    return _record(
        name, "coverage", x, y, fit.sse, curve,
        level=(toll, fit.interval(at["toll"]) if "toll" in at else None),
        slope=(slope, fit.interval(at["slope"]) if "slope" in at else None),
        bandwidth=(
            1e3 / per_byte,
            None if ci is None or ci[0] <= 0 else (1e3 / ci[1], 1e3 / ci[0]),
        ),
    )  # fmt: skip


def _positive(columns: dict[str, Floats], y: Floats) -> tuple[Fit, list[str]]:
    """Fit; drop the most negative term and fit again until none is negative."""
    kept = list(columns)
    while True:
        fit = linear(np.column_stack([columns[k] for k in kept]), y)
        scale = [fit.theta[i] * np.mean(columns[k]) for i, k in enumerate(kept)]
        worst = int(np.argmin(scale))
        if scale[worst] >= 0 or len(kept) == 1:
            return fit, kept
        kept.pop(worst)


def _record(  # noqa: PLR0913  # the four labelled numbers of a model
    name: str,
    kind: str,
    x: Floats,
    y: Floats,
    sse: float,
    curve: Callable[[Floats], Floats],
    *,
    level: tuple[float, tuple[float, float] | None],
    slope: tuple[float, tuple[float, float] | None],
    knee: tuple[float, tuple[float, float] | None] | None = None,
    bandwidth: tuple[float, tuple[float, float] | None] | None = None,
    rejected: tuple[str, ...] = (),
) -> StepModel:
    grid = np.geomspace(float(x.min()), float(x.max()), _N_CURVE)
    shares = {
        f"{at:g}": float(100 * level[0] / curve(np.array([at]))[0])
        for at in np.unique(np.round(x, 2)).tolist()
    }
    asymptote = None
    if kind == "hinge" and knee is not None:
        asymptote = level[0] - slope[0] * knee[0]
    return StepModel(
        configuration=name,
        kind=kind,  # type: ignore[arg-type]  # the literals are this module's own
        n_points=x.size,
        level_ms=level[0],
        level_ci95_ms=level[1],
        slope_ms_per_seq=slope[0],
        slope_ci95=slope[1],
        knee_seqs_per_rank=None if knee is None else knee[0],
        knee_ci95=None if knee is None else knee[1],
        asymptote_ms=asymptote,
        toll_share={k: min(v, 100.0) for k, v in shares.items()},
        residual_pct=float(100 * np.sqrt(sse / x.size)),
        bandwidth_bytes_per_s=None if bandwidth is None else bandwidth[0],
        bandwidth_ci95=None if bandwidth is None else bandwidth[1],
        points=tuple(zip(x.tolist(), y.tolist(), strict=True)),
        curve=tuple(zip(grid.tolist(), curve(grid).tolist(), strict=True)),
        rejected=rejected,
    )
