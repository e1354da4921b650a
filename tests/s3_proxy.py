"""An HTTP proxy in front of a real S3 server that injects the faults of other servers and of networks."""

from __future__ import annotations

import contextlib
import http.client
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from urllib.parse import urlsplit

Answer = tuple[int, list[tuple[str, str]], bytes]


@dataclass
class Exchange:
    """One request, and the ways to answer it."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    upstream: str

    @property
    def is_conditional(self) -> bool:
        return "if-none-match" in {name.lower() for name in self.headers}

    def forward(self) -> Answer:
        """Forward it to the real server."""
        connection = http.client.HTTPConnection(self.upstream)
        with contextlib.closing(connection):
            connection.request(self.method, self.path, self.body, self.headers)
            answer = connection.getresponse()
            return answer.status, answer.getheaders(), answer.read()


Fault = Callable[[Exchange], "Answer | None"]
"""Answers an exchange; None breaks the connection without a response. A body shorter than Content-Length breaks it
in the middle."""


@contextlib.contextmanager
def s3_proxy(endpoint: str, fault: Fault) -> Iterator[tuple[str, list[str]]]:
    """Yields the proxy's endpoint, and a list to which each request is added: ``PUT /bucket/key``."""
    requests: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def handle_any(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            headers = {name: value for name, value in self.headers.items() if name != "Expect"}
            requests.append(f"{self.command} {self.path}")
            answer = fault(Exchange(self.command, self.path, headers, body, urlsplit(endpoint).netloc))
            self.close_connection = True
            if answer is None:
                return
            status, answer_headers, data = answer
            self.send_response_only(status)
            for name, value in answer_headers:
                if name.lower() not in ("transfer-encoding", "connection"):
                    self.send_header(name, value)
            if "content-length" not in {name.lower() for name, _ in answer_headers}:
                self.send_header("Content-Length", str(len(data)))
            self.send_header("Connection", "close")  # a client must not send its next request on it
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = handle_any

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", requests
        finally:
            server.shutdown()
