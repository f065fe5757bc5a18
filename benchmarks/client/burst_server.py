"""A server of known times: every step, each running stream gets one token.

It writes down, on the monotonic clock, when each request was read and when each token
was handed to its socket. Run it, drive it, stop it with SIGTERM; then it saves
``arrivals`` (int64[n]), ``n_tokens`` (int64[n]) and ``writes`` (int64[sum]) by request
in order of arrival to the .npz file it was given.

    python burst_server.py PORT STEP_MS TTFT_MS OUT.npz
"""

import gc
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


def _chunk(data: bytes) -> bytes:
    event = b"data: " + data + b"\n\n"
    return b"%x\r\n%s\r\n" % (len(event), event)


_TOKEN = _chunk(
    b'{"id":"cmpl-5fd8b3d92f6c4ef0","object":"text_completion","created":1796004749,'
    b'"model":"tiny","choices":[{"index":0,"text":" loader","logprobs":null,'
    b'"finish_reason":null,"stop_reason":null,"prompt_token_ids":null,'
    b'"token_ids":null}]}'
)


def _tail(n: int, prompt: int) -> bytes:
    usage = (
        b'{"id":"cmpl-5fd8b3d92f6c4ef0","object":"text_completion","choices":[],'
        b'"usage":{"prompt_tokens":%d,"total_tokens":%d,"completion_tokens":%d}}'
        % (prompt, prompt + n, n)
    )
    return _chunk(usage) + _chunk(b"[DONE]") + b"0\r\n\r\n"


_OFFSET_NS = time.monotonic_ns() - time.time_ns()


def _arrival_ns(ancillary: list[tuple[int, int, bytes]]) -> int | None:
    for _, kind, data in ancillary:
        if kind == _SO_TIMESTAMPNS:
            seconds, ns = struct.unpack("@qq", data[:16])
            return seconds * 1_000_000_000 + ns + _OFFSET_NS
    return None


class Server:
    """Streams by descriptor; ``at`` is the step in which a stream gets its next."""

    def __init__(self, port: int, step_ns: int, ttft_ns: int) -> None:
        self.step_ns, self.ttft_ns = step_ns, ttft_ns
        self.listener = socket.create_server(("127.0.0.1", port), backlog=4096)
        self.listener.setblocking(False)
        self.poll = select.epoll()
        self.poll.register(self.listener, select.EPOLLIN)
        self.socks: dict[int, socket.socket] = {}
        self.parts: dict[int, bytes] = {}
        self.waiting: list[tuple[int, int, int]] = []
        self.running: dict[int, list[int]] = {}
        self.arrivals: list[int] = []
        self.writes: list[array[int]] = []
        self.going = True
        self.n_again = self.n_late = 0

    def readable(self, fd: int) -> None:
        if fd == self.listener.fileno():
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
            return
        data, ancillary, _, _ = self.socks[fd].recvmsg(1 << 16, 64)
        # The kernel's stamp: when the request reached this host, not this process.
        now = _arrival_ns(ancillary) or time.monotonic_ns()
        if not data:
            self.poll.unregister(fd)
            self.socks.pop(fd).close()
            self.running.pop(fd, None)
            return
        data = self.parts[fd] + data
        head, _, body = data.partition(b"\r\n\r\n")
        length = re.search(rb"content-length: (\d+)", head.lower())
        if length is None or len(body) < int(length.group(1)):
            self.parts[fd] = data
            return
        self.parts[fd] = b""
        if not head.startswith(b"POST"):
            self.socks[fd].send(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n")
            return
        tokens = int(re.search(rb'"max_tokens":(\d+)', body).group(1))
        self.arrivals.append(now)
        self.writes.append(array("q"))
        self.waiting.append((now + self.ttft_ns, fd, tokens))
        self.running[fd] = [len(self.arrivals) - 1, tokens, 0]
        self.socks[fd].send(_HEAD)

    def step(self, now: int) -> None:
        ready = {fd for due, fd, _ in self.waiting if due <= now}
        if ready:
            self.waiting = [w for w in self.waiting if w[0] > now]
            for fd in ready:
                if fd in self.running:
                    self.running[fd][2] = 1
        ended = []
        for fd, state in self.running.items():
            if not state[2]:
                continue
            request, left, _ = state
            state[1] = left - 1
            data = (
                _TOKEN if left > 1 else _TOKEN + _tail(len(self.writes[request]) + 1, 8)
            )
            self.writes[request].append(time.monotonic_ns())
            try:
                self.socks[fd].send(data)
            except BlockingIOError:
                self.n_again += 1
            if left == 1:
                ended.append(fd)
        for fd in ended:
            del self.running[fd]

    def serve(self) -> None:
        due = time.monotonic_ns() + self.step_ns
        while self.going:
            now = time.monotonic_ns()
            if now >= due:
                self.n_late += now - due > 2_000_000
                self.step(now)
                due = max(due + self.step_ns, time.monotonic_ns())
                continue
            for fd, _ in self.poll.poll(max((due - now) / 1e9 - 0.0005, 0), 4096):
                self.readable(fd)


def main() -> None:
    port, step_ms, ttft_ms, out = sys.argv[1:5]
    server = Server(int(port), int(float(step_ms) * 1e6), int(float(ttft_ms) * 1e6))
    signal.signal(signal.SIGTERM, lambda *_: setattr(server, "going", False))
    gc.disable()
    server.serve()
    print(
        f"blocked sends {server.n_again}, late steps {server.n_late}", file=sys.stderr
    )
    np.savez(
        out,
        arrivals=np.array(server.arrivals),
        n_tokens=np.array([len(w) for w in server.writes]),
        writes=np.concatenate([np.array(w) for w in server.writes]),
    )


if __name__ == "__main__":
    main()
