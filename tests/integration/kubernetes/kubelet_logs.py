"""An HTTP server with logs of pods, as an API server passes them on from kubelets; and what can go wrong there.

https://kubernetes.io/docs/reference/kubernetes-api/workload-resources/pod-v1/#get-read-log-of-the-specified-pod
"""

from __future__ import annotations

import json
import socket
import threading
import time
from collections import defaultdict
from contextlib import suppress
from datetime import datetime, timezone
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlsplit

from cloudtrain.platforms.kubernetes.api.client import Api


class Fault(NamedTuple):
    """The fate of one request."""

    status: int = 0
    """The answer, instead of the log."""
    after: int = -1
    """The bytes after which the answer ends; -1: at the end of the log."""
    is_clean: bool = False
    """Whether it then ends as if that were all: an API server says no more if it loses a kubelet."""
    says: bytes = b""
    """The kubelet's own line, instead of the log."""
    delay: float = 0.0
    """Seconds before the answer."""


class ContainerLog:
    """The output of one container: the file that its kubelet reads."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.lines: list[tuple[int, bytes]] = []
        """The time of each line in nanoseconds, and its text with its end."""
        self.first = 0
        """The index of the first line that no rotation has removed."""
        self.has_ended = False
        self.faults: list[Fault] = []
        """For the next requests, in order."""
        self.requests: list[dict[str, str]] = []

    def print(self, *texts: str | bytes, at: int | None = None, end: bytes = b"\n") -> None:
        """Add lines, by default with different times."""
        with self.changed:
            for text in texts:
                data = text.encode() if isinstance(text, str) else text
                self.lines.append((time.time_ns() if at is None else at, data + end))
            self.changed.notify_all()

    def rotate(self) -> None:
        """A new file: the lines so far cannot be read any more, except by those who read them already."""
        with self.changed:
            self.first = len(self.lines)

    def end(self) -> None:
        with self.changed:
            self.has_ended = True
            self.changed.notify_all()


class KubeletLogs:
    """Use as a context manager. `logs` has the log of each pod; a pod without one is not found."""

    def __enter__(self) -> KubeletLogs:
        self.logs: dict[str, ContainerLog] = defaultdict(ContainerLog)
        self._stopping = False
        self._start(0)
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _start(self, port: int) -> None:
        owner = self

        class Handler(_Handler):
            server_logs = owner

        self._stopping = False
        self._connections: list[socket.socket] = []
        self._server = _Server(("127.0.0.1", port), Handler)
        self._server.opened = self._connections
        self.port = self._server.server_port
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def stop(self) -> None:
        """Break all connections, and accept no new ones."""
        self._stopping = True
        self._server.shutdown()
        self._server.server_close()
        for connection in self._connections:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        for log in self.logs.values():
            with log.changed:
                log.changed.notify_all()

    def restart(self) -> None:
        self._start(self.port)

    @property
    def is_stopping(self) -> bool:
        return self._stopping

    def api(self, folder: Path) -> Api:
        """A client of this server."""
        kubeconfig = folder / "kubeconfig"
        entry = {"name": "x", "cluster": {"server": f"http://127.0.0.1:{self.port}"}}
        config = {
            "clusters": [entry],
            "users": [{"name": "x", "user": {"token": "t"}}],
            "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x", "namespace": "ns"}}],
            "current-context": "x",
        }
        kubeconfig.write_text(json.dumps(config))
        return Api.connect()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 500
    opened: list[socket.socket]

    def get_request(self) -> tuple[socket.socket, Any]:
        connection, address = super().get_request()
        self.opened.append(connection)
        return connection, address

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that has gone is not an error."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_logs: KubeletLogs

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(url.query).items()}
        pod = url.path.split("/")[-2]
        if pod not in self.server_logs.logs:
            return self._refuse(404, f'pods "{pod}" not found')
        log = self.server_logs.logs[pod]
        with log.changed:
            log.requests.append(query)
            fault = log.faults.pop(0) if log.faults else Fault()
        time.sleep(fault.delay)
        if fault.status:
            return self._refuse(fault.status, "try again")
        self.send_response(200)
        self.send_header("Content-Type", "text/plain")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        with suppress(OSError):
            if self._send(log, query, fault):
                self.wfile.write(b"0\r\n\r\n")
            else:
                self.connection.shutdown(socket.SHUT_RDWR)
                self.close_connection = True
        return None

    def _send(self, log: ContainerLog, query: dict[str, str], fault: Fault) -> bool:
        """Send the log; returns whether the answer ends as a complete one."""
        if fault.says:
            self._chunk(fault.says + b"\n")
            return True
        since = _seconds(query.get("sinceTime", "1970-01-01T00:00:00Z")) * 10**9
        left = fault.after
        index = log.first
        if "tailLines" in query:
            index = max(index, len(log.lines) - int(query["tailLines"]))
        while not self.server_logs.is_stopping:
            with log.changed:
                found, has_ended = log.lines[index:], log.has_ended
                if not found and not has_ended and query.get("follow") == "true":
                    log.changed.wait(0.5)
                    continue
            index += len(found)
            data = b"".join(_stamped(*line) for line in found if line[0] >= since)
            if 0 <= left <= len(data):
                self._chunk(data[:left])
                return fault.is_clean
            left -= len(data) if left >= 0 else 0
            self._chunk(data)
            if query.get("follow") != "true" or (has_ended and not found):
                return True
        return False

    def _chunk(self, data: bytes) -> None:
        if data:
            self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
            self.wfile.flush()

    def _refuse(self, status: int, message: str) -> None:
        body = json.dumps({"kind": "Status", "code": status, "message": message}).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        if status == 429:
            self.send_header("Retry-After", "0")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """No log of requests."""


def _seconds(text: str) -> int:
    return int(datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=timezone.utc).timestamp())


def _stamped(at: int, text: bytes) -> bytes:
    moment = datetime.fromtimestamp(at // 10**9, timezone.utc)
    return b"%s.%09dZ %s" % (moment.strftime("%Y-%m-%dT%H:%M:%S").encode(), at % 10**9, text)
