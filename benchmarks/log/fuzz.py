"""Coverage-guided fuzzing of the log reader and its verdict; needs atheris.

``python benchmarks/log/fuzz.py CORPUS -max_total_time=600``; an input that breaks an
invariant is left as ``crash-*``. Start with copies of ``tests/data/logs`` in CORPUS.
"""

import sys
from pathlib import Path

import atheris

sys.path.insert(0, str(Path(__file__).parents[2]))

with atheris.instrument_imports(include=["stepscope.parse", "stepscope.analysis.boot"]):
    from stepscope.parse.serverlog import LogReader

from tests.parse.log_invariants import check_document, check_log

_EXITS = (None, 0, 1, -9, 137, -11, -7)


def one_input(data: bytes) -> None:
    """Read a log whole and in two pieces: the same record, and all invariants."""
    exit_code = _EXITS[len(data) % len(_EXITS)]
    whole, cut = LogReader(), LogReader()
    whole.feed(data)
    log = whole.close()
    cut.feed(data[: len(data) // 2])
    cut.feed(data[len(data) // 2 :])
    assert cut.close() == log, "the record depends on where the pieces end"
    check_log(log, data)
    check_document(log, exit_code)


if __name__ == "__main__":
    atheris.Setup(sys.argv, one_input)
    atheris.Fuzz()
