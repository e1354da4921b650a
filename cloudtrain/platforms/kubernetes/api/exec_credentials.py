"""Credentials that a program prints: ``aws eks get-token``, ``gke-gcloud-auth-plugin``, ``kubelogin``.

lightkube has this for the beta of the protocol and for tokens only. Clusters of today use ``v1`` of it, some with
client certificates.
"""

from __future__ import annotations

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
from datetime import datetime
from typing import Any

import httpx2 as httpx

from cloudtrain.errors import PlatformError
from cloudtrain.platforms.kubernetes.api.kubeconfig import Login

TIMEOUT = 120.0
"""The seconds that a program may take if it cannot ask the user anything."""

EARLY = 30.0
"""Credentials are renewed this many seconds before they expire."""

_VERSIONS = {f"client.authentication.k8s.io/{version}" for version in ("v1", "v1beta1", "v1alpha1")}


class ExecCredentials(httpx.Auth):
    """Runs the program of a context when credentials are needed, when they expire, and when they are refused.

    Threads share it: one of them runs the program, the others wait.
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
        """Run the program, unless another thread has since run number ``seen``; None: use what there is."""
        with self._lock:
            is_due = self._runs == 0 or time.time() > self._expires - EARLY
            if is_due or (seen is not None and seen == self._runs):
                self._take(self._run())
                self._runs += 1
            return self._runs

    def _take(self, status: Mapping[str, Any]) -> None:
        token, certificate, key = (
            status.get(name) for name in ("token", "clientCertificateData", "clientKeyData")
        )
        if not token and not certificate:
            raise self._error("printed neither a token nor a client certificate")
        self._bearer = f"Bearer {token}" if token else ""
        self._expires = float("inf")
        if isinstance(expires := status.get("expirationTimestamp"), str):
            try:
                self._expires = datetime.fromisoformat(expires.replace("Z", "+00:00")).timestamp()
            except ValueError:
                raise self._error(
                    f"printed an expirationTimestamp that cannot be read: {expires[:40]!r}"
                ) from None
        if certificate and key:
            try:
                self._load(f"{certificate}\n{key}\n")
            except (OSError, ssl.SSLError):
                raise self._error("printed a client certificate that cannot be used") from None

    def _load(self, pem: str) -> None:
        """Use a certificate and its key from now on. ssl reads them only from a file."""
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
            raise self._error(
                f"has the apiVersion {version!r}, which is none of {', '.join(sorted(_VERSIONS))}"
            )
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
            raise self._error(
                f"did not end in {TIMEOUT:g} s", "Run it in a terminal: it may ask you something."
            ) from None
        except OSError as error:
            raise self._error(f"cannot be started: {error.strerror}") from None
        if run.returncode:
            said = (run.stderr or b"").decode(errors="replace").strip().splitlines()
            reason = f": {said[-1][:300]}" if said else ""
            raise self._error(
                f"failed with exit code {run.returncode}{reason}", "Log in again, or run it by hand."
            )
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
                f"printed the apiVersion {given}, and the kubeconfig says {version}",
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
            names = (
                "server",
                "tls-server-name",
                "insecure-skip-tls-verify",
                "certificate-authority-data",
                "proxy-url",
            )
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
    except (AttributeError, ValueError):  # no or closed streams
        return False
