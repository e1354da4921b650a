"""A proxy in front of the API server: injects faults, counts requests, and plays a newer version.

Clients reach it by HTTPS, with the server's own certificate. It says that the server is 1.31, and adds the fields back
that 1.20 drops: see `kube_memory`. Requests of the test bench meet no faults and are not counted.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

import yaml
from kube_certificates import SERVER
from kube_client import BENCH, KubeError
from kube_memory import FieldMemory
from kube_objects import condition
from kube_server import KubeServer

VERSION = {"major": "1", "minor": "31", "gitVersion": "v1.31.0"}
HOP_BY_HOP = ("transfer-encoding", "connection", "content-length", "content-encoding")
NOT_DECLARED = re.compile(r"\.([\w.\[\]\"=/-]+): field not declared in schema")
GONE = {
    "kind": "Status",
    "apiVersion": "v1",
    "status": "Failure",
    "reason": "Expired",
    "code": 410,
    "message": "too old resource version: 1 (2)",
}


@dataclass
class Fault:
    """A fault of the next ``times`` requests that ``pattern`` matches."""

    pattern: re.Pattern[str]
    happen: Callable[[Handler], object]
    """Returns true if the request is over."""
    times: int


@dataclass
class Faults:
    """Faults to come. A pattern is searched for in ``GET /api/v1/namespaces/x/pods?watch=true``."""

    _faults: list[Fault] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def refuse(self, pattern: str, status: int, times: int = 1, *, retry_after: int | None = None) -> None:
        """Answer with an error, such as 429, 410, 500 or 503."""
        self._add(pattern, times, lambda handler: handler.refuse(status, retry_after))

    def lose_request(self, pattern: str, times: int = 1) -> None:
        """Break the connection; the server has not seen the request."""
        self._add(pattern, times, lambda handler: handler.hang_up())

    def lose_answer(self, pattern: str, times: int = 1) -> None:
        """Let the server do what it is asked, and break the connection instead of its answer."""
        self._add(pattern, times, lambda handler: handler.lose_answer())

    def repeat(self, pattern: str, times: int = 1) -> None:
        """Send the request twice, as a proxy does that gets no answer; the second answer is the client's."""
        self._add(pattern, times, lambda handler: handler.carry_out())

    def after(self, pattern: str, happen: Callable[[], object], times: int = 1) -> None:
        """Let the server do what it is asked, then call ``happen``; the client gets no answer."""
        self._add(pattern, times, lambda handler: handler.lose_answer(happen))

    def delay(self, pattern: str, seconds: float, times: int = 1) -> None:
        """Pass the request on after a pause."""
        self._add(pattern, times, lambda handler: bool(time.sleep(seconds)))

    def clear(self) -> None:
        with self._lock:
            self._faults.clear()

    @property
    def left(self) -> int:
        """The number of faults that no request has met."""
        with self._lock:
            return sum(fault.times for fault in self._faults)

    def next_for(self, request: str) -> Fault | None:
        with self._lock:
            for fault in self._faults:
                if fault.times > 0 and fault.pattern.search(request):
                    fault.times -= 1
                    return fault
        return None

    def _add(self, pattern: str, times: int, happen: Callable[[Handler], object]) -> None:
        with self._lock:
            self._faults.append(Fault(re.compile(pattern), happen, times))


class KubeProxy:
    """Use it as a context manager."""

    def __init__(self, server: KubeServer) -> None:
        self.server = server
        self.faults = Faults()
        self.memory = FieldMemory()
        self.requests: list[str] = []
        """Each request of a client: ``GET /api/v1/...``."""
        self.writing = threading.Lock()
        """Held during writes: no reader sees an object before its dropped fields are noted."""
        self._watches: dict[Handler, socket.socket] = {}
        self.upstream = ssl.create_default_context(cafile=str(server.authority))

    def __enter__(self) -> KubeProxy:
        pki = self.server.certificates
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(pki / f"{SERVER}.crt", pki / f"{SERVER}.key")
        handler = type("BoundHandler", (Handler,), {"proxy": self})
        self._server = _Server(("127.0.0.1", 0), handler)
        self._server.context = context
        self.url = f"https://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, args=(0.1,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def watches(self, namespace: str) -> int:
        """The number of connections for a namespace that `cut_watches` would break."""
        return sum(f"/namespaces/{namespace}/" in handler.path for handler in list(self._watches))

    def cut_watches(self) -> int:
        """Break the connections of all watches of clients; their number."""
        cut = list(self._watches.values())
        for connection in cut:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        return len(cut)

    def expire_watches(self) -> int:
        """End all watches of clients with a 410, as after a compaction; their number."""
        cut = list(self._watches)
        for handler in cut:
            handler.expire()
        return len(cut)

    @contextlib.contextmanager
    def watching(self, handler: Handler) -> Iterator[None]:
        if not handler.is_bench:
            self._watches[handler] = handler.connection
        try:
            yield
        finally:
            self._watches.pop(handler, None)


class _Server(ThreadingHTTPServer):
    context: ssl.SSLContext
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def finish_request(self, request: Any, client_address: Any) -> None:
        """In the connection's own thread, so that a client that says nothing holds up no other."""
        with contextlib.suppress(OSError), self.context.wrap_socket(request, server_side=True) as secure:
            super().finish_request(secure, client_address)

    def handle_error(self, *_: object) -> None:
        """A client may go at any time."""


class Handler(BaseHTTPRequestHandler):
    proxy: KubeProxy
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def handle_any(self) -> None:
        self._expired = threading.Event()
        self._sending = threading.Lock()
        self.is_bench = BENCH in self.headers
        self.body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        request = f"{self.command} {self.path}"
        if not self.is_bench:
            self.proxy.requests.append(request)
            fault = self.proxy.faults.next_for(request)
            if fault and fault.happen(self):
                return
        try:
            self._forward()
        except (OSError, http.client.HTTPException):  # the server is down, or the client has gone
            self.hang_up()

    do_GET = do_PUT = do_POST = do_PATCH = do_DELETE = do_HEAD = handle_any

    def refuse(self, status: int, retry_after: int | None = None) -> bool:
        reason = {409: "Conflict", 410: "Expired", 429: "TooManyRequests", 503: "ServiceUnavailable"}.get(
            status, "InternalError"
        )
        answer = {**GONE, "reason": reason, "code": status, "message": "refused by the test"}
        headers = {"Retry-After": str(retry_after)} if retry_after is not None else {}
        self._answer(status, {"Content-Type": "application/json", **headers}, json.dumps(answer).encode())
        return True

    def hang_up(self) -> bool:
        self.close_connection = True
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)
        return True

    def lose_answer(self, then: Callable[[], object] = lambda: None) -> bool:
        self.carry_out()
        then()
        return self.hang_up()

    def carry_out(self) -> None:
        with contextlib.suppress(OSError, http.client.HTTPException):
            if self.command in ("GET", "HEAD"):
                with self._ask() as answer:
                    answer.read()
            else:
                self._write()

    def expire(self) -> None:
        """End this watch with a 410."""
        event = {"type": "ERROR", "object": GONE}
        with contextlib.suppress(OSError), self._sending:
            self._expired.set()
            self._chunk(json.dumps(event).encode() + b"\n")
            self._chunk(b"")
        self.hang_up()

    def _forward(self) -> None:
        if self.headers.get("Upgrade"):
            self._upgrade()
        elif self.command in ("GET", "HEAD"):
            with self._ask() as answer:
                self._pass_on(answer)
            return
        self._answer(*self._write())

    def _upgrade(self) -> None:
        """Pass on what the server sends after a change of the protocol, or its refusal, until it closes."""
        server = urlsplit(self.proxy.server.url)
        with (
            socket.create_connection((server.hostname or "", server.port or 443)) as plain,
            self.proxy.upstream.wrap_socket(plain, server_hostname=server.hostname) as upstream,
        ):
            head = str(self.headers).replace("Connection: Upgrade", "Connection: Upgrade, close", 1)
            upstream.sendall(f"{self.requestline}\r\n{head}".encode())
            while data := upstream.recv(1 << 16):
                self.connection.sendall(data)
        self.hang_up()

    def _write(self) -> tuple[int, dict[str, str], bytes]:
        """Let the server carry out a write; status, headers and body of its answer, with what it has dropped."""
        if urlsplit(self.path).path.endswith("/eviction"):
            self._mark_as_disrupted()
        with self.proxy.writing, self._ask() as answer:
            data = answer.read()
            if self.command == "PATCH" and b"not declared in schema" in data:
                answer, data = self._apply_older()
            if answer.status < 300:
                data = self._remember(data)
            headers = {name: value for name, value in answer.getheaders() if name.lower() not in HOP_BY_HOP}
        return answer.status, headers, data

    @contextlib.contextmanager
    def _ask(self) -> Iterator[http.client.HTTPResponse]:
        """The server's answer to this request."""
        address = urlsplit(self.proxy.server.url).netloc
        connection = http.client.HTTPSConnection(address, context=self.proxy.upstream)
        left_out = ("accept-encoding", "host", "connection")
        headers = {name: value for name, value in self.headers.items() if name.lower() not in left_out}
        if self.command not in ("GET", "HEAD"):
            headers["Accept"] = "application/json"  # the whole object: see `_remember`
        headers["Content-Length"] = str(len(self._older()))
        with contextlib.closing(connection):
            connection.request(self.command, self.path, self._older(), headers)
            yield connection.getresponse()

    def _older(self) -> bytes:
        """The body as 1.20 reads it: its Eviction is a beta."""
        if urlsplit(self.path).path.endswith("/eviction"):
            return (
                self.body.replace(b"policy/v1", b"policy/v1beta1") if b"beta" not in self.body else self.body
            )
        return self.body

    def _mark_as_disrupted(self) -> None:
        """Later servers do so before they evict a pod."""
        target = condition("DisruptionTarget", True, "EvictionByEvictionAPI", "Eviction API: evicting")
        path = urlsplit(self.path).path.removesuffix("eviction") + "status"
        patch = {"status": {"conditions": [target]}}
        with contextlib.suppress(KubeError):
            self.proxy.server.bench.call("PATCH", path, patch, "application/strategic-merge-patch+json")

    def _apply_older(self) -> tuple[http.client.HTTPResponse, bytes]:
        """Apply on the server side without the fields that 1.20 refuses, instead of dropping them."""
        whole, body = self.body, yaml.safe_load(self.body)
        try:
            while True:
                with self._ask() as answer:
                    data = answer.read()
                found = NOT_DECLARED.search(json.loads(data).get("message", ""))
                if not found or not _remove(body, found[1]):
                    return answer, data
                self.body = json.dumps(body).encode()
        finally:
            self.body = whole

    def _remember(self, data: bytes) -> bytes:
        try:
            answer = json.loads(data)
            sent = yaml.safe_load(self.body) if b"yaml" in self._content else json.loads(self.body or b"{}")
        except ValueError:
            return data
        path = urlsplit(self.path)
        merges = self.command != "PATCH" or b"merge" in self._content or b"apply" in self._content
        if merges and isinstance(sent, dict) and "dryRun" not in path.query:
            whole = self.command != "PATCH" or b"apply" in self._content
            status = path.path.endswith("/status")
            changed = self.proxy.memory.note(sent, answer, status=status, whole=whole)
            if changed and self.command != "POST" and not status:
                answer = self._touch(path.path)
        if "PartialObjectMetadata" in self.headers.get("Accept", ""):
            partial = {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1"}
            return json.dumps({**partial, "metadata": answer.get("metadata", {})}).encode()
        return json.dumps(self.proxy.memory.restore(answer)).encode()

    def _touch(self, path: str) -> dict[str, Any]:
        """Change the object, so that watches report it: for the server, nothing may have changed."""
        patch = {"metadata": {"annotations": {"test-bench/changed": str(time.time_ns())}}}
        return self.proxy.server.bench.call("PATCH", path, patch, "application/merge-patch+json")

    @property
    def _content(self) -> bytes:
        return str(self.headers.get("Content-Type", "")).encode()

    def _pass_on(self, answer: http.client.HTTPResponse) -> None:
        headers = {name: value for name, value in answer.getheaders() if name.lower() not in HOP_BY_HOP}
        is_json = headers.get("Content-Type", "").startswith("application/json")
        if answer.getheader("Content-Length") is not None or (is_json and "watch=" not in self.path):
            data = answer.read()
            path = urlsplit(self.path).path
            if path == "/version":
                data = json.dumps({**json.loads(data), **VERSION}).encode()
            elif is_json and path.startswith(("/api/", "/apis/")):
                with self.proxy.writing:
                    data = json.dumps(self.proxy.memory.restore(json.loads(data))).encode()
            self._answer(answer.status, headers, data)
            return
        self.send_response_only(answer.status)
        for name, value in {**headers, "Transfer-Encoding": "chunked"}.items():
            self.send_header(name, value)
        self.end_headers()
        if is_json:
            with self.proxy.watching(self):
                self._watch(answer)
        else:
            while data := answer.read1(65536):
                self._chunk(data)
        with self._sending:
            if not self._expired.is_set():
                self._chunk(b"")

    def _watch(self, answer: http.client.HTTPResponse) -> None:
        for line in answer:
            with self.proxy.writing:
                event = json.loads(line)
                self.proxy.memory.restore(event["object"])
            with self._sending:
                if self._expired.is_set():
                    return
                self._chunk(json.dumps(event).encode() + b"\n")

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))

    def _answer(self, status: int, headers: dict[str, str], data: bytes) -> None:
        self.send_response_only(status)
        for name, value in {**headers, "Content-Length": str(len(data))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        pass


def _remove(body: Any, path: str) -> bool:
    """Remove a field, such as ``spec.template.spec.containers[name="train"].x``; whether it was there."""
    *parents, last = re.findall(r"[\w/-]+|\[[^\]]*\]", path)
    for part in parents:
        if part.startswith("["):
            name, _, value = part[1:-1].partition("=")
            body = next((one for one in body if str(one.get(name)) == value.strip('"')), None)
        else:
            body = body.get(part) if isinstance(body, dict) else None
        if body is None:
            return False
    return isinstance(body, dict) and body.pop(last, None) is not None
