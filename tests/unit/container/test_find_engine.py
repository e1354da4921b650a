"""The order in which engines are tried. An engine that the user chose must answer."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import ThreadingUnixStreamServer

import pytest

from cloudtrain.engine.engine import find_engines
from cloudtrain.errors import PlatformError
from cloudtrain.platforms.container import find_engine

Serve = Callable[..., str]


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    """``serve(path, podman=False, version="")`` starts a server that answers pings at a socket; returns its URL."""
    servers = []

    def start(path: Path, *, podman: bool = False, version: str = "") -> str:
        class Answer(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(200)
                if podman:
                    self.send_header("Libpod-API-Version", "4.3.1")
                if version:
                    self.send_header("Api-Version", version)
                self.end_headers()

            def address_string(self) -> str:
                return "a socket"

            def log_message(self, *_: object) -> None: ...

        path.parent.mkdir(parents=True, exist_ok=True)
        server = ThreadingUnixStreamServer(str(path), Answer)
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        servers.append(server)
        return f"unix://{path}"

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def test_the_first_engine_that_answers_in_the_usual_order(serve: Serve, tmp_path: Path) -> None:
    own = tmp_path / "own"
    environ = {"XDG_RUNTIME_DIR": str(own), "HOME": str(tmp_path)}
    sockets = [
        (own / "podman" / "podman.sock", True),
        (own / "docker.sock", False),
        (tmp_path / "run" / "docker.sock", False),
    ]
    serve(tmp_path / "run" / "podman" / "podman.sock", podman=True)
    assert find_engine(None, environ, tmp_path).kind == "podman"
    for path, podman in sockets:
        url = serve(path, podman=podman)
        found = find_engine(None, environ, tmp_path)
        assert (found.url, found.kind) == (url, "podman" if podman else "docker")
    assert len(find_engines(environ, tmp_path)) == 4
    assert find_engine("podman", environ, tmp_path).url == f"unix://{own}/podman/podman.sock"


def test_a_chosen_engine_takes_precedence(serve: Serve, tmp_path: Path) -> None:
    serve(tmp_path / "run" / "docker.sock")
    host, chosen = serve(tmp_path / "a.sock"), serve(tmp_path / "b.sock", podman=True)
    environ = {"DOCKER_HOST": host}
    assert find_engine(None, environ, tmp_path).url == host
    found = find_engine(chosen, environ, tmp_path)
    assert (found.url, found.kind, found.found) == (chosen, "podman", "platform_options.engine")
    other = serve(tmp_path / "run" / "podman" / "podman.sock", podman=True)
    assert find_engine("podman", environ, tmp_path).url == other
    assert len(find_engines(environ, tmp_path)) == 3
    away = {"DOCKER_HOST": "tcp://127.0.0.1:1"}
    assert find_engine("podman", away, tmp_path).url == other
    with pytest.raises(PlatformError, match=r"tcp://127\.0\.0\.1:1 does not answer"):
        find_engine(None, away, tmp_path)


@pytest.mark.parametrize(("version", "taken"), [("1.41", "1.41"), ("", None), ("newest", None)])
def test_a_connection_asks_for_no_version_that_the_engine_has_said(
    serve: Serve, tmp_path: Path, version: str, taken: str | None
) -> None:
    found = find_engine(serve(tmp_path / "a.sock", version=version), {}, tmp_path)
    assert found.api_version == taken
    if taken:
        assert found.connect().api_version == taken  # the server answers no question


def test_a_docker_context(serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import docker

    url = serve(tmp_path / "desktop.sock")
    config = tmp_path / "config"
    config.mkdir()
    (config / "config.json").write_text(json.dumps({"currentContext": "desktop"}))
    monkeypatch.setenv("DOCKER_CONFIG", str(config))
    docker.ContextAPI.create_context("desktop", host=url)
    found = find_engine(None, {"DOCKER_CONFIG": str(config)}, tmp_path)
    assert (found.url, found.context) == (url, "desktop")
    with pytest.raises(PlatformError, match="no Docker context other"):
        find_engine(None, {"DOCKER_CONTEXT": "other"}, tmp_path)


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        (None, "no container engine answers: there is no socket of one"),
        ("podman", "no podman answers"),
        ("unix:///nowhere/socket", "unix:///nowhere/socket .*: No such file or directory"),
    ],
)
def test_no_engine_answers(choice: str | None, message: str, tmp_path: Path) -> None:
    with pytest.raises(PlatformError, match=message) as caught:
        find_engine(choice, {}, tmp_path)
    assert "platform `local`" in caught.value.hint


def test_a_socket_of_no_engine_or_of_another(serve: Serve, tmp_path: Path) -> None:
    dead = tmp_path / "run" / "docker.sock"
    dead.parent.mkdir()
    dead.touch()
    with pytest.raises(PlatformError, match="Connection refused"):
        find_engine(None, {}, tmp_path)
    dead.unlink()
    serve(dead)
    with pytest.raises(PlatformError, match=r"no podman answers: .*: is docker"):
        find_engine("podman", {}, tmp_path)
    # a chosen engine that does not answer is not replaced by another
    with pytest.raises(PlatformError, match="DOCKER_HOST"):
        find_engine(None, {"DOCKER_HOST": f"unix://{tmp_path}/away"}, tmp_path)
