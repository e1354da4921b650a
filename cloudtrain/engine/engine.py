"""Finds a container engine, Docker or Podman, that answers.

This needs the ``docker`` package only for engines that do not listen on a local socket.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from cloudtrain._dataclass import dataclass
from cloudtrain._system.sockets import ENGINE_PIPE, RUN_FOLDER, connect_unix
from cloudtrain._system.users import home, user_id
from cloudtrain.errors import PlatformError

if TYPE_CHECKING:
    import docker

Kind = Literal["docker", "podman"]

KINDS: tuple[Kind, ...] = ("docker", "podman")

PING_SECONDS = 10.0

_START = (
    "Start Docker (`systemctl start docker`, or Docker Desktop) or Podman (`systemctl --user start podman.socket`), "
    "or name the engine's socket in DOCKER_HOST. The platform `local` runs the job without containers."
)
_DENIED = (
    "You may not use it: join the group that its socket belongs to (`sudo usermod -aG docker $USER`, then log in "
    "again), or use rootless Podman. The platform `local` runs the job without containers."
)


@dataclass(frozen=True)
class Engine:
    """A running engine."""

    kind: Kind
    url: str
    """``unix:///run/docker.sock``, ``tcp://host:port``, ``ssh://host``."""
    found: str
    """The source of its address, for messages."""
    context: str | None = None
    """The Docker context that defines its address and certificates."""
    api_version: str | None = field(default=None, repr=False, compare=False)
    """The newest version of its API; if None, each connection queries it, which is slow."""

    def connect(self, timeout: float = 60.0) -> docker.APIClient:
        """A client of the engine. Threads can share it, as `docker.APIClient` is thread-safe.

        Args:
            timeout: seconds to wait for an answer.

        Raises:
            PlatformError: the ``docker`` package is not installed, or the engine no longer answers.
        """
        return _connect(self.url, self.context, timeout, self.api_version)


def find_engines(environ: Mapping[str, str] = os.environ, root: Path = Path("/")) -> list[Engine]:
    """All engines that answer, in the order in which `find_engine` tries them."""
    engines = []
    for place in _places(None, environ, root, everywhere=True):
        with contextlib.suppress(OSError, PlatformError):
            engines.append(_ping(place))
    return engines


@dataclass(frozen=True)
class _Place:
    """An address to try. If the user has ``chosen`` it, its engine must answer; no other is tried."""

    url: str
    found: str
    context: str | None = None
    chosen: bool = False


def find_engine(
    choice: str | None = None, environ: Mapping[str, str] = os.environ, root: Path = Path("/")
) -> Engine:
    """The engine to use.

    Tries ``choice``, ``$DOCKER_HOST``, the Docker context in use, then the usual sockets: Docker's, rootless
    Docker's, rootless Podman's, Podman's.

    Args:
        choice: ``docker`` or ``podman``, for the first engine of that kind; or a URL.
        root: the folder that has ``run/``.

    Raises:
        PlatformError: no engine answers; the hint is how to start one, or to get access.
    """
    kind = choice if choice in KINDS else None
    tried, hint = [], _START
    for place in _places(None if kind else choice, environ, root, everywhere=kind is not None):
        try:
            found = _ping(place)
        except (OSError, PlatformError) as error:
            if isinstance(error, PlatformError):
                if place.chosen:
                    raise
                why = error.message
            else:
                why = error.strerror or str(error)
            if isinstance(error, PermissionError):
                hint = _DENIED
            tried.append(f"{place.url} ({place.found}): {why}")
            if place.chosen:
                break
        else:
            if kind in (None, found.kind):
                return found
            tried.append(f"{place.url} ({place.found}): is {found.kind}")
    wanted = kind or "container engine"
    raise PlatformError(f"no {wanted} answers: {'; '.join(tried) or 'there is no socket of one'}", hint=hint)


def _places(url: str | None, environ: Mapping[str, str], root: Path, *, everywhere: bool) -> Iterator[_Place]:
    """The addresses to try; unless ``everywhere``, only up to the first that the user chose."""
    if url:
        yield _Place(url, "platform_options.engine", chosen=True)
        return
    if environ.get("DOCKER_HOST"):
        yield _Place(environ["DOCKER_HOST"], "DOCKER_HOST", chosen=not everywhere)
        if not everywhere:
            return
    context = _context(environ)
    if context:
        yield _Place(_context_url(context), f"the Docker context {context}", context, chosen=not everywhere)
        if not everywhere:
            return
    if ENGINE_PIPE:
        yield _Place(ENGINE_PIPE, "the pipe of Docker Desktop")
        return
    run = root / RUN_FOLDER
    own = Path(environ.get("XDG_RUNTIME_DIR") or run / "user" / str(user_id()))
    for path, what in (
        (run / "docker.sock", "Docker's socket"),
        (own / "docker.sock", "the socket of rootless Docker"),
        (home(environ) / ".docker" / "run" / "docker.sock", "the socket of Docker Desktop"),
        (own / "podman" / "podman.sock", "the socket of rootless Podman"),
        (run / "podman" / "podman.sock", "Podman's socket"),
    ):
        if path.exists():
            yield _Place(f"unix://{path}", what)


def _context(environ: Mapping[str, str]) -> str | None:
    """The name of the Docker context in use; None if it is the default, which is just a socket."""
    name = environ.get("DOCKER_CONTEXT")
    if not name:
        folder = environ.get("DOCKER_CONFIG") or home(environ) / ".docker"
        try:
            name = json.loads((Path(folder) / "config.json").read_text(encoding="utf-8")).get(
                "currentContext"
            )
        except (OSError, ValueError, AttributeError):
            return None
    return None if name in (None, "", "default") else str(name)


def _context_url(name: str) -> str:
    context = _docker().ContextAPI.get_context(name)
    if context is None or not context.Host:
        raise PlatformError(
            f"there is no Docker context {name}",
            hint="See them with `docker context ls`, or set DOCKER_HOST.",
        )
    return str(context.Host).removeprefix("http+")  # as the package itself writes them


def _ping(place: _Place) -> Engine:
    """The engine that answers at an address. Raises OSError if there is none."""
    if not place.url.startswith("unix://"):
        client = _connect(place.url, place.context, PING_SECONDS)
        return Engine(_kind_of(client), place.url, place.found, place.context)
    connection = _UnixConnection(place.url.removeprefix("unix://"))
    try:
        connection.request("GET", "/_ping")
        answer = connection.getresponse()
    except http.client.HTTPException as error:
        raise OSError(f"is not an engine: {error!r}") from None
    finally:
        connection.close()
    kind: Kind = "podman" if answer.getheader("Libpod-API-Version") else "docker"
    version = answer.getheader("Api-Version") or ""
    is_version = re.fullmatch(r"\d+\.\d+", version)
    return Engine(kind, place.url, place.found, place.context, version if is_version else None)


def _kind_of(client: docker.APIClient) -> Kind:
    components = client.version().get("Components", ())
    return "podman" if any("podman" in part["Name"].lower() for part in components) else "docker"


def _connect(
    url: str, context: str | None, timeout: float, api_version: str | None = None
) -> docker.APIClient:
    package = _docker()
    options: dict[str, Any] = {"base_url": url}
    if context:
        options["tls"] = package.ContextAPI.get_context(context).TLSConfig or False
    elif not url.startswith("unix://"):
        options = package.utils.kwargs_from_env(environment={**os.environ, "DOCKER_HOST": url})
    try:
        return package.APIClient(**options, version=api_version, timeout=timeout)
    except package.errors.DockerException as error:
        raise PlatformError(f"the container engine at {url} does not answer: {error}", hint=_START) from error


def _docker() -> Any:
    try:
        import docker
    except ImportError as error:
        raise PlatformError(
            f"the package docker cannot be imported: {error}", hint="pip install docker"
        ) from error
    return docker


class _UnixConnection(http.client.HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=PING_SECONDS)
        self._path = path

    def connect(self) -> None:
        self.sock = connect_unix(self._path, PING_SECONDS)
