"""Make a large nsys export out of a real one: its rows again and again, later on.

python enlarge_nsys.py SOURCE.sqlite OUT.sqlite N_COPIES
"""

import shutil
import sqlite3
import sys
from pathlib import Path

_TABLES = (
    "CUPTI_ACTIVITY_KIND_KERNEL",
    "CUPTI_ACTIVITY_KIND_MEMCPY",
    "CUPTI_ACTIVITY_KIND_MEMSET",
    "CUPTI_ACTIVITY_KIND_RUNTIME",
    "NVTX_EVENTS",
)


def enlarge(source: Path, out: Path, n_copies: int) -> None:
    """Write ``out`` with the rows of ``source`` so many times."""
    shutil.copyfile(source, out)
    out.chmod(0o644)
    db = sqlite3.connect(out)
    present = {row[0] for row in db.execute("SELECT name FROM sqlite_master")}
    for table in present.intersection(_TABLES):
        columns = [row[1] for row in db.execute(f"PRAGMA table_info({table})")]
        lo, hi = db.execute(f"SELECT min(start), max(end) FROM {table}").fetchone()
        shifted = ", ".join(_shifted(c, (hi or lo) - lo + 1_000_000) for c in columns)
        # The original rows are those up to here; copies must not be copied.
        last = db.execute(f"SELECT max(rowid) FROM {table}").fetchone()[0]
        for k in range(1, n_copies):
            db.execute(
                f"INSERT INTO {table} ({', '.join(columns)})"
                f" SELECT {shifted} FROM {table} WHERE rowid <= {last}",
                {"k": k},
            )
    db.commit()
    db.close()


def _shifted(column: str, span: int) -> str:
    if column in ("start", "end"):
        return f'"{column}" + :k * {span}'
    if column == "correlationId":
        return f'"{column}" + :k * 10000000'
    return f'"{column}"'


if __name__ == "__main__":
    enlarge(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
