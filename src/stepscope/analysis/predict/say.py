"""What a prediction takes for granted, in words."""

from stepscope.analysis.predict.basis import Basis
from stepscope.analysis.predict.elsewhere import Move, fractions
from stepscope.analysis.predict.limits import Limit, batch_limit
from stepscope.physics.comm import communication
from stepscope.run.run import Launch, Run


def assumptions(
    run: Run, base: Basis, launch: Launch | None, move: Move | None
) -> tuple[str, ...]:
    """Return everything that was taken for granted, most weighty first."""
    shape = f"{base.input_tokens} tokens in, {base.output_tokens} out"
    told = [
        f"the step is {base.model.step_source}: with prefill in the steps, where it"
        " shared them",
        f"requests like those measured ({shape}), all sent at once: a closed loop that"
        " is always full",
        "the interval is for one more run on the same server: another start, host or"
        " day may differ by more",
        "errors outside the measured range grow in proportion to the doublings",
    ]
    if not any(launch.log is not None for launch in run.launches):
        told.append("no server log: neither KV memory nor graph sizes bound anything")
    if batch_limit(run, launch) is None:
        told.append(
            "no flag of the server bounds the sequences of a step; its default may"
        )
    return tuple((_moved(base, move) if move is not None else []) + told)


def _moved(base: Basis, move: Move) -> list[str]:
    low, middle, high = fractions(base, move)
    origin = "fitted" if base.curve.bandwidth is not None else "assumed"
    target = move.target
    gain = move.gains
    found = [
        f"bytes are read at {100 * middle:.0f} % of the data sheet's bandwidth where it"
        f" was measured ({origin}; {100 * low:.0f} to {100 * high:.0f} % in the"
        " interval), and at 0.8 to 1.05 of that part elsewhere",
        "the toll that does not depend on the batch is the host's and stays",
        "what grows with sequences lies between staying and shrinking with a rank's"
        f" arithmetic ({gain:.2g} x), and so does the wait for the first token",
        "the same engine, and KV memory as the target's data sheet leaves it",
    ]
    layout = target.layout
    said = communication(move.shape, layout, 1, target.gpu, move.options)
    n = sum(c.per_step for c in said.collectives)
    if n:
        found.append(
            f"{n} collectives a step, each its bytes over the link and 0 to 30 us"
            " (assumed, not measured)"
        )
        found.append(
            f"all {layout.tp * layout.dp * layout.pp} ranks share the link of"
            f" {target.gpu.name}; between hosts it is slower, and that is not in it"
        )
        if said.floor_ms is None:
            found.append(f"the link of {target.gpu.name} is not known: bytes are free")
    return found


def point_notes(
    launch: Launch | None, x: float, concurrency: int, limit: Limit | None
) -> tuple[str, ...]:
    """Return what else bears on one point."""
    notes = []
    if limit is not None:
        notes.append(
            f"{limit.why}; of {concurrency} in flight the others queue, so the rate is"
            f" that of {limit.sequences:g}"
        )
    largest = None
    if launch is not None and launch.log is not None:
        largest = launch.log.resolved.get("max_cudagraph_capture_size")
    if isinstance(largest, int | float) and 0 < largest < x:
        notes.append(
            f"above {largest:g}, the largest captured graph, steps run without a full"
            " graph: the toll may be another"
        )
    return tuple(notes)
