"""The dashboard as a process, and a browser that can do what no real one would."""

from __future__ import annotations

import http.client
import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit


@dataclass
class Answer:
    status: int
    headers: http.client.HTTPMessage
    body: str


@dataclass
class Client:
    """Sends requests to a dashboard, with the cookie once it has entered."""

    url: str
    """The first address, with the token."""
    root: str = ""
    cookie: str = ""
    more: dict[str, str] = field(default_factory=dict)

    @property
    def place(self) -> str:
        return urlsplit(self.url).netloc

    def ask(
        self,
        path: str,
        method: str = "GET",
        headers: Mapping[str, str] | None = None,
        body: str | None = None,
    ) -> Answer:
        """The answer to one request for a path of the server. A header of None is not sent."""
        given = {"Host": self.place, "Cookie": self.cookie, **(headers or {})}
        connection = http.client.HTTPConnection(self.place, timeout=60)
        connection.putrequest(method, path, skip_host=True)
        for name, value in given.items():
            if value:
                connection.putheader(name, value)
        if body is not None and "Content-Length" not in given:
            connection.putheader("Content-Length", str(len(body)))
        connection.endheaders(None if body is None else body.encode())
        answer = connection.getresponse()
        found = Answer(answer.status, answer.headers, answer.read().decode())
        connection.close()
        return found

    def get(self, path: str) -> Answer:
        """A page below the root."""
        return self.ask(f"{self.root}/{path}")

    def post(self, path: str, body: str = "") -> Answer:
        """A request as a form of a page sends it."""
        headers = {"Origin": f"http://{self.place}", "Content-Type": "application/x-www-form-urlencoded"}
        return self.ask(f"{self.root}/{path}", "POST", headers, body)

    def enter(self) -> Answer:
        """Exchange the token for the cookie."""
        parts = urlsplit(self.url)
        answer = self.ask(f"{parts.path}?{parts.query}")
        self.cookie = (answer.headers["Set-Cookie"] or "").partition(";")[0]
        self.root = (answer.headers["Location"] or "").rstrip("/")
        return answer


@contextmanager
def dashboard(
    folder: Path, *options: str, interrupts: int = 1, before: Sequence[str] = ()
) -> Iterator[Client]:
    """A dashboard that has printed its address, ended by this number of Ctrl-C in quick succession.

    Args:
        before: what starts it, such as ``strace``.
    """
    program = Path(sys.executable).parent / "cloudtrain"
    with (folder / "dashboard.err").open("w") as err:
        server = subprocess.Popen(
            [*before, str(program), "dashboard", "--json", *options],
            stdout=subprocess.PIPE,
            stderr=err,
            text=True,
        )
    assert server.stdout
    try:
        text = ""
        for line in server.stdout:
            text += line
            if line.rstrip() == "}":
                break
        assert text, (folder / "dashboard.err").read_text()
        yield Client(json.loads(text)["url"])
    finally:
        for _ in range(interrupts):
            server.send_signal(signal.SIGINT)
            time.sleep(0.01)
        code = server.wait(60)
        server.stdout.close()
    # a Ctrl-C after the end of the server interrupts the command
    assert code == 0 or (code, interrupts > 1) == (130, True)
    assert "Traceback" not in (folder / "dashboard.err").read_text()
    assert interrupts > 1 or not (folder / "dashboard.err").read_text()
