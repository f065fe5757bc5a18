"""RUN on the command line: a run directory, or anything that can be imported."""

from pathlib import Path

from stepscope.archive.layout import is_run
from stepscope.archive.reader import open_run
from stepscope.importers.files import existing
from stepscope.importers.load import load_foreign
from stepscope.importers.timelines import with_timelines
from stepscope.run.run import Run


def open_any(path: Path) -> Run:
    """Return the run that lies at ``path``, or that the results there make.

    Its kernel timelines are read.

    Raises:
        RecipeError: It does not exist.
        ArchiveError: It is damaged, or of no known form.
        RefusedError: It is of a known form that is not read.
    """
    existing(path)
    ours = path.is_dir() and is_run(path)
    return with_timelines(open_run(path) if ours else load_foreign(path))
