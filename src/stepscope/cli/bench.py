"""``stepscope bench``: the load client alone, in the words of ``vllm bench serve``."""

import math
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
import msgspec

from stepscope.cli.bench_failures import failed_requests
from stepscope.cli.bench_flags import BACKENDS, METRICS, Asked
from stepscope.cli.bench_load import load_options
from stepscope.cli.bench_ready import when_ready
from stepscope.cli.bench_save import check_room, save
from stepscope.cli.bench_server import told_by_server
from stepscope.cli.bench_table import table
from stepscope.cli.bench_words import vllm_options
from stepscope.clock import SystemClock
from stepscope.errors import SessionError
from stepscope.load.drive import drive
from stepscope.load.journal import Recorded, Stamps, read_texts
from stepscope.load.prompts import uses_token_ids
from stepscope.load.scrape import scrape
from stepscope.load.server_tpot import Decoded
from stepscope.load.spec import WORKERS, LoadProgress, LoadResult, LoadSpec
from stepscope.run.requests import Request
from stepscope.units import NS_PER_S

#: Options that take several words after one flag, as argparse has it.
_MANY = ("--goodput", "--metadata", "--header")


class _VllmWords(click.Command):
    """A command whose repeatable options may also be given as one flag, many words."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        spread: list[str] = []
        flag: str | None = None
        for word in args:
            if word.startswith("--"):
                flag = word if word in _MANY else None
                if flag is None:
                    spread.append(word)
            elif flag is not None:
                spread += [flag, word]
            else:
                spread.append(word)
        return super().parse_args(ctx, spread)


@click.command(cls=_VllmWords)
@load_options
@vllm_options
@click.option(
    "--backend",
    default="openai",
    show_default=True,
    type=click.Choice(list(BACKENDS)),
    help="The server's dialect.",
)
@click.option(
    "--base-url",
    multiple=True,
    help="http(s)://host:port, in place of --host and --port. Several: replicas.",
)
@click.option(
    "--unix-socket",
    type=click.Path(path_type=Path),
    help="The server's socket, in place of --base-url.",
)
@click.option("--insecure", is_flag=True, help="https: take any certificate.")
@click.option(
    "--api-key-file", help="Holds the bearer token. Default: $OPENAI_API_KEY."
)
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    help="Where the server listens.",
)
@click.option("--port", default=8000, show_default=True, help="Its port.")
@click.option("--endpoint", help="Path of requests. Default: the backend's.")
@click.option("--model", help="Default: the first that the server lists.")
@click.option(
    "--served-model-name", help="The model's name in requests. Default: --model."
)
@click.option("--tokenizer", help="Recorded; token counts are the server's own.")
@click.option(
    "--num-prompts", default=1000, show_default=True, help="Requests to send."
)
@click.option(
    "--max-concurrency",
    type=int,
    help="Requests in flight at most. Default: no limit.",
)
@click.option("--ignore-eos", is_flag=True, help="Ask to go on past the end of text.")
@click.option(
    "--temperature", type=float, help="Of sampling. Default: the server's own."
)
@click.option("--seed", type=int, help="Of the prompts. Default: fresh, and printed.")
@click.option(
    "--num-warmups",
    type=int,
    help="Requests before the measured ones. Default: one wave. 0: none.",
)
@click.option(
    "--percentile-metrics",
    default="ttft,tpot,itl,e2el",
    show_default=True,
    help=f"Latencies to print, of {', '.join(METRICS)}.",
)
@click.option(
    "--metric-percentiles",
    default="99",
    show_default=True,
    help="Percentiles of them; several with commas.",
)
@click.option(
    "--goodput",
    multiple=True,
    help="Count requests within these: ttft:MS tpot:MS e2el:MS.",
)
@click.option("--extra-body", help="JSON object, added to every request.")
@click.option("--header", multiple=True, help="NAME=VALUE, sent along.")
@click.option(
    "--vocab-size",
    type=int,
    help="Token ids are drawn below it. Default: as the server says, or 4,096.",
)
@click.option("--processes", type=int, help="Client processes. Default: chosen.")
@click.option(
    "--load-workers",
    type=click.Choice(WORKERS),
    default=WORKERS[0],
    show_default=True,
    help="Where client processes run: here, or on a Ray cluster's nodes.",
)
@click.option("--cpus", help="CPUs for the client, such as 0-3. Default: all.")
@click.option(
    "--header-timeout",
    default=600.0,
    show_default=True,
    help="Longest wait for an answer's header, seconds.",
)
@click.option(
    "--stall-timeout",
    default=120.0,
    show_default=True,
    help="Longest silence inside an answer, seconds.",
)
@click.option(
    "--total-timeout",
    default=21_600.0,
    show_default=True,
    help="Longest that a request may take in all, seconds.",
)
@click.option("--save-result", is_flag=True, help="Write the result as JSON.")
@click.option("--save-detailed", is_flag=True, help="Requests one by one, too.")
@click.option(
    "--append-result", is_flag=True, help="Add the result as a line to its file."
)
@click.option(
    "--save-csv",
    type=click.Path(path_type=Path),
    help="Add a row to this file, which is made where it is missing.",
)
@click.option(
    "--result-dir",
    type=click.Path(path_type=Path),
    default=Path(),
    help="Where the result goes. Default: here.",
)
@click.option(
    "--result-filename",
    help="Its name. Default: made of label or backend, rate, model and date.",
)
@click.option("--metadata", multiple=True, help="NAME=VALUE, kept with the result.")
@click.option("--label", help="Begins the result's usual name. Default: the backend.")
@click.option("--disable-tqdm", is_flag=True, help="No progress line.")
@click.option("--json", "as_json", is_flag=True, help="The result on stdout.")
def bench(**flags: Any) -> int:
    """Measure a running server: a closed loop, or requests at a rate.

    Flags, table and saved JSON are those of vllm bench serve. Differences: one wave
    of warm-up, e2el among the metrics, a fresh seed, and the client's own health.
    """
    check_room(flags)
    clock = SystemClock()
    asked, spec = when_ready(flags)
    quiet = flags["disable_tqdm"] or not sys.stderr.isatty()
    print(f"seed {spec.seed}", file=sys.stderr)
    with _stop_on_interrupt() as stop, tempfile.TemporaryDirectory() as folder:
        if asked.n_warmups:
            _warm_up(spec, asked.n_warmups, Path(folder) / "warm-up", stop)
        where = Path(folder) / "cell"
        where.mkdir()
        progress = None if quiet else _Line(spec.n_prompts)
        before = scrape(spec, clock)
        result = drive(spec, where, clock=clock, on_progress=progress, stop=stop)
        scrapes = before, scrape(spec, clock)
        if progress is not None:
            progress.end()
        document, notes, metrics, mine = _document(asked, spec, result, where)
        fields, of_server = told_by_server(spec, scrapes, mine, result.health, clock)
        document |= fields
        findings = (*result.findings, *failed_requests(document), *of_server)
        document["findings"] = msgspec.to_builtins(findings)
    try:
        save(document, flags, asked)
    finally:  # what could not be kept is at least seen
        if flags["as_json"]:
            print(msgspec.json.encode(document).decode())
        else:
            print(table(document, metrics, asked.percentiles, result.health))
    for note in notes:
        print(note, file=sys.stderr)
    for finding in findings:
        hint = f". {finding.hint}" if finding.hint else ""
        print(f"{finding.code}: {finding.message}{hint}", file=sys.stderr)
    return _exit_code(result)


def _asked_length(spec: LoadSpec) -> int | None:
    """Return how long every prompt was to be; None: they differ."""
    if spec.input_tokens is None or spec.source.input_range:
        return None
    return spec.input_tokens + spec.source.prefix_tokens


def _exit_code(result: LoadResult) -> int:
    if result.stopped:
        return 130
    return 0 if result.n_ok else SessionError.exit_code


def _warm_up(spec: LoadSpec, n: int, folder: Path, stop: threading.Event) -> None:
    folder.mkdir()
    warm = msgspec.structs.replace(
        spec,
        n_prompts=n,
        concurrency=spec.concurrency or n,
        arrivals=None,
        seed=spec.seed + 1,
        keep_text=False,
    )
    print(f"warm-up: {n} requests", file=sys.stderr)
    drive(warm, folder, clock=SystemClock(), stop=stop)


def _document(
    asked: Asked, spec: LoadSpec, result: LoadResult, where: Path
) -> tuple[dict[str, Any], list[str], tuple[str, ...], Decoded]:
    """Return the saved result: vLLM's fields in vLLM's order, then ours.

    With it notes on lengths, the metrics to show (those asked for, and the first
    answer's where it is another time than the first content's), and what is held
    against the server's own.
    """
    # numpy, only now that no worker runs beside it.
    from stepscope.load import bench_result as words
    from stepscope.load.columns import columns

    cell = columns(Recorded(where, Request))
    chunks = words.chunks(Recorded(where, Stamps), cell, asked.percentiles)
    metrics = (*asked.metrics, "ttfat") if words.answered_later(cell) else asked.metrics
    one_by_one: dict[str, Any] = {}
    if asked.detailed:
        one_by_one = words.details(
            Recorded(where, Request), read_texts(where), spec.input_tokens or 0
        )
    now = SystemClock().wall_anchor().unix_ns / NS_PER_S
    date = datetime.fromtimestamp(now, UTC).astimezone()
    document = {
        "date": date.strftime("%Y%m%d-%H%M%S"),
        "endpoint_type": asked.backend,
        "backend": asked.backend,
        "label": asked.label,
        "model_id": asked.model,
        "tokenizer_id": asked.tokenizer or asked.model,
        "num_prompts": spec.n_prompts,
        **asked.metadata,
        **_traffic(asked, spec),
        **words.totals(cell, asked.goodput_ms),
        **one_by_one,
        **chunks.peaks,
        "rtfx": 0.0,
        **words.statistics(
            words.samples(cell), chunks.gaps, metrics, asked.percentiles
        ),
        "client": msgspec.to_builtins(result.health),
        "failures": dict(cell.failures),
        "replicas": words.by_replica(cell, spec.base_urls),
        "findings": msgspec.to_builtins(result.findings),
        "seed": spec.seed,
        "prepare_s": (
            None if result.prepare_ns is None else result.prepare_ns / NS_PER_S
        ),
        "num_warmups": asked.n_warmups,
        "prompt_form": "token-ids" if uses_token_ids(spec) else "text",
    }
    lengths = words.length_notes(cell, _asked_length(spec))
    return document, lengths, metrics, words.decoded(cell)


def _traffic(asked: Asked, spec: LoadSpec) -> dict[str, Any]:
    """Return what the saved result says of arrivals, as vLLM does."""
    arrivals = spec.arrivals
    rate = arrivals.rate if arrivals is not None else None
    burstiness = asked.burstiness
    said: dict[str, Any] = {
        "request_rate": "inf" if rate is None else rate,
        "burstiness": burstiness if math.isfinite(burstiness) else "inf",
        "max_concurrency": asked.max_concurrency,
    }
    if arrivals is not None and arrivals.kind in ("linear", "exponential"):
        said |= {
            "ramp_up_strategy": arrivals.kind,
            "ramp_up_start_rps": arrivals.start_rps,
            "ramp_up_end_rps": arrivals.end_rps,
        }
    if arrivals is not None:
        said["arrivals"] = arrivals.kind
    if spec.source.name != "random":
        said["dataset_name"] = spec.source.name
    return said


@contextmanager
def _stop_on_interrupt() -> Iterator[threading.Event]:
    """Let the first interrupt end the cell in good order, and the second kill it."""
    stop = threading.Event()
    before = signal.getsignal(signal.SIGINT)

    def interrupted(*_: object) -> None:
        signal.signal(signal.SIGINT, before)
        stop.set()

    signal.signal(signal.SIGINT, interrupted)
    try:
        yield stop
    finally:
        signal.signal(signal.SIGINT, before)


class _Line:
    """One moving line on a terminal's stderr."""

    def __init__(self, total: int) -> None:
        self._total = total

    def __call__(self, progress: LoadProgress) -> None:
        """Show how far it is."""
        done = progress.n_done + progress.n_failed
        text = f"\r{done}/{self._total} done, {progress.in_flight} in flight"
        if progress.n_failed:
            text += f", {progress.n_failed} failed"
        print(f"{text:<60}", end="", file=sys.stderr, flush=True)

    def end(self) -> None:
        """Leave the line."""
        print(file=sys.stderr)
