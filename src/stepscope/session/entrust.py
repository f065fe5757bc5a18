"""Gives a server the secrets that the program which starts it must not see.

``python -m stepscope.session.entrust FILE PROGRAM ARGUMENT...`` reads variables from a
JSON file that the guard wrote, removes the file, and becomes the program with them in
its environment. nsys writes the environment that it is started with into every report,
and a report is kept with the run.
"""

import json
import os
import sys
from pathlib import Path


def main(argv: list[str]) -> int:
    """Become the program; return the exit code where it can not be started.

    Args:
        argv: The file, then the words of the program.
    """
    file, *command = argv
    path = Path(file)
    secrets: dict[str, str] = json.loads(path.read_text())
    path.unlink()
    try:
        os.execvpe(command[0], command, {**os.environ, **secrets})  # noqa: S606  # the recipe's own command
    except OSError as error:
        sys.stderr.write(f"{command[0]}: {error.strerror}\n")
    return 127


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
