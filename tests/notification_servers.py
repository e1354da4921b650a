"""Real servers that receive notifications: HTTP and SMTP, on ports of this machine."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email import message_from_bytes, policy
from email.message import EmailMessage
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from aiosmtpd.controller import Controller
from aiosmtpd.smtp import Envelope


@dataclass
class Post:
    """One request."""

    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def content(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.body)
        return found


@dataclass
class Receiver:
    """An HTTP server that answers with ``statuses`` in turn, the last one always. Usable while it is not up, too."""

    statuses: list[int] = field(default_factory=lambda: [200])
    headers: dict[str, str] = field(default_factory=dict)
    answer: bytes = b"ok"
    port: int = 0
    hangs: threading.Event | None = None
    """Requests wait for it."""
    tried: list[Post] = field(default_factory=list)
    """All requests."""
    posts: list[Post] = field(default_factory=list)
    """Those that were answered with a status of success."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def contents(self) -> list[dict[str, Any]]:
        return [post.content for post in self.posts]

    @contextmanager
    def up(self) -> Iterator[Receiver]:
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                size = int(self.headers.get("Content-Length") or 0)
                headers = {name.lower(): value for name, value in self.headers.items()}
                post = Post(self.path, headers, self.rfile.read(size))
                receiver.tried.append(post)
                if receiver.hangs:
                    receiver.hangs.wait(60)
                status = receiver.statuses[0]
                if len(receiver.statuses) > 1:
                    receiver.statuses.pop(0)
                if status < 300:
                    receiver.posts.append(post)
                self.send_response(status)
                for name, value in receiver.headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(receiver.answer)))
                self.end_headers()
                self.wfile.write(receiver.answer)

            do_GET = do_POST

            def log_message(self, *_: Any) -> None:
                pass

        server = ThreadingHTTPServer(("127.0.0.1", self.port), Handler)
        self.port = server.server_address[1]
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        try:
            yield self
        finally:
            server.shutdown()
            server.server_close()
            thread.join()


@dataclass
class Mailbox:
    """The messages that an SMTP server has received."""

    port: int
    messages: list[EmailMessage] = field(default_factory=list)
    senders: list[str | None] = field(default_factory=list)

    async def handle_DATA(self, _server: Any, _session: Any, envelope: Envelope) -> str:
        content = envelope.content
        assert isinstance(content, bytes)
        message = message_from_bytes(content, policy=policy.default)
        assert isinstance(message, EmailMessage)
        self.messages.append(message)
        self.senders.append(envelope.mail_from)
        return "250 OK"


@contextmanager
def mailbox(port: int, **options: Any) -> Iterator[Mailbox]:
    """An SMTP server on ``port``. ``options`` are those of ``aiosmtpd.smtp.SMTP``."""
    box = Mailbox(port)
    controller = Controller(box, hostname="127.0.0.1", port=port, **options)
    controller.start()
    try:
        yield box
    finally:
        controller.stop()
