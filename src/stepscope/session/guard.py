"""Stands between us and a server: when we die, however we die, the server ends too.

``python -m stepscope.session.guard PARENT [--cpus 0-3] -- COMMAND...`` runs the
command as its child. The kernel signals the guard when its parent is gone; it then
ends its process group. Otherwise it passes on the child's exit code.
"""

import ctypes
import os
import signal
import subprocess
import sys

_PR_SET_PDEATHSIG = 1
_GRACE_S = 10.0


def main(argv: list[str]) -> int:
    """Run the command; return its exit code, 128 + n for signal n."""
    parent, *rest = argv
    split = rest.index("--")
    options, command = rest[:split], rest[split + 1 :]
    ended: list[int] = []
    signal.signal(signal.SIGUSR1, lambda *_: ended.append(1))
    # A handler that does nothing: the server would inherit SIG_IGN.
    signal.signal(signal.SIGTERM, _nothing)
    signal.signal(signal.SIGINT, _nothing)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGUSR1, 0, 0, 0)
    if os.getppid() != int(parent):
        return 3
    if options:
        from stepscope.recipe.schema import cpu_set

        os.sched_setaffinity(0, cpu_set(options[1]) or os.sched_getaffinity(0))
    try:
        child = subprocess.Popen(command)  # noqa: S603  # the recipe's own command
    except OSError as error:
        sys.stderr.write(f"{command[0]}: {error.strerror}\n")
        return 127
    while (code := child.poll()) is None:
        try:
            child.wait(0.1)
        except subprocess.TimeoutExpired:
            if ended:
                return _end(child)
    return code if code >= 0 else 128 - code


def _nothing(*_: object) -> None:
    """Survive a signal to the group: the server's exit code is still to be told."""


def _end(child: "subprocess.Popen[bytes]") -> int:
    from stepscope.session.host import tree

    everyone = tree({child.pid})
    for sign in (signal.SIGTERM, signal.SIGKILL):
        for pid in everyone | tree({child.pid}):
            try:
                os.kill(pid, sign)
            except ProcessLookupError:
                continue
        try:
            child.wait(_GRACE_S)
        except subprocess.TimeoutExpired:
            continue
    return 128 + signal.SIGTERM


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
