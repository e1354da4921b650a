"""A simulated instance metadata service of EC2, version 2, for spot notices."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

TOKEN = "a-token"


class MetadataService(ThreadingHTTPServer):
    """``action`` is the answer about a spot interruption; None: no interruption."""

    action: dict[str, Any] | str | None = None
    daemon_threads = True

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Answers(BaseHTTPRequestHandler):
    server: MetadataService

    def do_PUT(self) -> None:
        lifetime = self.headers["X-aws-ec2-metadata-token-ttl-seconds"]
        known = self.path == "/latest/api/token" and 1 <= int(lifetime or 0) <= 21600
        self._answer(200 if known else 400, TOKEN if known else "")

    def do_GET(self) -> None:
        action = self.server.action
        if self.headers["X-aws-ec2-metadata-token"] != TOKEN:
            self._answer(401, "")
        elif self.path != "/latest/meta-data/spot/instance-action" or action is None:
            self._answer(404, "")
        else:
            self._answer(200, action if isinstance(action, str) else json.dumps(action))

    def _answer(self, code: int, text: str) -> None:
        self.send_response(code)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, format: str, *arguments: Any) -> None:
        pass


@contextmanager
def metadata_service() -> Iterator[MetadataService]:
    with MetadataService(("127.0.0.1", 0), _Answers) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
