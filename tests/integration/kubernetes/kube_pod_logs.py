"""The containers' logs, and the kubelet's endpoint that serves them to the API server."""

from __future__ import annotations

import base64
import contextlib
import datetime
import hashlib
import json
import os
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from kube_certificates import SERVER


def timestamp(seconds: float | None = None) -> str:
    """RFC 3339 with nanoseconds, as the kubelet writes it.

    >>> timestamp(1.5)
    '1970-01-01T00:00:01.500000000Z'
    """
    nanoseconds = time.time_ns() if seconds is None else round(seconds * 1e9)
    whole = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(nanoseconds // 10**9))
    return f"{whole}.{nanoseconds % 10**9:09d}Z"


class ContainerLog:
    """The lines of one container, each with its time."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, bytes]] = []
        self.ended = False
        self.changed = threading.Condition()

    def add(self, line: bytes, at: str | None = None) -> None:
        with self.changed:
            self.lines.append((at or timestamp(), line))
            self.changed.notify_all()

    def end(self) -> None:
        with self.changed:
            self.ended = True
            self.changed.notify_all()

    def pump(self, descriptor: int) -> None:
        """Read until the end of the output. A part of a line without a line break is a line."""
        with os.fdopen(descriptor, "rb") as output:
            for line in output:
                self.add(line if line.endswith(b"\n") else line + b"\n")
        self.end()

    def wait_for_end(self, timeout: float) -> None:
        """Wait until all output has been read; a process that the container has left behind may hold it open."""
        with self.changed:
            self.changed.wait_for(lambda: self.ended, timeout)

    @property
    def text(self) -> str:
        return b"".join(line for _, line in self.lines).decode(errors="replace")

    def read(
        self, *, follow: bool, since: str, tail: int | None, stamped: bool, gone: Callable[[], bool]
    ) -> Iterator[bytes]:
        """Lines, and with ``follow`` those to come."""
        with self.changed:
            place = len(self.lines)
        start = 0 if tail is None else max(0, place - tail)
        while True:
            with self.changed:
                lines = self.lines[start:]
                ended = self.ended
            for at, line in lines:
                if at >= since:
                    yield at.encode() + b" " + line if stamped else line
            start += len(lines)
            if not follow or (ended and start == len(self.lines)) or gone():
                return
            with self.changed:
                if start == len(self.lines) and not self.ended:
                    self.changed.wait(0.5)


class KubeletServer:
    """Serves ``/containerLogs/NAMESPACE/POD/CONTAINER`` and ``/exec/...`` over HTTPS. Use it as a context manager.

    Args:
        certificates: the folder of the cluster's certificates.
        find: the log of a container, by namespace, pod, container and whether it is that before the last restart;
            None if its node cannot be reached.
        execute: runs a command in a container, by namespace, pod and container. Returns its exit code and its errors.
    """

    def __init__(
        self,
        certificates: Path,
        find: Callable[[str, str, str, bool], ContainerLog | LookupError | None],
        execute: Callable[[str, str, str, list[str]], tuple[int, str]],
    ) -> None:
        self._certificates = certificates
        self._find = find
        self._execute = execute

    def __enter__(self) -> KubeletServer:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self._certificates / f"{SERVER}.crt", self._certificates / f"{SERVER}.key")
        context.load_verify_locations(self._certificates / "ca.crt")
        context.verify_mode = ssl.CERT_REQUIRED  # the API server shows its own
        handler = type(
            "BoundHandler",
            (_Handler,),
            {"find": staticmethod(self._find), "execute": staticmethod(self._execute)},
        )
        self._server = _Server(("127.0.0.1", 0), handler)
        self._server.context = context
        threading.Thread(target=self._server.serve_forever, args=(0.1,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    @property
    def port(self) -> int:
        return self._server.server_port


class _Server(ThreadingHTTPServer):
    context: ssl.SSLContext
    daemon_threads = True
    block_on_close = False

    def finish_request(self, request: Any, client_address: Any) -> None:
        with contextlib.suppress(OSError), self.context.wrap_socket(request, server_side=True) as secure:
            super().finish_request(secure, client_address)

    def handle_error(self, *_: object) -> None:
        """The reader of a log may go at any time."""


class _Handler(BaseHTTPRequestHandler):
    find: Callable[[str, str, str, bool], ContainerLog | LookupError | None]
    execute: Callable[[str, str, str, list[str]], tuple[int, str]]
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def _run_command(self, namespace: str, pod: str, container: str, command: list[str]) -> None:
        """Answer by WebSocket (RFC 6455), as kubelets do: channel 2 has the errors, channel 3 the status."""
        key = self.headers["Sec-WebSocket-Key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
        self.send_response_only(101)
        for name, value in (
            ("Upgrade", "websocket"),
            ("Connection", "Upgrade"),
            ("Sec-WebSocket-Accept", base64.b64encode(hashlib.sha1(key.encode()).digest()).decode()),
            ("Sec-WebSocket-Protocol", self.headers["Sec-WebSocket-Protocol"]),
        ):
            self.send_header(name, value)
        self.end_headers()
        code, errors = self.execute(namespace, pod, container, command)
        failed = {"status": "Failure", "message": f"command terminated with non-zero exit code: {code}"}
        status = json.dumps({"metadata": {}, **(failed if code else {"status": "Success"})})
        for channel, text in ((2, errors), (3, status)):
            payload = bytes([channel]) + text.encode()[:60_000]
            length = (
                bytes([len(payload)]) if len(payload) < 126 else b"\x7e" + len(payload).to_bytes(2, "big")
            )
            self.wfile.write(b"\x82" + length + payload)
        self.wfile.write(b"\x88\x02" + (1000).to_bytes(2, "big"))
        self.close_connection = True

    def do_GET(self) -> None:
        path = urlsplit(self.path)
        query = {name: values[-1] for name, values in parse_qs(path.query).items()}
        _, kind, namespace, pod, container = path.path.split("/")
        if kind == "exec":
            self._run_command(namespace, pod, container, parse_qs(path.query)["command"])
            return
        log = self.find(namespace, pod, container, query.get("previous") == "true")
        if log is None:
            self.close_connection = True
            return
        if isinstance(log, LookupError):
            text = str(log).encode()
            self.send_response_only(400)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)
            return
        self.send_response_only(200)
        self.send_header("Content-Type", "text/plain")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        lines = log.read(
            follow=query.get("follow") == "true",
            since=_since(query),
            tail=int(query["tailLines"]) if "tailLines" in query else None,
            stamped=query.get("timestamps") == "true",
            gone=lambda: self.find(namespace, pod, container, False) is None,
        )
        for line in lines:
            self.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))
        if self.find(namespace, pod, container, False) is None:
            self.close_connection = True  # its node has gone: the end of the log is not said
        else:
            self.wfile.write(b"0\r\n\r\n")

    def log_message(self, *_: object) -> None:
        pass


def _since(query: dict[str, str]) -> str:
    """The time of the first line that is wanted."""
    if "sinceSeconds" in query:
        return timestamp(time.time() - int(query["sinceSeconds"]))
    if "sinceTime" in query:
        at = datetime.datetime.fromisoformat(query["sinceTime"].replace("Z", "+00:00"))
        return timestamp(at.timestamp())
    return ""
