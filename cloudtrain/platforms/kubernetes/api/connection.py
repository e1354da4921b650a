"""The HTTP client of a context: its server, its certificates, its credentials and its proxy."""

from __future__ import annotations

import ipaddress
import ssl
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies

from cloudtrain._version import __version__
from cloudtrain.errors import PlatformError
from cloudtrain.platforms.kubernetes.api.kubeconfig import Login

try:
    import httpx2 as httpx
    from lightkube.config.client_adapter import user_auth, verify_cluster
    from lightkube.config.models import Cluster, User
except ImportError as error:
    raise PlatformError(
        f"the platform kubernetes needs the package {(error.name or 'lightkube').partition('.')[0]}",
        hint="pip install lightkube",
    ) from error

UNENCRYPTED = "none are sent without encryption"
"""The method of a context whose server is an ``http://`` URL."""


@dataclass
class Connection:
    """A client for one context, and what errors say about it."""

    http: httpx.Client = field(repr=False)
    login: Login
    server: str
    method: str
    """How it authenticates: ``the program aws``, ``a token``, ``a client certificate``, ..."""
    extensions: dict[str, Any] = field(default_factory=dict)
    """Those of every request."""


def open_connection(login: Login) -> Connection:
    """A client for a context. It connects with its first request. Raises PlatformError."""
    from cloudtrain.platforms.kubernetes.api.exec_credentials import ExecCredentials

    cluster, user = _cluster(login), _user(login)
    server = cluster.server
    verify = _tls(login, cluster, user)
    has_program = bool(login.user.values.get("exec")) and not user.token and not user.token_file
    auth: httpx.Auth | None = ExecCredentials(login, verify) if has_program else user_auth(user)
    if _is_readable(server):
        auth = None  # kubectl sends none either
    proxy = login.cluster.text("proxy-url") or None
    try:
        http = httpx.Client(
            base_url=server,
            verify=verify,
            auth=auth,
            proxy=proxy,
            trust_env=not _is_direct(urlsplit(server).hostname or ""),
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=20, keepalive_expiry=30.0),
            headers={"User-Agent": f"cloudtrain/{__version__}", **_impersonation(login)},
        )
    except (ImportError, ValueError, httpx.InvalidURL) as error:
        shown = proxy or "that HTTPS_PROXY names"
        raise PlatformError(
            f"the proxy {shown} of the context {login.context} cannot be used: {error}"
        ) from None
    name = login.cluster.text("tls-server-name")
    return Connection(
        http, login, server, _method(login, user, server), {"sni_hostname": name} if name else {}
    )


def _cluster(login: Login) -> Cluster:
    entry = login.cluster
    server = entry.text("server") or "http://localhost:8080"
    try:
        parts = urlsplit(server)
        is_url = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_url = False
    if not is_url:
        raise PlatformError(
            f"the server of the context {login.context} is not a URL: {server!r}",
            hint=f"It must begin with https://. See {entry.file}.",
        )
    return Cluster(
        server=server,
        certificate_auth=entry.path("certificate-authority") or None,
        certificate_auth_data=entry.text("certificate-authority-data") or None,
        insecure=entry.values.get("insecure-skip-tls-verify") is True,
    )


def _user(login: Login) -> User:
    entry = login.user
    if provider := entry.values.get("auth-provider"):
        name = provider.get("name") if isinstance(provider, dict) else provider
        raise PlatformError(
            f"the user {login.user_name} logs in with auth-provider {name}, which Kubernetes has removed",
            hint="Get the kubeconfig again: it then names a program, such as gke-gcloud-auth-plugin or kubelogin.",
        )
    if not isinstance(entry.values.get("exec") or {}, dict):
        raise PlatformError(f"{entry.file}: exec of the user {login.user_name} is not a table")
    user = User(
        username=entry.text("username") or None,
        password=entry.text("password") or None,
        token=entry.text("token").strip() or None,
        token_file=entry.path("tokenFile") or None,
        client_cert=entry.path("client-certificate") or None,
        client_cert_data=entry.text("client-certificate-data") or None,
        client_key=entry.path("client-key") or None,
        client_key_data=entry.text("client-key-data") or None,
    )
    if bool(user.client_cert or user.client_cert_data) != bool(user.client_key or user.client_key_data):
        raise PlatformError(
            f"{entry.file}: the user {login.user_name} has a client certificate or a key, not both"
        )
    return user


def _tls(login: Login, cluster: Cluster, user: User) -> ssl.SSLContext:
    hint = f"{login.cluster.file} names them."
    for path in (cluster.certificate_auth, user.client_cert, user.client_key):
        try:
            if path:
                open(path, "rb").close()  # ssl does not say which file is missing
        except OSError as error:
            raise PlatformError(
                f"a certificate of the context {login.context} cannot be read: {path}: {error.strerror}",
                hint=hint,
            ) from None
    try:
        return verify_cluster(cluster, user, str)
    except (OSError, ValueError):  # ssl.SSLError is an OSError, bad base64 a ValueError
        raise PlatformError(
            f"the certificates of the context {login.context} are not valid: no PEM, or a key of another certificate",
            hint=hint,
        ) from None


def _impersonation(login: Login) -> dict[str, str]:
    """Headers for ``as``: without them a request would have other rights than those of kubectl."""
    if groups := login.user.values.get("as-groups"):
        raise PlatformError(
            f"the user {login.user_name} has as-groups: {groups}, which cloudtrain does not support",
            hint="Use another context.",
        )
    name = login.user.text("as")
    return {"Impersonate-User": name} if name else {}


def _method(login: Login, user: User, server: str) -> str:
    if _is_readable(server):
        return UNENCRYPTED
    if login.user.values.get("exec"):
        return f"the program {login.user.values['exec'].get('command')}"
    if user.token_file or user.token:
        return "a token"
    if user.client_cert or user.client_cert_data:
        return "a client certificate"
    return "a password" if user.username else "no credentials"


def _is_readable(server: str) -> bool:
    """Whether everyone on the way to the server could read credentials."""
    parts = urlsplit(server)
    if parts.scheme == "https" or parts.hostname == "localhost":
        return False
    try:
        return not ipaddress.ip_address(parts.hostname or "").is_loopback
    except ValueError:
        return True


def _is_direct(host: str) -> bool:
    """Whether ``NO_PROXY`` has a network that contains the address ``host``. httpx knows only names and addresses."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    for entry in getproxies().get("no", "").split(","):
        try:
            if address in ipaddress.ip_network(entry.strip(), strict=False):
                return True
        except ValueError:
            continue
    return False
