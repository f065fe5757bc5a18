"""``stepscope import``: foreign results to a run directory."""

from pathlib import Path

import click


@click.command("import")
@click.argument("paths", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    help="The run directory to write; it must not exist. Default: runs/NAME.",
)
def import_(paths: tuple[Path, ...], out: Path | None) -> None:
    """Turn foreign results into a run.

    PATH is an import.toml or its folder, a vllm bench serve JSON (plain or .gz), a
    folder of them, a vllm bench sweep folder, an SGLang bench_serving jsonl, or a
    folder with server.log of a server that was never measured. Several paths become
    one run with a launch each.
    """
    from stepscope.importers.save import import_to

    target = out if out is not None else Path("runs") / _name(paths[0])
    written = import_to(paths, target)
    print(written)
    click.echo(f"Read it with: stepscope analyze {written}", err=True)


def _name(path: Path) -> str:
    resolved = path.resolve()
    if resolved.name == "import.toml":
        return resolved.parent.name
    return resolved.name.removesuffix(".gz").removesuffix(".json") or "imported"
