"""One result file of a client to one cell."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from stepscope.errors import RecipeError, RefusedError
from stepscope.findings import Finding
from stepscope.importers.files import damaged, plain_suffix, read_bytes
from stepscope.parse.vllm_bench import BenchResult, parse_bench, read_result
from stepscope.recipe.records import Workload
from stepscope.run.requests import Request
from stepscope.run.run import Cell, Summary

#: ``format`` in import.toml -> what it is read as.
FORMATS = ("vllm-bench", "sglang-bench")


def read_results(path: Path) -> list[BenchResult]:
    """Read a result file: one JSON object, or an SGLang jsonl with one a line.

    Raises:
        ArchiveError: It is damaged or of another form; the file and key are named.
        RefusedError: It is a form that is known and not read.
    """
    data = read_bytes(path)
    try:
        if plain_suffix(path) == ".jsonl":
            return [parse_bench(line) for line in data.splitlines() if line.strip()]
        return [parse_bench(data)]
    except ValueError as error:
        refuse_known(path, data)
        raise damaged(path, str(error)) from error


def read_summary_list(path: Path) -> list[BenchResult]:
    """Read a sweep's ``summary.json``: a list of results without requests."""
    try:
        rows = msgspec.json.decode(read_bytes(path), type=list[dict[str, Any]])
        return [read_result(row) for row in rows]
    except (msgspec.DecodeError, ValueError) as error:
        raise damaged(path, f"is no list of results ({error})") from error


def refuse_known(path: Path, data: bytes) -> None:
    """Raise for results of tools whose form is known and not read yet."""
    head = data[:20_000]
    for tool, marks in (
        ("GuideLLM", (b'"benchmarks"', b'"inter_token_latency_ms"')),
        ("GuideLLM", (b'"benchmarks"', b'"guidellm')),
        ("AIPerf", (b'"inter_token_latency"', b'"request_latency"')),
        ("AIPerf", (b'"aiperf', b'"metadata"')),
    ):
        if all(mark in head for mark in marks):
            raise RefusedError(
                str(path),
                f"is a result of {tool}, which is not read yet",
                "a vllm bench serve JSON, a vllm bench sweep folder, an SGLang jsonl,"
                " or an import.toml",
                "Measure again with vllm bench serve --save-detailed",
            )


def is_result(path: Path) -> bool:
    """Tell whether a JSON file looks like a client's result, by its keys."""
    if plain_suffix(path) not in (".json", ".jsonl"):
        return False
    try:
        head = read_bytes(path)
    except RecipeError:
        return False
    return b'"completed"' in head and b'"duration"' in head


def workload_of(result: BenchResult) -> Workload:
    """Return what was asked, as far as a result says."""
    chat = "chat" in (result.backend or "")
    answered = [request for request in result.requests if request.ok]
    known = result.summary
    return Workload(
        concurrency=result.concurrency,
        n_prompts=result.n_prompts,
        input_tokens=_each(
            [request.prompt_tokens for request in result.requests],
            known.input_tokens,
            known.n_completed,
        ),
        output_tokens=_each(
            [request.output_tokens for request in answered],
            known.output_tokens,
            known.n_completed,
        ),
        endpoint="/v1/chat/completions" if chat else "/v1/completions",
        request_rate=result.request_rate,
    )


def _each(counts: Sequence[int | None], total: int | None, n: int) -> int | None:
    """Return tokens of each request where all have as many; None where they differ.

    Without single requests a total that is a whole number each is taken for that.
    """
    if counts:
        return counts[0] if len(set(counts)) == 1 else None
    return total // n if total and n and total % n == 0 else None


def cell_of(
    name: str,
    configuration: str,
    launch: str,
    results: Sequence[BenchResult],
    path: Path,
    *,
    source: str = "vllm-bench",
) -> Cell:
    """Return the cell of one client command, or of several that ran side by side.

    Its requests are on the client's monotonic clock; without single requests the
    file's own figures become ``summary``.
    """
    first = results[0]
    workload = workload_of(first)
    if len(results) > 1:
        known = [result.concurrency for result in results]
        workload = msgspec.structs.replace(
            workload,
            n_prompts=sum(result.n_prompts for result in results),
            concurrency=None if None in known else sum(filter(None, known)),
        )
    requests = tuple(_side_by_side(results))
    return Cell(
        name=name,
        configuration=configuration,
        launch=launch,
        workload=workload,
        requests=requests,
        summary=None if requests else _joined(results, path),
        source=source,
        raw_path=str(path.resolve()),
    )


def _side_by_side(results: Sequence[BenchResult]) -> Iterator[Request]:
    """Yield the requests of all clients in order of sending, one worker a client."""
    if any(not result.requests for result in results):
        return
    if len(results) == 1:
        yield from results[0].requests
        return
    offset = 0
    merged: list[Request] = []
    for worker, result in enumerate(results):
        merged += [
            msgspec.structs.replace(r, worker=worker, index=r.index + offset)
            for r in result.requests
        ]
        offset += len(result.requests)
    yield from sorted(merged, key=lambda request: request.sent_at_ns)


def _joined(results: Sequence[BenchResult], path: Path) -> Summary:
    if len(results) > 1:
        raise RefusedError(
            str(path),
            "several clients side by side without single requests",
            "their latencies can not be pooled from means and percentiles",
            "Save with --save-detailed, or import each as a cell of its own",
        )
    return results[0].summary


def result_findings(cell: str, result: BenchResult) -> list[Finding]:
    """Return what a reader of this result must know."""
    found = []
    if not result.requests:
        found.append(
            Finding(
                code="no-request-details",
                severity="info",
                message="The file holds no single requests, so only its own figures"
                " are known: no window, no occupancy by record, no stalls.",
                hint="Save with --save-detailed.",
                cell=cell,
            )
        )
    if not result.failures_known:
        found.append(
            Finding(
                code="failed-requests",
                severity="info",
                message="The file does not say how many requests failed.",
                cell=cell,
            )
        )
    return found
