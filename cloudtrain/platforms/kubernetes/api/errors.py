"""Turns responses of the API server and failures of the network into errors with hints."""

from __future__ import annotations

import email.utils
import json
import re
import socket
import ssl
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cloudtrain.errors import PlatformError
from cloudtrain.platforms.kubernetes.api.kinds import Kind

if TYPE_CHECKING:
    from cloudtrain.platforms.kubernetes.api.connection import Connection

LONGEST_PAUSE = 30.0
"""The longest Retry-After that is honoured, in seconds."""
NOT_CONNECTED = "NotConnected"
"""The `KubeError.reason` of a request that never reached the server."""
_TRANSIENT = {429, 500, 502, 503, 504}


class KubeError(PlatformError):
    """The API server rejected a request, or cannot be reached."""

    def __init__(
        self,
        message: str,
        *,
        hint: str = "",
        status: int = 0,
        reason: str = "",
        is_transient: bool = False,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message, hint=hint)
        self.status = status
        """The HTTP status; 0 without a response."""
        self.reason = reason
        """Kubernetes' own name for it: ``NotFound``, ``AlreadyExists``, ..."""
        self.is_transient = is_transient
        """Whether the same request may succeed later."""
        self.retry_after = retry_after
        """The seconds from a Retry-After header, if there is one."""


class KubeNotFound(KubeError):
    """The object, its namespace or its kind does not exist."""


class KubeAlreadyExists(KubeError):
    """An object of this kind and name exists."""


class KubeConflict(KubeError):
    """The object has changed since it was read, or another object has its name now."""


class KubeForbidden(KubeError):
    """The credentials do not allow this verb on this resource."""


class KubeUnauthorized(KubeError):
    """The cluster does not accept the credentials."""


class KubeInvalid(KubeError):
    """The object violates its schema, an admission webhook, a quota or a policy."""


class KubeGone(KubeError):
    """The server no longer has the history that a watch requested: a new list is needed."""


class KubeUnreachable(KubeError):
    """There was no response, or the connection broke."""


class KubeTooLarge(KubeError):
    """The response exceeds the memory that a client may use for it."""


@dataclass
class Subject:
    """The subject of a request, for descriptions in errors."""

    verb: str
    """The verb of RBAC: ``get``, ``list``, ``create``, ..."""
    kind: Kind | None = None
    name: str = ""
    namespace: str = ""
    subresource: str = ""

    @property
    def resource(self) -> str:
        """The resource as RBAC names it: ``pods/log``."""
        plural = self.kind.plural if self.kind else "the API"
        return f"{plural}/{self.subresource}" if self.subresource else plural

    @property
    def what(self) -> str:
        return f"{self.kind.kind if self.kind else 'object'} {self.name}".strip()

    @property
    def place(self) -> str:
        return f" in the namespace {self.namespace}" if self.namespace else ""


def status_error(
    status: int, body: bytes, headers: Mapping[str, str], subject: Subject, at: Connection
) -> KubeError:
    """The error for an HTTP status of 300 or more."""
    try:
        answer = json.loads(body)
    except ValueError:
        answer = None
    if not isinstance(answer, dict) or answer.get("kind") != "Status":
        return _foreign_error(status, body, headers, subject, at)
    return object_error(answer, subject, at, status=status, pause=_retry_after(headers))


def object_error(
    answer: Mapping[str, Any],
    subject: Subject,
    at: Connection,
    *,
    status: int = 0,
    pause: float | None = None,
) -> KubeError:
    """The error for a ``Status`` object, which a watch receives in its stream."""
    from cloudtrain.platforms.kubernetes.api.refusals import refusal

    code = status or _number(answer.get("code"))
    reason, message = str(answer.get("reason") or ""), " ".join(str(answer.get("message") or "").split())
    details = answer.get("details")
    details = details if isinstance(details, dict) else {}
    if pause is None and details.get("retryAfterSeconds"):
        pause = min(float(_number(details["retryAfterSeconds"])), LONGEST_PAUSE)
    given: dict[str, Any] = {"status": code, "reason": reason}
    if refused := refusal(message):
        return KubeInvalid(refused.sentence, hint=refused.advice, **given)
    if code == 401:
        return _unauthorized(at, given)
    if code == 403:
        return _forbidden(message, subject, given)
    if code == 404:
        return _not_found(details, subject, at, given)
    if code == 409 and reason == "AlreadyExists":
        return KubeAlreadyExists(f"{subject.what} exists in the namespace {subject.namespace}", **given)
    if code == 409:
        # a new object cannot have changed before: the server could not update the quota
        is_create = subject.verb == "create" and reason == "Conflict"
        what = f"{subject.what} has changed meanwhile"
        if is_create:
            what = f"the API server cannot create {subject.what} now"
        return KubeConflict(f"{what}: {message}", hint="Try again.", is_transient=is_create, **given)
    if code == 410 or reason in ("Expired", "Gone"):
        return KubeGone(f"the server no longer has this history: {message}", **{**given, "status": 410})
    causes = [cause for cause in details.get("causes") or [] if isinstance(cause, dict)]
    if code in (400, 413, 422):
        texts = [
            ": ".join(filter(None, (one.get("field"), one.get("message"))))
            for one in causes
            if one.get("message")
        ]
        why = "; ".join(list(dict.fromkeys(texts))[:5]) or message
        return KubeInvalid(f"the cluster refuses {subject.what}: {why}", **given)
    is_budget = any(cause.get("reason") == "DisruptionBudget" for cause in causes)
    hint = "Try again. If it stays so, ask its administrators."
    return KubeError(
        f"the API server cannot {subject.verb} {subject.resource} now: {message or reason or f'HTTP {code}'}",
        hint="A PodDisruptionBudget forbids it for now." if is_budget else hint,
        is_transient=code in _TRANSIENT and not is_budget,
        retry_after=pause,
        **given,
    )


def _retry_after(headers: Mapping[str, str]) -> float | None:
    """The seconds of a Retry-After header, at most `LONGEST_PAUSE`."""
    value = headers.get("Retry-After", "").strip()
    try:
        seconds = (
            float(value)
            if value.isdigit()
            else email.utils.parsedate_to_datetime(value).timestamp() - time.time()
        )
    except (ValueError, TypeError):
        return None
    return min(max(seconds, 0.0), LONGEST_PAUSE)


def _unauthorized(at: Connection, given: Mapping[str, Any]) -> KubeUnauthorized:
    hints = {
        "a client certificate": "It has expired, or is for another cluster: get the kubeconfig again.",
        "no credentials": f"The context has no user: see {at.login.cluster.file}.",
    }
    hint = hints.get(at.method, "It has expired, or was revoked: log in again, or get the kubeconfig again.")
    if at.method.startswith("the program"):
        hint = f"Log in again, and try {at.method.removeprefix('the program ')} by hand."
    if at.server.startswith("http://"):
        hint = f"Write https:// in {at.login.cluster.file}, if the server speaks it."
    return KubeUnauthorized(
        f"the cluster does not accept the credentials of the context {at.login.context} ({at.method})",
        hint=hint,
        **given,
    )


def _forbidden(message: str, subject: Subject, given: Mapping[str, Any]) -> KubeForbidden:
    user = re.search(r'User "([^"]+)"', message)
    who = user[1] if user else "you"
    group = f" of {subject.kind.group}" if subject.kind and subject.kind.group else ""
    tail = "" if user or not message else f": {message}"
    return KubeForbidden(
        f"{who} may not {subject.verb} {subject.resource}{group}{subject.place}{tail}",
        hint=f"Ask an administrator of the cluster for the verb {subject.verb} on {subject.resource}{subject.place}. "
        "cloudtrain doctor --platform kubernetes prints the Role that jobs need.",
        **given,
    )


def _not_found(
    details: Mapping[str, Any], subject: Subject, at: Connection, given: Mapping[str, Any]
) -> KubeNotFound:
    if details.get("kind") == "namespaces" and subject.namespace:
        return KubeNotFound(
            f"there is no namespace {subject.namespace} in the cluster of the context {at.login.context}",
            hint="Set platform_options.namespace. kubectl get namespaces lists them.",
            **given,
        )
    if subject.name and details.get("name"):
        return KubeNotFound(
            f"there is no {subject.what}{subject.place}",
            hint="Check the name and the namespace, and whether it was deleted: kubectl get events",
            **given,
        )
    what = f"{subject.kind.kind} of {subject.kind.api_version}" if subject.kind else "this path"
    return KubeNotFound(
        f"the cluster of the context {at.login.context} does not have {what}",
        hint="Its operator is not installed, or in another version.",
        **given,
    )


def _foreign_error(
    status: int, body: bytes, headers: Mapping[str, str], subject: Subject, at: Connection
) -> KubeError:
    """The error for a response that is not from the API server, but from a proxy, a load balancer or another server."""
    given: dict[str, Any] = {"status": status}
    text = " ".join(body[:2000].decode(errors="replace").split())
    if status == 401:
        return _unauthorized(at, given)
    if status == 404 and text == "404 page not found":
        return _not_found({}, subject, at, given)
    if status == 410:
        return KubeGone("the server no longer has this history", **given)
    if "HTTP request to an HTTPS server" in text:
        hint = f"Write https:// in {at.login.cluster.file}."
        return KubeError(f"{at.server} speaks HTTPS", hint=hint, **given)
    if 300 <= status < 400:
        return KubeError(
            f"{at.server} redirects to {headers.get('Location', 'another page')[:200]}",
            hint="Is this the API server? A login page may be in front of it.",
            **given,
        )
    shown = "" if text.startswith("<") else f": {text[:200]}"
    return KubeError(
        f"{at.server} answered with HTTP {status}{shown}",
        hint="A proxy or a load balancer may be in front of the API server.",
        is_transient=status in _TRANSIENT,
        retry_after=_retry_after(headers),
        **given,
    )


def network_error(error: BaseException, at: Connection) -> KubeUnreachable:
    """The error for a request without a response."""
    server, context, file = at.server, at.login.context, at.login.cluster.file
    chain = list(_chain(error))
    for cause in chain:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return _certificate_error(cause.verify_message, at)
        if isinstance(cause, ssl.SSLError):
            return _tls_error(str(cause.reason or cause), at)
    for cause in chain:
        if isinstance(cause, socket.gaierror):
            host = server.partition("://")[2].partition("/")[0]
            message = f"there is no address for {host}"
            hint = f"Check your network or VPN, and the server of the context {context}."
            return KubeUnreachable(message, hint=hint, is_transient=True, reason=NOT_CONNECTED)
        if isinstance(cause, ConnectionRefusedError):
            message = f"nothing answers at {server}: connection refused"
            hint = f"Is the cluster of the context {context} running? kubectl config current-context shows yours."
            return KubeUnreachable(message, hint=hint, is_transient=True, reason=NOT_CONNECTED)
    kind = type(error).__name__
    if "Proxy" in kind:
        return KubeUnreachable(
            f"the proxy on the way to {server} refused the connection: {error}",
            hint="Check HTTPS_PROXY. NO_PROXY=HOST leaves it out.",
        )
    if kind == "UnsupportedProtocol":
        return KubeUnreachable(f"{server} is not a URL of an API server", hint=f"See {file}.")
    if kind == "LocalProtocolError" or isinstance(error, ValueError):  # its message quotes the header
        return KubeUnreachable(
            f"the credentials of the context {context} have characters that HTTP does not allow",
            hint=f"See {at.login.user.file}: is there a line break in a token?",
        )
    what = "no answer in time" if "Timeout" in kind else f"the connection broke ({str(error) or kind})"
    return KubeUnreachable(
        f"{server} does not answer: {what}",
        hint="Check your network or VPN.",
        is_transient=True,
        reason=NOT_CONNECTED if kind in ("ConnectError", "ConnectTimeout") else "",
    )


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _certificate_error(message: str, at: Connection) -> KubeUnreachable:
    hint = (
        "The kubeconfig may be of an older cluster at this address: get it again. See certificate-authority in "
        f"{at.login.cluster.file}."
    )
    if "expired" in message or "not yet valid" in message:
        hint = "Ask the cluster's administrators to renew it. Is the clock of this machine right?"
    elif "ostname" in message or "IP address mismatch" in message:
        hint = (
            f"Is the server of the context {at.login.context} right? tls-server-name sets the expected name."
        )
    return KubeUnreachable(f"the certificate of {at.server} is not valid: {message}", hint=hint)


def _tls_error(reason: str, at: Connection) -> KubeUnreachable:
    if "WRONG_VERSION_NUMBER" in reason or "UNKNOWN_PROTOCOL" in reason:
        hint = f"Is it http://, or another port? See {at.login.cluster.file}."
        return KubeUnreachable(f"{at.server} does not speak TLS", hint=hint)
    if "ALERT" in reason.upper():
        return KubeUnreachable(
            f"{at.server} does not accept the client certificate of the context {at.login.context} ({reason})",
            hint="It has expired, or is for another cluster: get the kubeconfig again.",
        )
    return KubeUnreachable(f"{at.server}: the TLS connection broke ({reason})", is_transient="EOF" in reason)


def _number(value: Any) -> int:
    return value if isinstance(value, int) else 0
