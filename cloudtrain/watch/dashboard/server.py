"""The server of the dashboard, which listens on one address until it is interrupted."""

from __future__ import annotations

import contextlib
import ipaddress
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from cloudtrain.contract.text import one_line
from cloudtrain.errors import CloudtrainError, InvalidJob

GRACE_SECONDS = 1
"""After an interrupt, the time to finish requests that are being answered."""


@dataclass(frozen=True)
class Address:
    """The address to listen on, with its TLS settings."""

    host: str = "127.0.0.1"
    port: int = 0
    """0 for any free port."""
    certificate: Path | None = None
    """The file of the certificate for TLS, whose key is in `key`."""
    key: Path | None = None
    plain_text: bool = False
    """Whether to serve other machines without TLS."""

    def check(self) -> None:
        """Raises InvalidJob if others could read the traffic, or if the certificate and its key cannot be used."""
        if (self.certificate is None) != (self.key is None):
            raise InvalidJob(
                "--certificate and --key belong together: the files of a certificate and of its key"
            )
        if self.certificate and self.key:
            try:
                ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(self.certificate, self.key)
            except OSError as error:  # ssl.SSLError is an OSError
                raise InvalidJob(
                    f"--certificate {self.certificate} and --key {self.key} cannot be used: {one_line(error)}",
                    hint="Both are files in PEM, and the key is that of the certificate.",
                ) from error
        if not self.is_loopback and not (self.certificate or self.plain_text):
            raise InvalidJob(
                f"--host {self.host}: others on the network could read what is sent, and act in your name",
                hint="Forward the port by ssh instead: ssh -L 8000:127.0.0.1:PORT HOST. Or give a --certificate and "
                "its --key, or --plain-text if the network is private.",
            )

    @property
    def is_loopback(self) -> bool:
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"

    def listen(self) -> socket.socket:
        """A listening socket. Raises InvalidJob if the address cannot be used."""
        try:
            found = socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
            family, _, _, _, place = found[0]
            return socket.create_server(place[:2], family=family)
        except (OSError, OverflowError, UnicodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error)
            raise InvalidJob(
                f"the dashboard cannot listen on {self.host}, port {self.port}: {reason}",
                hint="Choose another --port; without it, a free one is taken.",
            ) from error


class MissingPackage(CloudtrainError):
    """A package of the extra ``dashboard`` is not installed."""


def serve(address: Address, started: Callable[[str], object], *, is_read_only: bool = False) -> None:
    """Serve the dashboard until it is interrupted.

    Args:
        address: the address to listen on.
        started: called with the first address to open, which contains the token.
        is_read_only: whether every action on jobs is refused.

    Raises:
        InvalidJob: the address is not safe, or cannot be listened on.
        MissingPackage: a package is not installed.
    """
    address.check()
    try:
        import uvicorn

        from cloudtrain.watch.dashboard.connections import MOST, Connection
        from cloudtrain.watch.dashboard.guard import Guard
        from cloudtrain.watch.dashboard.pages import Pages
    except ImportError as error:
        raise MissingPackage(
            f"the dashboard needs the package {error.name}",
            hint="Run: pip install jinja2 sse-starlette starlette uvicorn",
        ) from error
    listener = address.listen()
    names = {"localhost", socket.gethostname().lower(), socket.getfqdn().lower(), address.host.lower()}
    loopback = {"localhost"}
    guard = Guard(
        lambda *call: app(*call),
        loopback if address.is_loopback else names,
        any_address=not address.is_loopback,
    )
    app = Pages(guard.root, is_read_only=is_read_only).app()
    server = uvicorn.Server(
        uvicorn.Config(
            guard,
            log_level="error",
            access_log=False,
            server_header=False,
            proxy_headers=False,
            ws="none",
            lifespan="off",
            http=Connection,
            limit_concurrency=2 * MOST,  # reached only if all are busy, because idle ones give way
            timeout_graceful_shutdown=GRACE_SECONDS,
            ssl_certfile=address.certificate,
            ssl_keyfile=address.key,
        )
    )
    host, port = listener.getsockname()[:2]
    shown = socket.gethostname() if ipaddress.ip_address(host).is_unspecified else host
    scheme = "https" if address.certificate else "http"
    with listener, contextlib.suppress(KeyboardInterrupt):
        started(f"{scheme}://{f'[{shown}]' if ':' in shown else shown}:{port}/enter?token={guard.token}")
        server.run(sockets=[listener])
