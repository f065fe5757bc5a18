"""The one builder of small loads for the tests, and a cell driven with one."""

from pathlib import Path

from tests.load.scripted import Script, ScriptedServer

from stepscope.clock import SystemClock
from stepscope.load.drive import drive
from stepscope.load.journal import read_requests
from stepscope.load.spec import LoadResult, LoadSpec
from stepscope.run.requests import Request


def spec_for(url: str, **changes: object) -> LoadSpec:
    """A closed loop of six requests on three slots, but for what is changed."""
    fields: dict[str, object] = {
        "base_url": url,
        "model": "m",
        "n_prompts": 6,
        "concurrency": 3,
        "input_tokens": 8,
        "output_tokens": 4,
        "vocab_size": 4096,
        "header_timeout_s": 20,
        "stall_timeout_s": 20,
    }
    return LoadSpec(**{**fields, **changes})  # type: ignore[arg-type]


def driven(
    folder: Path, script: Script, **changes: object
) -> tuple[LoadResult, tuple[Request, ...], ScriptedServer]:
    """What comes of such a load on a scripted server."""
    with ScriptedServer(script) as server:
        result = drive(spec_for(server.url, **changes), folder, clock=SystemClock())
    return result, read_requests(folder), server
