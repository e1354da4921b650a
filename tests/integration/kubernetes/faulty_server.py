"""An HTTP server that answers as a test says: with errors, with half of an answer, or not at all."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

Answer = Callable[["FaultyRequest"], None]


class FaultyServer(ThreadingHTTPServer):
    """Answers to each method and path come in the order in which the test has put them; the last one stays."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), FaultyRequest)
        self.answers: dict[tuple[str, str], deque[Answer]] = defaultdict(deque)
        self.seen: list[tuple[str, str, dict[str, str], Any]] = []
        self.url = f"http://127.0.0.1:{self.server_address[1]}"

    def will(self, method: str, path: str, *answers: Answer) -> None:
        self.answers[method, path].extend(answers)

    def asked(self, method: str, path: str) -> list[dict[str, str]]:
        """The queries of the requests to this path so far."""
        return [query for m, p, query, _ in self.seen if (m, p) == (method, path)]

    def kubeconfig(self, path: Path, token: str = "sesame-token") -> Path:
        document = {
            "current-context": "faulty",
            "contexts": [{"name": "faulty", "context": {"cluster": "c", "user": "u", "namespace": "ns"}}],
            "clusters": [{"name": "c", "cluster": {"server": self.url}}],
            "users": [{"name": "u", "user": {"token": token}}],
        }
        path.write_text(json.dumps(document))
        return path


class FaultyRequest(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: FaultyServer

    def _answer(self) -> None:
        parts = urlsplit(self.path)
        size = int(self.headers.get("Content-Length") or 0)
        self.body = json.loads(self.rfile.read(size)) if size else None
        self.server.seen.append((self.command, parts.path, dict(parse_qsl(parts.query)), self.body))
        answers = self.server.answers[self.command, parts.path]
        answer = answers.popleft() if len(answers) > 1 else answers[0] if answers else status(404, "NotFound")
        answer(self)

    do_GET = do_HEAD = do_POST = do_DELETE = do_PATCH = _answer

    def send(self, code: int, data: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(code)
        for name, value in {"Content-Type": "application/json", **(headers or {})}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        """Nothing on stderr."""


def json_answer(value: object) -> Answer:
    return lambda request: request.send(200, json.dumps(value).encode())


def status(code: int, reason: str, message: str = "", **headers: str) -> Answer:
    """An error as the API server writes it."""
    body = {"kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": message}
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return lambda request: request.send(code, json.dumps(body).encode(), named)


def page(code: int, text: str, **headers: str) -> Answer:
    """An answer of a proxy, or of another server."""
    return lambda request: request.send(code, text.encode(), {"Content-Type": "text/html", **headers})


def drop(request: FaultyRequest) -> None:
    """Close the connection without an answer."""
    request.close_connection = True
    request.connection.shutdown(socket.SHUT_RDWR)


def drip(request: FaultyRequest) -> None:
    """An answer of one byte after the other, without end."""
    request.send_response(200)
    request.end_headers()
    with suppress(OSError):
        while True:
            request.wfile.write(b" ")
            time.sleep(0.02)


def break_off(request: FaultyRequest) -> None:
    """Close the connection in the middle of an answer."""
    request.send_response(200)
    request.send_header("Content-Length", "99")
    request.end_headers()
    request.wfile.write(b"{")
    drop(request)


def changes(*lines: object, cut: bool = False, hold: float = 0.0) -> Answer:
    """A watch that sends these changes, and then ends, breaks in the middle of a line, or stays open for a while."""

    def answer(request: FaultyRequest) -> None:
        request.send_response(200)
        request.send_header("Transfer-Encoding", "chunked")
        request.end_headers()
        for line in lines:
            data = json.dumps(line).encode() + b"\n"
            request.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        request.wfile.flush()
        if hold:
            request.connection.settimeout(hold)
            with suppress(OSError):
                request.connection.recv(1)
        if cut:
            request.wfile.write(b'20\r\n{"type": "ADD')
            request.wfile.flush()
            drop(request)
        else:
            request.wfile.write(b"0\r\n\r\n")

    return answer


@contextmanager
def faulty_server() -> Iterator[FaultyServer]:
    with FaultyServer() as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        try:
            yield server
        finally:
            server.shutdown()
