"""Put on PYTHONPATH by ``selfcheck.py``: a thread that keeps the interpreter busy."""

import os
import sys
import threading


def _burn() -> None:
    n = 0
    while True:
        n += 1


if os.environ.get("BURN") and "stepscope.load.worker" in sys.orig_argv:
    threading.Thread(target=_burn, daemon=True).start()
