"""The embedded engine: llama.cpp's own C++ server, in a process of its own.

``python -m stepscope.engines.embedded --port 8080`` serves a small random model until
SIGTERM or SIGINT. One compute thread, unless told otherwise: with as many threads as
cores, spinning at barriers makes every step wait for whatever else runs.
"""

import argparse
import signal
import socket
import sys
from pathlib import Path

from stepscope.engines.gguf_model import ensure_model
from stepscope.errors import SessionError
from stepscope.recipe.window import EMBEDDED_SLOT_CONTEXT, EMBEDDED_SLOTS

ALIAS = "random-llama-28m"
_STOP = {signal.SIGTERM, signal.SIGINT}


def main(argv: list[str]) -> int:
    """Serve until a signal comes; return the exit code.

    Args:
        argv: Arguments without the program's name.
    """
    # Before any thread exists: threads inherit the mask, so the signal can only
    # arrive where it is waited for, however early it comes.
    signal.pthread_sigmask(signal.SIG_BLOCK, _STOP)
    options = _parser().parse_args(argv)
    try:
        _serve(options)
    except SessionError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m stepscope.engines.embedded", allow_abbrev=False
    )
    add = parser.add_argument
    add("--model", type=Path, help="a GGUF file; default: the random model")
    add("--alias", default=ALIAS, help="the name under which it is served")
    add("--host", default="127.0.0.1")
    add("--port", type=int, required=True)
    add("--slots", type=int, default=EMBEDDED_SLOTS, help="requests in one batch")
    add("--slot-context", type=int, default=EMBEDDED_SLOT_CONTEXT, help="tokens a slot")
    add("--threads", type=int, default=1, help="compute threads")
    return parser


def _serve(options: argparse.Namespace) -> None:
    try:
        import xllamacpp
    except ImportError as error:
        raise SessionError(
            "embedded engine",
            f"xllamacpp can not be loaded ({error})",
            "expected the extra 'embedded'",
            "Run: pip install 'stepscope[embedded]'",
        ) from error
    if options.model is not None and not options.model.is_file():
        raise SessionError(str(options.model), "no such file", "expected a GGUF model")
    _refuse_taken(options.host, options.port)
    params = xllamacpp.CommonParams()
    params.model.path = str(options.model or ensure_model())
    params.model_alias = {options.alias}
    params.hostnames = [options.host]
    params.port = options.port
    params.n_ctx = options.slots * options.slot_context
    params.n_parallel = options.slots
    params.cpuparams.n_threads = options.threads
    params.cpuparams_batch.n_threads = options.threads
    # One for each stream, as many that wait, and some for metrics.
    params.n_threads_http = 2 * options.slots + 8
    params.endpoint_metrics = True
    params.endpoint_slots = True
    params.ui = False
    try:
        server = xllamacpp.Server(params)
    except RuntimeError as error:
        raise SessionError(
            "embedded engine",
            f"llama.cpp did not start ({error})",
            f"expected to serve {params.model.path} on port {options.port}",
            "Read llama.cpp's lines",
        ) from error
    print(f"stepscope.engines.embedded: serving {server.listening_address}", flush=True)
    signal.sigwait(_STOP)
    del server  # its threads end before the interpreter does


def _refuse_taken(host: str, port: int) -> None:
    """Raise where the port can not be bound, before llama.cpp loads a model.

    llama.cpp would say so too, but from a thread of its own that writes its lines
    when it gets to them: before, after or within ours.
    """
    where = f"embedded engine, --port {port}"
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with socket.socket(family) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, port))
    except OverflowError:
        raise SessionError(where, "not a port", "expected 0 to 65535") from None
    except OSError as error:
        raise SessionError(
            where,
            f"{host} can not be bound ({error.strerror})",
            "expected a free port",
            "Stop what listens there, or choose another",
        ) from error


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
