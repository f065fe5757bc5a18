"""A server of known times: every step, each running stream gets one token.

It writes down, on the monotonic clock, when each request reached this host (the
kernel's stamp), when each token was handed to its socket, and how late each step began.
Stop it with SIGTERM; then it saves to the .npz file it was given

    arrivals   int64[n]       requests in order of arrival, nanoseconds
    n_tokens   int64[n]       tokens written to each
    writes     int64[sum]     when each token was handed to the socket, by request
    late_ns    int64[steps]   start of each busy step after its due time
    spent_ns   int64[steps]   writing one token to every running stream
    n_again    int64          sends that the kernel refused (0: no client was too slow)

    python burst_server.py PORT STEP_MS TTFT_MS OUT.npz [realtime]
"""

import gc
import os
import re
import select
import signal
import socket
import struct
import sys
import time
from array import array

import numpy as np

_SO_TIMESTAMPNS = 35
_HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\n"
    b"transfer-encoding: chunked\r\n\r\n"
)
_MODELS = b'{"object":"list","data":[{"id":"tiny","object":"model","owned_by":"b"}]}'
_LIMIT = re.compile(rb'"max_(?:completion_)?tokens":\s*(\d+)')


def _chunk(data: bytes) -> bytes:
    event = b"data: " + data + b"\n\n"
    return b"%x\r\n%s\r\n" % (len(event), event)


#: Tokens as they come in prose: of all lengths, one in ten escaped or beyond ASCII.
_TOKENS = (
    " The", " cat", " sat", " on", " the", " window", "s", "ill", ",", " watching",
    " rain", " that", " would", " not", " stop", ".", "\\n\\n", "It", " had", " been",
    " there", " since", " morning", " \u2014", " or", " so", " her", " neighbour", ":",
    " said", ' \\"', "Un", "believ", "able", "!", '\\"\\n', " 1", "984", " a", " of",
)  # fmt: skip


def _stream(event: bytes) -> list[bytes]:
    """Return one chunk for each token; ``event`` holds %s where its text goes."""
    return [_chunk(event % token.encode()) for token in _TOKENS]


_TEXT = _stream(
    b'{"id":"cmpl-5fd8b3d92f6c4ef0","object":"text_completion","created":1796004749,'
    b'"model":"tiny","choices":[{"index":0,"text":"%s","logprobs":null,'
    b'"finish_reason":null,"stop_reason":null,"prompt_token_ids":null,'
    b'"token_ids":null}]}'
)
_DELTA = _stream(
    b'{"id":"chatcmpl-5fd8b3d92f6c4ef0","object":"chat.completion.chunk",'
    b'"created":1796004749,"model":"tiny","choices":[{"index":0,"delta":{"content":'
    b'"%s"},"logprobs":null,"finish_reason":null,"token_ids":null}]}'
)


def _tail(n: int, prompt: int) -> bytes:
    usage = (
        b'{"id":"cmpl-5fd8b3d92f6c4ef0","object":"text_completion","created":1796004749,'
        b'"model":"tiny","choices":[],'
        b'"usage":{"prompt_tokens":%d,"total_tokens":%d,"completion_tokens":%d}}'
        % (prompt, prompt + n, n)
    )
    return _chunk(usage) + _chunk(b"[DONE]") + b"0\r\n\r\n"


def _json(body: bytes, status: bytes = b"200 OK") -> bytes:
    return (
        b"HTTP/1.1 %s\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s"
        % (status, len(body), body)
    )


_OFFSET_NS = time.monotonic_ns() - time.time_ns()


def _arrival_ns(ancillary: list[tuple[int, int, bytes]]) -> int | None:
    for _, kind, data in ancillary:
        if kind == _SO_TIMESTAMPNS:
            seconds, ns = struct.unpack("@qq", data[:16])
            return seconds * 1_000_000_000 + ns + _OFFSET_NS
    return None


class Server:
    """Streams by descriptor: request number, tokens left, running, its tokens."""

    def __init__(self, port: int, step_ns: int, ttft_ns: int) -> None:
        self.step_ns, self.ttft_ns = step_ns, ttft_ns
        self.listener = socket.create_server(("127.0.0.1", port), backlog=4096)
        self.listener.setblocking(False)
        self.poll = select.epoll()
        self.poll.register(self.listener, select.EPOLLIN)
        self.socks: dict[int, socket.socket] = {}
        self.parts: dict[int, bytes] = {}
        self.waiting: list[tuple[int, int]] = []
        self.running: dict[int, list] = {}
        self.arrivals: list[int] = []
        self.writes: list[array[int]] = []
        self.late_ns, self.spent_ns = array("q"), array("q")
        self.going = True
        self.n_again = 0

    def readable(self, fd: int) -> None:
        if fd == self.listener.fileno():
            self.accept()
            return
        try:
            data, ancillary, _, _ = self.socks[fd].recvmsg(1 << 16, 64)
        except BlockingIOError:
            return
        except OSError:
            data, ancillary = b"", []
        # The kernel's stamp: when the request reached this host, not this process.
        now = _arrival_ns(ancillary) or time.monotonic_ns()
        if not data:
            self.poll.unregister(fd)
            self.socks.pop(fd).close()
            self.running.pop(fd, None)
            return
        data = self.parts[fd] + data
        head, end, body = data.partition(b"\r\n\r\n")
        length = re.search(rb"content-length: (\d+)", head.lower())
        if not end or len(body) < (int(length.group(1)) if length else 0):
            self.parts[fd] = data
            return
        self.parts[fd] = b""
        self.request(fd, head, body, now)

    def accept(self) -> None:
        for _ in range(256):
            try:
                sock, _ = self.listener.accept()
            except BlockingIOError:
                return
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
            self.socks[sock.fileno()] = sock
            self.parts[sock.fileno()] = b""
            self.poll.register(sock, select.EPOLLIN)

    def request(self, fd: int, head: bytes, body: bytes, now: int) -> None:
        method, path = head.split(b" ", 2)[:2]
        limit = _LIMIT.search(body)
        if method != b"POST" or limit is None:
            known = path in {b"/v1/models", b"/health"}
            answer = _json(_MODELS) if known else _json(b"{}", b"404 Not Found")
            self.socks[fd].send(answer)
            return
        tokens = _DELTA if b"chat" in path else _TEXT
        self.arrivals.append(now)
        self.writes.append(array("q"))
        self.waiting.append((now + self.ttft_ns, fd))
        number = len(self.arrivals) - 1
        self.running[fd] = [number, int(limit.group(1)), False, tokens]
        self.socks[fd].send(_HEAD)

    def step(self, now: int, late_ns: int) -> None:
        if self.waiting and any(due <= now for due, _ in self.waiting):
            for due, fd in self.waiting:
                if due <= now and fd in self.running:
                    self.running[fd][2] = True
            self.waiting = [w for w in self.waiting if w[0] > now]
        ended = []
        for fd, state in self.running.items():
            number, left, running, tokens = state
            if not running:
                continue
            state[1] = left - 1
            writes = self.writes[number]
            data = tokens[(number + left) % len(tokens)]
            if left == 1:
                data += _tail(len(writes) + 1, 128)
            writes.append(time.monotonic_ns())
            try:
                self.socks[fd].send(data)
            except BlockingIOError:
                self.n_again += 1
            except OSError:
                ended.append(fd)
                continue
            if left == 1:
                ended.append(fd)
        if self.running:
            self.late_ns.append(late_ns)
            self.spent_ns.append(time.monotonic_ns() - now)
        for fd in ended:
            del self.running[fd]

    def serve(self) -> None:
        due = time.monotonic_ns() + self.step_ns
        while self.going:
            now = time.monotonic_ns()
            if now >= due:
                self.step(now, now - due)
                due = max(due + self.step_ns, time.monotonic_ns())
                continue
            for fd, _ in self.poll.poll(max((due - now) / 1e9 - 0.0005, 0), 4096):
                if fd in self.socks or fd == self.listener.fileno():
                    self.readable(fd)

    def save(self, path: str) -> None:
        np.savez(
            path,
            arrivals=np.array(self.arrivals, np.int64),
            n_tokens=np.array([len(w) for w in self.writes], np.int64),
            writes=np.concatenate([np.zeros(0, np.int64), *map(np.array, self.writes)]),
            late_ns=np.array(self.late_ns),
            spent_ns=np.array(self.spent_ns),
            n_again=np.int64(self.n_again),
        )


def main() -> None:
    port, step_ms, ttft_ms, out = sys.argv[1:5]
    if "realtime" in sys.argv[5:]:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(20))
    server = Server(int(port), int(float(step_ms) * 1e6), int(float(ttft_ms) * 1e6))
    signal.signal(signal.SIGTERM, lambda *_: setattr(server, "going", False))
    gc.disable()
    server.serve()
    server.save(out)


if __name__ == "__main__":
    main()
