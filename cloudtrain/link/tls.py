"""Encrypts connections between machines: TLS 1.3, with the certificate of the job.

Connections are encrypted after both ends have proved themselves: a peer that cannot do so costs no TLS handshake.
"""

from __future__ import annotations

import hmac
import os
import socket
import ssl
import tempfile

from cloudtrain.link.certificate import make_certificate
from cloudtrain.link.handshake import NotAuthenticated


def server_context(key: bytes) -> ssl.SSLContext:
    """The context of a server, for the job's key for ``tls``. Raises OSError if no temporary file can be written."""
    certificate = make_certificate(key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.num_tickets = 0  # no session is resumed
    # the ssl module reads keys from files only
    descriptor, path = tempfile.mkstemp()
    try:
        with open(descriptor, "w") as file:
            file.write(certificate.key + certificate.pem)
        context.load_cert_chain(path)
    finally:
        os.unlink(path)
    return context


class Tls:
    """One end of an encrypted connection, without a socket: the caller moves the bytes.

    Args:
        context: the `server_context`, for the server.
        certificate: what the server must present, in DER, for the client.
    """

    def __init__(self, context: ssl.SSLContext | None = None, certificate: bytes = b"") -> None:
        self._received, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._certificate = certificate
        self._object = (context or _client_context()).wrap_bio(
            self._received, self._outgoing, server_side=context is not None
        )
        self._waiting = bytearray()
        self._ready = False

    def send(self, data: bytes) -> bytes:
        """Encrypt ``data``; returns what to send now. Until the handshake is over, ``data`` waits."""
        self._waiting += data
        self._advance()
        return self._outgoing.read()

    def receive(self, data: bytes) -> tuple[bytes, bytes]:
        """Decrypt what was received; returns the content, and what to send.

        Raises:
            NotAuthenticated: the server has another certificate.
            EOFError: the other end has ended the connection.
            ssl.SSLError: this is not TLS, or was changed on its way.
        """
        self._received.write(data)
        self._advance()
        content = b""
        try:
            while self._ready:
                part = self._object.read(1 << 16)
                if not part:
                    raise EOFError("the other end has closed the connection")
                content += part
        except ssl.SSLWantReadError:
            pass
        return content, self._outgoing.read()

    def _advance(self) -> None:
        if not self._ready:
            try:
                self._object.do_handshake()
            except ssl.SSLWantReadError:
                return
            if self._certificate:
                check_certificate(self._object.getpeercert(binary_form=True), self._certificate)
            self._ready = True
        if self._waiting:
            self._object.write(bytes(self._waiting))
            self._waiting.clear()


def wrap_client(connection: socket.socket, certificate: bytes) -> ssl.SSLSocket:
    """Encrypt a blocking socket, whose server must present ``certificate``. Raises NotAuthenticated or OSError."""
    wrapped = _client_context().wrap_socket(connection)
    check_certificate(wrapped.getpeercert(binary_form=True), certificate)
    return wrapped


def check_certificate(presented: bytes | None, expected: bytes) -> None:
    """Raises NotAuthenticated unless the server presented this certificate."""
    if not hmac.compare_digest(presented or b"", expected):
        raise NotAuthenticated("it does not have the certificate of this job")


def _client_context() -> ssl.SSLContext:
    """Accepts any certificate: `check_certificate` compares it before anything is sent."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context
