"""Encrypts connections between machines: TLS 1.3, with the certificate of the job.

Connections are encrypted after both ends have proved themselves: an unauthenticated peer costs no TLS handshake.
"""

from __future__ import annotations

import base64
import hmac
import os
import socket
import ssl
import tempfile
from dataclasses import field

from cloudtrain._dataclass import dataclass
from cloudtrain.link.handshake import NotAuthenticated

# the curve P-256, NIST SP 800-186
_P = 0xFFFFFFFF00000001000000000000000000000000FFFFFFFFFFFFFFFFFFFFFFFF
_N = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
_G = (
    0x6B17D1F2E12C4247F8BCE6E563A440F277037D812DEB33A0F4A13945D898C296,
    0x4FE342E2FE1A7F9B8EE7EB4A7C0F9E162BCE33576B315ECECBB6406837BF51F5,
)
_Point = tuple[int, int]

# object identifiers in DER
_EC_KEY = bytes.fromhex("06072a8648ce3d0201")
_P256 = bytes.fromhex("06082a8648ce3d030107")
_ECDSA_SHA256 = bytes.fromhex("06082a8648ce3d040302")
_COMMON_NAME = bytes.fromhex("0603550403")


@dataclass(frozen=True)
class Certificate:
    """A certificate in DER, and its private key in PEM."""

    der: bytes
    key: str = field(repr=False)

    @property
    def pem(self) -> str:
        return _pem("CERTIFICATE", self.der)


def make_certificate(key: bytes) -> Certificate:
    """The certificate for a key of 32 bytes. The same key always gives the same certificate."""
    private = int.from_bytes(key, "big") % (_N - 1) + 1
    x, y = _times(private)
    public = _der(0x03, b"\0\4" + x.to_bytes(32, "big") + y.to_bytes(32, "big"))
    secret = _der(
        0x30,
        _integer(1),
        _der(0x04, private.to_bytes(32, "big")),
        _der(0xA0, _P256),
        _der(0xA1, public),
    )
    name = _der(0x30, _der(0x31, _der(0x30, _COMMON_NAME, _der(0x0C, b"cloudtrain job"))))
    algorithm = _der(0x30, _ECDSA_SHA256)
    content = _der(
        0x30,
        _der(0xA0, _integer(2)),
        _integer(1),
        algorithm,
        name,
        _der(0x30, _der(0x18, b"20200101000000Z"), _der(0x18, b"99991231235959Z")),
        name,
        _der(0x30, _der(0x30, _EC_KEY, _P256), public),
    )
    signature = _der(0x03, b"\0", _der(0x30, _integer(1), _integer(1)))
    return Certificate(_der(0x30, content, algorithm, signature), _pem("EC PRIVATE KEY", secret))


def _times(factor: int) -> _Point:
    """The base point, multiplied by a number from 1 to the order of the curve, exclusive.

    In Jacobian coordinates, (x / z², y / z³), which take one inversion, at the end. The formulas are ``dbl-2001-b`` and
    ``madd`` of https://hyperelliptic.org/EFD/g1p/auto-shortw-jacobian-3.html.
    """
    base_x, base_y = _G
    x, y, z = base_x, base_y, 1
    for bit in f"{factor:b}"[1:]:
        delta, gamma = z * z % _P, y * y % _P
        beta, alpha = x * gamma % _P, 3 * (x - delta) * (x + delta) % _P
        x, z = (alpha * alpha - 8 * beta) % _P, ((y + z) ** 2 - gamma - delta) % _P
        y = (alpha * (4 * beta - x) - 8 * gamma * gamma) % _P
        if bit == "1":
            square = z * z % _P
            h, r = (base_x * square - x) % _P, (base_y * z * square - y) % _P
            h2 = h * h % _P
            h3, v = h * h2 % _P, x * h2 % _P
            x, z = (r * r - h3 - 2 * v) % _P, z * h % _P
            y = (r * (v - x) - y * h3) % _P
    inverse = pow(z, -1, _P)
    return x * inverse**2 % _P, y * inverse**3 % _P


def _der(tag: int, *parts: bytes) -> bytes:
    content = b"".join(parts)
    size = len(content)
    return bytes([tag, size] if size < 128 else [tag, 0x81, size]) + content  # no content here has 256 bytes


def _integer(value: int) -> bytes:
    return _der(0x02, bytes([value]))


def _pem(label: str, der: bytes) -> str:
    text = base64.encodebytes(der).decode()
    return f"-----BEGIN {label}-----\n{text}-----END {label}-----\n"


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
        certificate: the certificate that the server must present, in DER, for the client.
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
        """Encrypt ``data``; returns the bytes to send now. Until the handshake is over, ``data`` waits."""
        self._waiting += data
        self._advance()
        return self._outgoing.read()

    def receive(self, data: bytes) -> tuple[bytes, bytes]:
        """Decrypt received data; returns the content, and the bytes to send.

        Raises:
            NotAuthenticated: the server has another certificate.
            EOFError: the other end has ended the connection.
            ssl.SSLError: this is not TLS, or was changed in transit.
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
