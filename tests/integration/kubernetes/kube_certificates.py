"""The certificates of one cluster: an authority, and what it has signed."""

from __future__ import annotations

import datetime
import ipaddress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

SERVER = "server"
CLIENTS = {"kubelet-client": "system:masters", "admin": "system:masters"}
"""Certificates of clients, and the group of each."""


def write_certificates(folder: Path) -> None:
    """Write ``ca.crt``, and ``NAME.crt`` and ``NAME.key`` of the server and each client."""
    folder.mkdir()
    authority = _key()
    issuer = _name("test authority")
    _write(folder / "ca.crt", _sign(issuer, authority, authority, issuer, x509.BasicConstraints(True, 0)))
    _issue(folder, SERVER, _name("kube-apiserver"), authority, issuer, ExtendedKeyUsageOID.SERVER_AUTH)
    for name, group in CLIENTS.items():
        _issue(folder, name, _name(name, group), authority, issuer, ExtendedKeyUsageOID.CLIENT_AUTH)
    _write_key(folder / "service-account.key", _key())


def _issue(
    folder: Path,
    name: str,
    subject: x509.Name,
    authority: ec.EllipticCurvePrivateKey,
    issuer: x509.Name,
    usage: x509.ObjectIdentifier,
) -> None:
    key = _key()
    addresses = [x509.IPAddress(ipaddress.ip_address("127.0.0.1")), x509.DNSName("localhost")]
    certificate = _sign(
        subject,
        key,
        authority,
        issuer,
        x509.ExtendedKeyUsage([usage]),
        x509.SubjectAlternativeName(addresses),
    )
    _write(folder / f"{name}.crt", certificate)
    _write_key(folder / f"{name}.key", key)


def _key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def _name(common: str, group: str = "") -> x509.Name:
    parts = [x509.NameAttribute(NameOID.COMMON_NAME, common)]
    if group:
        parts.append(x509.NameAttribute(NameOID.ORGANIZATION_NAME, group))
    return x509.Name(parts)


def _sign(
    subject: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    authority: ec.EllipticCurvePrivateKey,
    issuer: x509.Name,
    *extensions: x509.ExtensionType,
) -> x509.Certificate:
    now = datetime.datetime.now(datetime.timezone.utc)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=30))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.public_key()), critical=False
        )
    )
    for extension in extensions:
        builder = builder.add_extension(extension, critical=isinstance(extension, x509.BasicConstraints))
    if any(isinstance(extension, x509.BasicConstraints) for extension in extensions):
        usage = x509.KeyUsage(*[False] * 5, True, True, False, False)  # signs certificates
        builder = builder.add_extension(usage, critical=True)
    return builder.sign(authority, hashes.SHA256())


def _write(path: Path, certificate: x509.Certificate) -> None:
    path.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))


def _write_key(path: Path, key: ec.EllipticCurvePrivateKey) -> None:
    encoding, form = serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL
    path.touch(0o600)
    path.write_bytes(key.private_bytes(encoding, form, serialization.NoEncryption()))
