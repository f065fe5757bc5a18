"""``stepscope floor``: the step time that no implementation can beat."""

from pathlib import Path

import click
import msgspec

from stepscope.errors import ArchiveError, RecipeError
from stepscope.physics.blocks import KvRules
from stepscope.physics.document import FloorDocument, floor_document
from stepscope.physics.hardware import Gpu, find_gpu, gpu_names
from stepscope.physics.model.records import ModelShape
from stepscope.physics.shapes import model_shape
from stepscope.physics.step import StepOptions
from stepscope.recipe.records import Layout


@click.command("floor")
@click.argument("model_config", type=click.Path(path_type=Path))
@click.option("--gpu", required=True, help="Accelerator, such as H200.")
@click.option("--tp", default=1, show_default=True, help="Tensor parallel ranks.")
@click.option("--dp", default=1, show_default=True, help="Data parallel ranks.")
@click.option("--ep", default=1, show_default=True, help="Expert parallel ranks.")
@click.option("--pp", default=1, show_default=True, help="Pipeline stages.")
@click.option(
    "--dcp", default=1, show_default=True, help="Decode context parallel ranks."
)
@click.option(
    "--batch",
    default="1",
    show_default=True,
    help="Sequences in flight over all data parallel ranks; several with commas.",
)
@click.option(
    "--context", default=2048, show_default=True, help="Tokens of a sequence so far."
)
@click.option(
    "--kv-dtype",
    default="auto",
    show_default=True,
    help="Type of keys and values: auto, bf16, fp8, fp8_ds_mla, ...",
)
@click.option(
    "--bandwidth",
    default=None,
    help="Measured bytes/s of the GPU's memory, or a saved `doctor --json` file."
    " Default: the data sheet's.",
)
@click.option(
    "--drafts", default=0, show_default=True, help="Tokens verified beside each."
)
@click.option(
    "--routing",
    type=click.Path(path_type=Path),
    default=None,
    help="JSON list: tokens that each expert got. Default: all alike.",
)
@click.option("--offload-tables", is_flag=True, help="Lookup tables in host memory.")
@click.option(
    "--dp-replicas", is_flag=True, help="Data parallel ranks share no experts."
)
@click.option(
    "--max-num-batched-tokens",
    default=16_384,
    show_default=True,
    help="Tokens of a step at most, which windows of attention reserve blocks for.",
)
@click.option(
    "--block-size",
    type=int,
    help="Tokens of a KV block. Default: 16; 128 for DeepSeek V4.1.",
)
@click.option(
    "--like",
    default=None,
    help="Model type to assume for an unknown one. Default: none, refused.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
def floor(
    model_config: Path,
    *,
    gpu: str,
    tp: int,
    dp: int,
    ep: int,
    pp: int,
    dcp: int,
    batch: str,
    context: int,
    kv_dtype: str,
    bandwidth: str | None,
    drafts: int,
    routing: Path | None,
    offload_tables: bool,
    dp_replicas: bool,
    max_num_batched_tokens: int,
    block_size: int | None,
    like: str | None,
    as_json: bool,
) -> None:
    """Bytes and milliseconds per decode step and rank, and KV bytes.

    MODEL_CONFIG is a model's config.json, or a folder that holds one.
    """
    if context < 0 or drafts < 0 or max_num_batched_tokens < 1:
        raise RecipeError(
            "--context, --drafts, --max-num-batched-tokens",
            f"{context}, {drafts}, {max_num_batched_tokens}",
            "0 or more, 0 or more, 1 or more",
        )
    device = _gpu(gpu, bandwidth)
    shape = _shape(model_config, like)
    _share_heads(shape, tp)
    document = floor_document(
        shape,
        device,
        Layout(tp=tp, dp=dp, pp=pp, ep=ep, dcp=dcp),
        (_batches(batch), context),
        StepOptions(
            kv_dtype=kv_dtype,
            tokens_per_sequence=1.0 + drafts,
            routing=_routing(routing),
            dp_shares_experts=not dp_replicas,
            tables_offloaded=offload_tables,
        ),
        KvRules(
            block_tokens=block_size,
            max_batched_tokens=max_num_batched_tokens,
            kv_dtype=kv_dtype,
        ),
    )
    if as_json:
        click.echo(msgspec.json.encode(document).decode())
    else:
        _print(document)


def _share_heads(shape: ModelShape, tp: int) -> None:
    """Refuse a degree that no engine takes."""
    heads = shape.n_attention_heads
    if heads and tp > 0 and heads % tp:
        raise RecipeError(
            "--tp",
            f"{tp} does not divide the model's {heads} attention heads",
            "expected a divisor of it",
        )


def _shape(path: Path, like: str | None) -> ModelShape:
    file = path / "config.json" if path.is_dir() else path
    if not file.exists():
        raise RecipeError(
            str(path),
            "no config.json in this folder" if path.is_dir() else "no such file",
            "expected a model's config.json, or a folder that holds one",
        )
    try:
        text = file.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise RecipeError(
            str(file), f"cannot be read ({error})", "expected a model's config.json"
        ) from error
    return model_shape(text, str(file), like=like)


def _gpu(name: str, bandwidth: str | None) -> Gpu:
    gpu = find_gpu(name)
    if gpu is None:
        raise RecipeError(
            "--gpu", f"{name!r} is not known", f"one of {', '.join(gpu_names())}"
        )
    if bandwidth is None:
        return gpu
    value, source = _bandwidth(bandwidth)
    if not 1e9 <= value <= 1e14:
        raise RecipeError(
            "--bandwidth", f"{value:g} bytes/s", "between 1e9 and 1e14 bytes/s"
        )
    return gpu.with_bandwidth(value, source)


def _bandwidth(text: str) -> tuple[float, str]:
    try:
        return float(text), "given"
    except ValueError:
        pass
    file = Path(text)
    if not file.exists():
        raise RecipeError(
            "--bandwidth", repr(text), "bytes/s, or a file that doctor saved"
        )
    try:
        saved = msgspec.json.decode(file.read_bytes())
    except (OSError, msgspec.DecodeError) as error:
        raise ArchiveError(
            str(file), f"cannot be read ({error})", "what `doctor --json` printed"
        ) from error
    inner = saved.get("bandwidth", saved) if isinstance(saved, dict) else None
    value = inner.get("read_bytes_per_s") if isinstance(inner, dict) else None
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise RecipeError(
            str(file),
            "no field read_bytes_per_s",
            "what `stepscope doctor --bandwidth --json` printed",
        )
    return float(value), f"measured: {file.name}"


def _batches(text: str) -> tuple[float, ...]:
    found = []
    for word in text.split(","):
        try:
            value = float(word)
        except ValueError:
            value = -1.0
        if not 0 < value < 1e9:
            raise RecipeError("--batch", repr(word), "numbers above 0, with commas")
        found.append(value)
    return tuple(found)


def _routing(file: Path | None) -> tuple[float, ...]:
    if file is None:
        return ()
    if not file.exists():
        raise RecipeError(str(file), "no such file", "a JSON list of tokens an expert")
    try:
        return tuple(msgspec.json.decode(file.read_bytes(), type=list[float]))
    except msgspec.DecodeError as error:
        raise RecipeError(
            str(file), f"no list of numbers ({error})", "one figure an expert"
        ) from error


def _print(document: FloorDocument) -> None:
    click.echo(
        f"{document.model}: {document.params_total / 1e9:,.2f} B parameters,"
        f" {document.params_active / 1e9:,.2f} B active, {document.weight_format};"
        f" {document.weight_bytes_per_rank / 2**30:,.2f} GiB of weights a rank"
    )
    if document.experts is not None:
        each = document.experts
        click.echo(
            f"experts: {each.per_token} of {each.n} a layer,"
            f" {each.bytes_each:,.0f} bytes each, {each.bytes_total / 2**30:,.2f} GiB"
        )
    parts = ", ".join(
        f"{part} {n_bytes / 1e9:,.2f}"
        for part, n_bytes in document.dense_parts_bytes.items()
        if n_bytes >= 5e6
    )
    click.echo(f"dense reads a step, GB: {parts}")
    fixed = document.kv.bytes_per_request_fixed
    click.echo(
        f"KV a rank: {document.kv.bytes_per_token:,.0f} bytes a token"
        + ("" if not fixed else f" and {fixed / 1e6:,.1f} MB set aside a request")
    )
    click.echo("")
    click.echo(
        f"{'batch':>8} {'seqs/rank':>10} {'experts':>8} {'dense':>9} {'expert':>9}"
        f" {'KV':>9} {'sum':>9} {'floor':>9} {'compute':>9} {'links':>9}  binds"
    )
    for p in document.points:
        covered = "-" if p.coverage is None else f"{100 * p.coverage:.1f} %"
        links = p.communication_ms
        click.echo(
            f"{p.batch:>8g} {p.seqs_per_rank:>10g} {covered:>8}"
            f" {p.dense_bytes / 1e9:>6.2f} GB {p.expert_bytes / 1e9:>6.2f} GB"
            f" {p.kv_bytes / 1e9:>6.2f} GB {p.bytes_per_rank / 1e9:>6.2f} GB"
            f" {p.floor_ms:>6.2f} ms {p.compute_ms:>6.2f} ms"
            + (f" {'unknown':>9}" if links is None else f" {links:>6.2f} ms")
            + f"  {p.binds}"
        )
    click.echo("")
    for note in document.assumptions:
        click.echo(f"- {note}")
