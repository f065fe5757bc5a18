"""Where things lie in a run directory. docs/run-format.md says the same in prose.

``FORMAT`` counts incompatible changes: a reader opens every format up to its own.
"""

import re
from pathlib import Path
from urllib.parse import quote, unquote

FORMAT = 1

HEADER = "run.json"
MANIFEST = "manifest.json"
RECIPE = "recipe.toml"
MODEL_CONFIG = "model_config.json"
RECORDS = "records.journal"
LAUNCHES = "launches"
CELLS = "cells"
SAMPLES = "samples"
FOREIGN = "foreign"
TRACES = "traces"
SET_ASIDE = "set-aside"

SERVER_LOG = "server.log"
REQUESTS = "requests.parquet"
METRICS_BEFORE = "metrics-before.txt"
METRICS_AFTER = "metrics-after.txt"
#: Ends the name of a file that is not yet whole; readers pass it over.
PART = ".part"

_SEGMENT = re.compile(r"samples-(\d+)\.journal|[a-z]+-(\d+)\.(?:parquet|frames)")


def dir_name(name: str) -> str:
    """Return the directory of a cell or launch; ``plain_name`` is the way back."""
    safe = quote(name, safe=" =+,@()")
    return "%2E" + safe[1:] if safe.startswith(".") else safe


def plain_name(directory: str) -> str:
    """Return the name that ``dir_name`` was given."""
    return unquote(directory)


def request_journals(cell_dir: Path) -> list[Path]:
    """Return a cell's journals, one a client worker, in order of the worker."""
    return sorted(cell_dir.glob("requests-*.journal"))


def segments(run_dir: Path) -> list[int]:
    """Return the numbers of the sampling segments, ascending: one a (re)start."""
    folder = run_dir / SAMPLES
    if not folder.is_dir():
        return []
    hits = (_SEGMENT.fullmatch(path.name) for path in folder.iterdir())
    return sorted({int(hit[1] or hit[2]) for hit in hits if hit})


def is_run(path: Path) -> bool:
    """Tell whether ``path`` is a run directory, finished or not."""
    return (path / HEADER).is_file()
