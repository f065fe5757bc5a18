"""The embedded default engine: llama.cpp's own C++ server, in a process of its own.

``python -m stepscope.engines.embedded --port 9000`` serves until it is told to stop.
One compute thread by default: with two on two cores, anything else that runs (the
client is enough) makes llama.cpp's spin barriers collapse.
"""

import argparse
import signal
import sys
from pathlib import Path

from stepscope.engines.gguf_model import ensure_model


def _arguments(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="stepscope.engines.embedded")
    parser.add_argument("--model", type=Path, help="GGUF; default: the random model")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--slots", type=int, default=16, help="requests at once")
    parser.add_argument("--slot-context", type=int, default=512, help="tokens a slot")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--alias", default="random-llama-28m")
    return parser.parse_args(argv)


def main(argv: list[str]) -> int:
    """Serve until SIGTERM or SIGINT; return the exit code."""
    options = _arguments(argv)
    try:
        import xllamacpp
    except ImportError:
        print(
            "stepscope.engines.embedded: xllamacpp is not installed; the embedded"
            " engine needs it. Run: pip install 'stepscope[embedded]'.",
            file=sys.stderr,
        )
        return 3
    stop = {signal.SIGTERM, signal.SIGINT}
    # Blocked before the server starts its threads, so that only sigwait sees them.
    signal.pthread_sigmask(signal.SIG_BLOCK, stop)
    model = options.model or ensure_model()
    params = xllamacpp.CommonParams()
    params.model.path = str(model)
    params.n_ctx = options.slots * options.slot_context
    params.n_parallel = options.slots
    params.cpuparams.n_threads = options.threads
    params.cpuparams_batch.n_threads = options.threads
    params.hostnames = [options.host]
    params.port = options.port
    params.model_alias = {options.alias}
    params.endpoint_metrics = True
    params.endpoint_slots = True
    params.ui = False
    server = xllamacpp.Server(params)
    print(f"stepscope.engines.embedded: serving {server.listening_address}", flush=True)
    signal.sigwait(stop)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
