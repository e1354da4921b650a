"""A server that answers every request with 200 and is not S3: the console of a server, or the page of a proxy."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from cloudtrain.checkpoint import Checkpointer
from cloudtrain.errors import Unreachable
from cloudtrain.storage import open_store
from cloudtrain.storage.base import Store
from cloudtrain.storage.retry_policy import Patience, using

PAGES = {
    "xhtml": b"<html><body>Sign in to the network.</body></html>",
    "html": b"<!doctype html><html><body>Sign in<br>to the network.",
    "empty": b"",
}


class Page(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    page = b""

    def answer(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(self.page)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(self.page)

    do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = answer

    def log_message(self, format: str, *arguments: Any) -> None:
        pass


@pytest.fixture(params=PAGES)
def portal(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    handler = type("Handler", (Page,), {"page": PAGES[request.param]})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        serving = threading.Thread(target=server.serve_forever, args=(0.05,))
        serving.start()
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", f"http://127.0.0.1:{server.server_address[1]}")
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_DEFAULT_REGION"):
            monkeypatch.setenv(name, "portal")
        try:
            with using(Patience(0)):
                yield
        finally:
            server.shutdown()
            serving.join()


def _large(folder: Path) -> Path:
    path = folder / "large"
    with open(path, "wb") as file:
        file.truncate(20 << 20)
    return path


ACTIONS: dict[str, Callable[[Store, Path], object]] = {
    "read": lambda store, folder: store.read("key"),
    "open": lambda store, folder: store.open("key").read(),
    "write": lambda store, folder: store.write("key", b"weights"),
    "create": lambda store, folder: store.create("key", b"manifest"),
    "stat": lambda store, folder: store.stat("key"),
    "list": lambda store, folder: list(store.list()),
    "download": lambda store, folder: store.download("key", folder / "there"),
    "upload": lambda store, folder: store.upload(_large(folder), "key"),
}


@pytest.mark.parametrize("action", ACTIONS)
def test_its_answers_are_not_those_of_s3(portal: None, action: str, tmp_path: Path) -> None:
    """A page in place of an answer does not count as a stored object, an empty bucket or data."""
    with pytest.raises(Unreachable, match=r"not an answer of S3|the server failed") as caught:
        ACTIONS[action](open_store("s3://bucket/folder"), tmp_path)
    assert "AWS_ENDPOINT_URL_S3" in caught.value.hint
    assert not (tmp_path / "there").exists()


def test_an_unreachable_store_does_not_count_as_empty(portal: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The training would start over."""
    monkeypatch.setenv("CLOUDTRAIN_STORAGE_PATIENCE", "0")
    with pytest.raises(Unreachable):
        Checkpointer("s3://bucket/folder").restore()
