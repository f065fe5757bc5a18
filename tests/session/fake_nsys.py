"""A program that takes nsys' words, and fails as it is told to.

``FAKE_NSYS`` says what goes wrong; ``FAKE_NSYS_EXPORT`` names the SQLite file that an
export is to give. What it records is nothing.
"""

import itertools
import os
import shutil
import sys
import time
from pathlib import Path

MODE = os.environ.get("FAKE_NSYS", "")
VERB, WORDS = sys.argv[1], sys.argv[2:]
LED = itertools.takewhile(lambda word: word.startswith("--"), WORDS)
OPTIONS = dict(word[2:].split("=", 1) for word in LED)
REPORT = Path(os.environ["TMPDIR"], "timeline.nsys-rep")


def fail(line: str) -> None:
    sys.stderr.write(f"progress 99%\r{line}\n\n")
    raise SystemExit(1)


if VERB == MODE:
    fail(f"nsys {VERB} fails as it was told to")
if VERB == "launch":
    command = WORDS[len(OPTIONS) :]
    os.execvp(command[0], command)
elif VERB == "stop" and MODE == "slow":
    time.sleep(60)
elif VERB == "stop" and MODE == "raw":
    REPORT.with_suffix(".qdstrm").write_text("a stream")
    sys.stdout.write("The importer was not found.\n")
elif VERB == "stop" and MODE != "silent":
    REPORT.write_text("a report")
elif VERB == "export":
    shutil.copyfile(os.environ["FAKE_NSYS_EXPORT"], OPTIONS["output"])
