"""Sends one notification to one place. Any error is raised as `NotSent`, whose text shows no secret.

A webhook follows https://www.standardwebhooks.com: ``webhook-id`` is the key, ``webhook-signature`` the HMAC-SHA256 of
``id.timestamp.body``. Redirects are not followed, TLS is verified, and only the beginning of an answer is read. An
e-mail has the key in its headers. A command gets the payload of a webhook on its standard input.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import hashlib
import hmac
import http.client
import json
import os
import smtplib
import socket
import ssl
import subprocess
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Collection, Mapping
from email.message import EmailMessage
from email.utils import formatdate
from typing import IO, Callable
from urllib.parse import urlsplit

from cloudtrain._secrets.hiding import ValueHider
from cloudtrain._secrets.names import is_secret_name
from cloudtrain._system.processes import signal_group
from cloudtrain._system.signals import SIGKILL
from cloudtrain._version import __version__
from cloudtrain.contract.text import one_line
from cloudtrain.runtime.http_opener import make_opener
from cloudtrain.runtime.notifications.notification import Notification
from cloudtrain.runtime.notifications.rules import Rule, smtp_address

TIMEOUT = 10.0
"""The most seconds without a byte from a server."""
MOST_SECONDS = 25.0
"""The most seconds for one notification in total, because a server may send a byte now and then."""
ANSWER_BYTES = 300
AGAIN = (408, 425, 429)
"""The statuses below 500 after which another request may succeed."""
LONGEST_WAIT = 3600.0
"""The most seconds to wait if a server requests a delay."""


class NotSent(Exception):
    """The notification did not arrive, as far as can be determined.

    Args:
        message: one line, without secrets.
        again: whether another try may succeed.
        wait: the seconds for which the server requests no other try.
    """

    def __init__(self, message: str, *, again: bool = True, wait: float = 0.0) -> None:
        super().__init__(message)
        self.again, self.wait = again, wait


def send(
    rule: Rule, notification: Notification, environ: Mapping[str, str], hidden: Collection[str] = ()
) -> None:
    """Send ``notification`` to the place of ``rule``. Takes at most `MOST_SECONDS`.

    Args:
        environ: contains the variables that ``rule`` refers to; a command gets all of it.
        hidden: the names of further secret variables, whose values a command may print.

    Raises:
        NotSent: it did not arrive, as far as can be determined.
    """
    names = [*rule.variables, *hidden, *filter(is_secret_name, environ)]
    hider = ValueHider.of_variables(names, environ)
    try:
        resolved = rule.resolved(environ)
    except LookupError as error:
        raise NotSent(str(error.args[0]), again=False) from None
    result: list[BaseException | None] = []

    def run() -> None:
        try:
            _SENDERS[rule.kind](resolved, notification, environ)
            result.append(None)
        except BaseException as error:
            result.append(error)

    thread = threading.Thread(target=run, daemon=True, name=f"notification-{rule.kind}")
    thread.start()
    thread.join(MOST_SECONDS)
    found = result[0] if result else NotSent(f"no answer within {MOST_SECONDS:.0f} s")
    if found is None:
        return
    message = one_line(hider.hide_all(str(found)))[: 2 * ANSWER_BYTES]
    if isinstance(found, NotSent):
        raise NotSent(message, again=found.again, wait=found.wait) from None
    may_pass = isinstance(found, (OSError, http.client.HTTPException)) and not _is_distrust(found)
    raise NotSent(f"{type(found).__name__}: {message}", again=may_pass) from None


def _is_distrust(error: object) -> bool:
    """Whether a server's certificate is not trusted, so that another try would fail too."""
    return isinstance(error, ssl.SSLCertVerificationError)


def _send_webhook(rule: Rule, notification: Notification, _environ: Mapping[str, str]) -> None:
    _post(
        rule.webhook,
        notification.payload(),
        signature_headers(rule.secret, notification.key, notification.payload(), time.time()),
    )


def _send_slack(rule: Rule, notification: Notification, _environ: Mapping[str, str]) -> None:
    _post(rule.slack, json.dumps(notification.slack).encode(), {})


def signature_headers(secret: str, key: str, body: bytes, now: float) -> dict[str, str]:
    """The headers of a webhook. They have no signature if ``secret`` is empty."""
    headers = {"webhook-id": key, "webhook-timestamp": str(int(now))}
    if secret:
        signed = b".".join([key.encode(), headers["webhook-timestamp"].encode(), body])
        digest = hmac.new(_key(secret), signed, hashlib.sha256).digest()
        headers["webhook-signature"] = f"v1,{base64.b64encode(digest).decode()}"
    return headers


def _key(secret: str) -> bytes:
    """The bytes of a secret: ``whsec_`` and base64, or any other text."""
    if secret.startswith("whsec_"):
        try:
            return base64.b64decode(secret[len("whsec_") :], validate=True)
        except binascii.Error:
            raise NotSent("the secret begins with whsec_, but the rest is not base64", again=False) from None
    return secret.encode()


def _post(url: str, body: bytes, headers: Mapping[str, str]) -> None:
    if urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).hostname:
        raise NotSent("the URL is not one of http or https", again=False)
    own = {"Content-Type": "application/json", "User-Agent": f"cloudtrain/{__version__}"}
    request = urllib.request.Request(url, data=body, headers={**own, **headers}, method="POST")
    try:
        with make_opener().open(request, timeout=TIMEOUT) as answer:
            answer.read(ANSWER_BYTES)
    except urllib.error.HTTPError as error:
        raise _refused(error) from None
    except urllib.error.URLError as error:
        raise NotSent(f"{error.reason}", again=not _is_distrust(error.reason)) from None


def _refused(error: urllib.error.HTTPError) -> NotSent:
    """The error for an answer other than success."""
    if 300 <= error.code < 400:
        return NotSent(f"HTTP {error.code}: redirects are not followed; name the last URL", again=False)
    wait = error.headers.get("Retry-After", "")
    words = _beginning(error)
    return NotSent(
        f"HTTP {error.code} {error.reason}" + (f": {words}" if words else ""),
        again=error.code >= 500 or error.code in AGAIN,
        wait=min(float(wait), LONGEST_WAIT) if wait.isascii() and wait.isdigit() else 0.0,
    )


def _beginning(answer: IO[bytes]) -> str:
    try:
        return one_line(answer.read(ANSWER_BYTES).decode("utf-8", "replace"))
    except (OSError, http.client.HTTPException):
        return ""


def _send_email(rule: Rule, notification: Notification, _environ: Mapping[str, str]) -> None:
    try:
        host, number = smtp_address(rule.smtp)
    except ValueError:
        raise NotSent(f"{rule.smtp} is not a mail server and its port", again=False) from None
    context = ssl.create_default_context()
    message = make_email(rule, notification)
    try:
        with (
            smtplib.SMTP_SSL(host, number, timeout=TIMEOUT, context=context)
            if number == 465
            else smtplib.SMTP(host, number, timeout=TIMEOUT) as server
        ):
            server.ehlo()
            if number != 465 and server.has_extn("starttls"):
                server.starttls(context=context)
                server.ehlo()
            elif number != 465 and rule.password:
                raise NotSent(f"{host} offers no TLS, and the password is sent over TLS only", again=False)
            if rule.user or rule.password:
                server.login(rule.user or rule.sender, rule.password)
            server.send_message(message)
    except smtplib.SMTPResponseException as error:
        words = (
            error.smtp_error.decode("utf-8", "replace")
            if isinstance(error.smtp_error, bytes)
            else error.smtp_error
        )
        raise NotSent(f"SMTP {error.smtp_code}: {words}", again=error.smtp_code < 500) from None
    except smtplib.SMTPRecipientsRefused as error:
        again = all(code < 500 for code, _ in error.recipients.values())
        raise NotSent(f"{host} refuses {', '.join(error.recipients)}", again=again) from None


def make_email(rule: Rule, notification: Notification) -> EmailMessage:
    """The e-mail for a notification. Raises NotSent if an address is invalid."""
    message = EmailMessage()
    sender = rule.sender or f"cloudtrain@{socket.getfqdn()}"
    try:
        message["Subject"] = f"[cloudtrain] {notification.title}"
        message["From"], message["To"] = sender, ", ".join(rule.email)
    except (ValueError, IndexError) as error:
        raise NotSent(f"an address is not valid: {error}", again=False) from None
    message["Date"] = formatdate(notification.time)
    message["Message-ID"] = f"<{hashlib.sha256(notification.key.encode()).hexdigest()[:32]}@cloudtrain>"
    message["X-Cloudtrain-Key"] = notification.key
    message["Auto-Submitted"] = "auto-generated"
    message.set_content("\n".join(notification.lines) + "\n")
    return message


def _send_command(rule: Rule, notification: Notification, environ: Mapping[str, str]) -> None:
    own = {
        "CLOUDTRAIN_NOTIFICATION": notification.event,
        "CLOUDTRAIN_NOTIFICATION_JOB": notification.job,
        "CLOUDTRAIN_NOTIFICATION_TEXT": notification.text,
    }
    program, limit = rule.command[0], MOST_SECONDS - 5
    # files, not pipes, because processes that the command leaves running may keep them open
    with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as errors:
        given.write(notification.payload())
        given.seek(0)
        try:
            process = subprocess.Popen(
                rule.command,
                env={**environ, **own},
                stdin=given,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                start_new_session=True,
            )
        except OSError as error:
            raise NotSent(f"{program} does not start: {error.strerror}", again=False) from None
        try:
            code = process.wait(limit)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                signal_group(process.pid, SIGKILL)
            process.wait()
            raise NotSent(f"{program} has not ended within {limit:.0f} s") from None
        errors.seek(max(0, errors.seek(0, os.SEEK_END) - ANSWER_BYTES))
        words = one_line(errors.read().decode("utf-8", "replace"))
    if code:
        raise NotSent(f"{program} exited with code {code}" + (f": {words}" if words else ""))


_SENDERS: dict[str, Callable[[Rule, Notification, Mapping[str, str]], None]] = {
    "webhook": _send_webhook,
    "slack": _send_slack,
    "email": _send_email,
    "command": _send_command,
}
"""The sender for each kind of rule."""
