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
    help="Where runs would go.",
)
def doctor(*, as_json: bool, out: Path) -> None:
    """Say what this machine can measure, what is missing, and how to get it.

    Nothing is started and nothing is written; exit code 0 whatever is missing.
    """
    from stepscope.clock import SystemClock
    from stepscope.session.doctor import diagnosis

    found = diagnosis(out, SystemClock())
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
    for sample in () if found.gpus is None else found.gpus.samples:
        print(f"\nGPU {sample.gpu}, one sample:")
        for name in sample.__struct_fields__[2:]:
            value = getattr(sample, name)
            print(f"  {name:24} {'unknown' if value is None else value}")
