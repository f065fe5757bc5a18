"""``stepscope doctor``: what this machine can measure, and how to get the rest."""

import sys
from pathlib import Path

import click


@click.command()
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    default=Path("runs"),
    show_default=True,
    help="Where runs would go.",
)
@click.option("--bandwidth", is_flag=True, help="Also measure the memory of GPU 0.")
def doctor(*, as_json: bool, out: Path, bandwidth: bool) -> None:
    """Say what this machine can measure, what is missing, and how to get it.

    Nothing is started and nothing is written; exit code 0 whatever is missing, but 3
    where --bandwidth has no GPU or no PyTorch. `floor --bandwidth FILE` takes the
    JSON and uses the measured rate instead of the data sheet's.
    """
    from stepscope.clock import SystemClock
    from stepscope.session.doctor import diagnosis

    found = diagnosis(out, SystemClock(), bandwidth=bandwidth)
    if as_json:
        import msgspec

        sys.stdout.buffer.write(msgspec.json.encode(found) + b"\n")
        return
    for line in found.lines:
        print(f"{line.state:8} {line.name}: {line.found}")
        if line.gives and line.state != "ok":
            print(f"{'':9}for {line.gives}")
        if line.get:
            print(f"{'':9}to get it: {line.get}")
    if found.bandwidth is not None:
        rates = found.bandwidth
        print(
            f"\nGPU 0 memory: {rates.read_bytes_per_s / 1e12:.3f} TB/s read"
            f" ({rates.read_kernel}), {rates.copy_bytes_per_s / 1e12:.3f} TB/s copied"
        )
    for sample in () if found.gpus is None else found.gpus.samples:
        print(f"\nGPU {sample.gpu}, one sample:")
        for name in sample.__struct_fields__[2:]:
            value = getattr(sample, name)
            print(f"  {name:24} {'unknown' if value is None else value}")
