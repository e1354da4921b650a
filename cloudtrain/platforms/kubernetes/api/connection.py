"""The HTTP client of a context, with its server, certificates, credentials and proxy.

`ExecCredentials` gets credentials from a program: ``aws eks get-token``, ``gke-gcloud-auth-plugin``, ``kubelogin``.
lightkube supports only the beta version of this protocol, and only tokens. Current clusters use ``v1``, some with
client certificates.
"""

from __future__ import annotations

import ipaddress
import json
import os
import shutil
import ssl
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
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
        hint="Run: pip install httpx2 lightkube wsproto",
    ) from error

TIMEOUT = 120.0
"""How many seconds a program may take if it cannot prompt the user."""
EARLY = 30.0
"""Credentials are renewed this many seconds before they expire."""
_VERSIONS = {f"client.authentication.k8s.io/{version}" for version in ("v1", "v1beta1", "v1alpha1")}

UNENCRYPTED = "none are sent without encryption"
"""The method of a context whose server is an ``http://`` URL."""


@dataclass
class Connection:
    """A client for one context, with the names that errors use."""

    http: httpx.Client = field(repr=False)
    login: Login
    server: str
    method: str
    """How it authenticates: ``the program aws``, ``a token``, ``a client certificate``, ..."""
    extensions: dict[str, Any] = field(default_factory=dict)
    """The extensions of every request, as httpx defines them."""


def open_connection(login: Login) -> Connection:
    """A client for a context. It connects with its first request. Raises PlatformError."""
    cluster, user = _cluster(login), _user(login)
    server = cluster.server
    verify = _tls(login, cluster, user)
    has_program = bool(login.user.values.get("exec")) and not user.token and not user.token_file
    auth: httpx.Auth | None = ExecCredentials(login, verify) if has_program else user_auth(user)
    if _is_readable(server):
        auth = None  # like kubectl, which sends none
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
    extensions = {"sni_hostname": name} if name else {}
    return Connection(http, login, server, _method(login, user, server), extensions)


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
                open(path, "rb").close()  # ssl does not name the missing file
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
    """Headers for ``as``: without them, a request would have other rights than with kubectl."""
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
    if user.token_file or user.token:
        return "a token"
    if login.user.values.get("exec"):
        return f"the program {login.user.values['exec'].get('command')}"
    if user.client_cert or user.client_cert_data:
        return "a client certificate"
    return "a password" if user.username else "no credentials"


def _is_readable(server: str) -> bool:
    """Whether anyone on the network path to the server could read the credentials."""
    parts = urlsplit(server)
    if parts.scheme == "https" or parts.hostname == "localhost":
        return False
    try:
        return not ipaddress.ip_address(parts.hostname or "").is_loopback
    except ValueError:
        return True


def _is_direct(host: str) -> bool:
    """Whether ``NO_PROXY`` has a network with the address ``host``. httpx supports only names and addresses in it."""
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


class ExecCredentials(httpx.Auth):
    """Runs the program of a context for its first credentials, when they expire, and when the server rejects them.

    Threads may share it: one of them runs the program while the others wait.
    """

    def __init__(self, login: Login, context: ssl.SSLContext) -> None:
        self._login = login
        self._tls = context
        self._lock = threading.Lock()
        self._bearer = ""
        self._expires = float("inf")
        self._runs = 0

    def sync_auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        runs = self._refresh(None)
        self._sign(request)
        response = yield request
        if response.status_code == 401:
            self._refresh(runs)
            self._sign(request)
            yield request

    def _sign(self, request: httpx.Request) -> None:
        if self._bearer:
            request.headers["Authorization"] = self._bearer

    def _refresh(self, seen: int | None) -> int:
        """Run the program if it is due, or if run ``seen`` is the last one. Returns the number of the last run."""
        with self._lock:
            is_due = self._runs == 0 or time.time() > self._expires - EARLY
            if is_due or (seen is not None and seen == self._runs):
                self._take(self._run())
                self._runs += 1
            return self._runs

    def _take(self, status: Mapping[str, Any]) -> None:
        names = ("token", "clientCertificateData", "clientKeyData")
        token, certificate, key = (status.get(name) for name in names)
        if not token and not certificate:
            raise self._error("printed neither a token nor a client certificate")
        self._bearer = f"Bearer {token}" if token else ""
        self._expires = float("inf")
        if isinstance(expires := status.get("expirationTimestamp"), str):
            try:
                self._expires = datetime.fromisoformat(expires.replace("Z", "+00:00")).timestamp()
            except ValueError:
                what = f"printed an expirationTimestamp that cannot be read: {expires[:40]!r}"
                raise self._error(what) from None
        if certificate and key:
            try:
                self._load(f"{certificate}\n{key}\n")
            except (OSError, ssl.SSLError):
                raise self._error("printed a client certificate that cannot be used") from None

    def _load(self, pem: str) -> None:
        """Use a new certificate and its key, through a file, because ssl cannot read them from memory."""
        handle, path = tempfile.mkstemp(suffix=".pem")
        try:
            with os.fdopen(handle, "w") as file:
                file.write(pem)
            self._tls.load_cert_chain(path)
        finally:
            os.unlink(path)

    def _run(self) -> Mapping[str, Any]:
        spec = self._login.user.values["exec"]
        version = spec.get("apiVersion")
        if version not in _VERSIONS:
            known = ", ".join(sorted(_VERSIONS))
            raise self._error(f"has the apiVersion {version!r}, which is none of {known}")
        is_interactive = spec.get("interactiveMode") != "Never" and _is_terminal()
        if spec.get("interactiveMode") == "Always" and not is_interactive:
            raise self._error("needs a terminal", "Log in with kubectl in a terminal first.")
        try:
            run = subprocess.run(
                [self._command(spec), *map(str, spec.get("args") or [])],
                env=self._environ(spec, version, is_interactive),
                stdin=None if is_interactive else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=None if is_interactive else subprocess.PIPE,
                timeout=None if is_interactive else TIMEOUT,
                check=False,
            )
        except subprocess.TimeoutExpired:
            hint = "Run it in a terminal: it may need your input."
            raise self._error(f"did not end in {TIMEOUT:g} s", hint) from None
        except OSError as error:
            raise self._error(f"cannot be started: {error.strerror}") from None
        if run.returncode:
            printed = (run.stderr or b"").decode(errors="replace").strip().splitlines()
            what = f"failed with exit code {run.returncode}" + (f": {printed[-1][:300]}" if printed else "")
            raise self._error(what, "Log in again, or run it by hand.")
        return self._parsed(run.stdout, version)

    def _parsed(self, text: bytes, version: str) -> Mapping[str, Any]:
        try:
            answer = json.loads(text)
            status = answer["status"]
            given = answer["apiVersion"]
        except (ValueError, KeyError, TypeError):
            raise self._error("did not print an ExecCredential") from None
        if given != version:
            raise self._error(
                f"printed the apiVersion {given}, and the kubeconfig has {version}",
                "Get the kubeconfig again, or upgrade the program.",
            )
        if not isinstance(status, dict):
            raise self._error("did not print an ExecCredential")
        return status

    def _command(self, spec: Mapping[str, Any]) -> str:
        command = spec.get("command")
        if not isinstance(command, str) or not command:
            raise self._error("has no command")
        if os.sep in command:  # relative to the kubeconfig; a plain name is on PATH
            command = str(self._login.user.file.parent / command)
        if not shutil.which(command):
            hint = str(spec.get("installHint") or "").strip() or "Install it, or add its folder to PATH."
            raise self._error("is not installed", " ".join(hint.split()))
        return command

    def _environ(self, spec: Mapping[str, Any], version: str, is_interactive: bool) -> dict[str, str]:
        info: dict[str, Any] = {"interactive": is_interactive}
        if spec.get("provideClusterInfo"):
            cluster = self._login.cluster.values
            names = ["server", "tls-server-name", "insecure-skip-tls-verify", "certificate-authority-data"]
            names.append("proxy-url")
            info["cluster"] = {name: cluster[name] for name in names if cluster.get(name)}
            for extension in cluster.get("extensions") or []:
                if extension.get("name") == "client.authentication.k8s.io/exec":
                    info["cluster"]["config"] = extension.get("extension")
        credential = {"apiVersion": version, "kind": "ExecCredential", "spec": info}
        given = {str(item.get("name")): str(item.get("value")) for item in spec.get("env") or []}
        return {**os.environ, **given, "KUBERNETES_EXEC_INFO": json.dumps(credential)}

    def _error(self, what: str, hint: str = "") -> PlatformError:
        command = self._login.user.values["exec"].get("command")
        return PlatformError(
            f"{command}, which gets the credentials of the context {self._login.context}, {what}", hint=hint
        )


def _is_terminal() -> bool:
    try:
        return sys.stdin.isatty() and sys.stderr.isatty()
    except (AttributeError, ValueError):  # there are no streams, or they are closed
        return False
