"""A server that speaks as vLLM does, and whose profiler fails as it is told to.

``FAKE_EVENTS`` names the file where requests are written down; ``FAKE_MODE`` says what
goes wrong; ``FAKE_VERSION`` is what its log says.
"""

import gzip
import json
import os
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

MODE = os.environ.get("FAKE_MODE", "")
EVENTS = Path(os.environ["FAKE_EVENTS"])
STEP_S = 0.01
TRACE = gzip.compress(json.dumps({"traceEvents": [{"ph": "M"}] * 1000}).encode(), 1)


def flag(name: str) -> str | None:
    return sys.argv[sys.argv.index(name) + 1] if name in sys.argv else None


def profiler_folder() -> str | None:
    config = flag("--profiler-config")
    if config is not None:
        return str(json.loads(config)["torch_profiler_dir"])
    return os.environ.get("VLLM_TORCH_PROFILER_DIR")


def note(text: str) -> None:
    with EVENTS.open("a") as stream:
        stream.write(text + "\n")


def finish(path: Path) -> None:
    time.sleep(0.4)
    with path.open("ab") as stream:
        stream.write(TRACE[50:])


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *arguments: object) -> None:
        """Keep the log to what a test reads."""

    def do_GET(self) -> None:
        self.answer(200, b"up 1\n")

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.path.endswith("_profile"):
            note(self.path)
            self.profile()
        else:
            asked = json.loads(body)
            note("request")
            self.stream(asked["max_tokens"], len(asked["prompt"]))

    def profile(self) -> None:
        folder = profiler_folder()
        if folder is None or MODE == "refuse":
            self.answer(404, b'{"detail":"Not Found"}')
            return
        if self.path == "/stop_profile" and MODE != "silent":
            time.sleep(60 if MODE == "slow" else 0.3)
            path = Path(folder) / "host_7.rank0.pt.trace.json.gz"
            path.write_bytes(TRACE[:50])
            (Path(folder) / "profiler_out_0.txt").write_text("a table")
            if MODE != "torn":
                threading.Thread(target=finish, args=(path,)).start()
        self.answer(200, b"")

    def stream(self, n_tokens: int, n_prompt: int) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for index in range(n_tokens):
            time.sleep(STEP_S)
            end = "length" if index == n_tokens - 1 else None
            self.event({"choices": [{"index": 0, "text": "a", "finish_reason": end}]})
        usage = {"prompt_tokens": n_prompt, "completion_tokens": n_tokens}
        self.event({"choices": [], "usage": usage})
        self.chunk(b"data: [DONE]\n\n")
        self.chunk(b"")

    def event(self, data: object) -> None:
        self.chunk(b"data: " + json.dumps(data).encode() + b"\n\n")

    def chunk(self, data: bytes) -> None:
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        self.wfile.flush()

    def answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


version = os.environ.get("FAKE_VERSION", "0.26.0")
sys.stdout.write(
    "(APIServer pid=1) INFO 11-30 02:18:09 [utils.py:1] vLLM API server version"
    f" {version}\n"
)
sys.stdout.flush()
note(f"boot {profiler_folder() is not None}")
ThreadingHTTPServer(("127.0.0.1", int(flag("--port") or 0)), Handler).serve_forever()
