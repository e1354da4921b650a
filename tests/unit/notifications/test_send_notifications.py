"""Sends notifications to real servers, also to those that misbehave."""

from __future__ import annotations

import base64
import datetime
import hashlib
import hmac
import ipaddress
import os
import socket
import ssl
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from aiosmtpd.smtp import AuthResult, LoginPassword
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from notification_servers import Receiver, mailbox

from cloudtrain.runtime.notifications import send as sending
from cloudtrain.runtime.notifications.notification import Notification
from cloudtrain.runtime.notifications.rules import Rule
from cloudtrain.runtime.notifications.send import NotSent, send, signature_headers
from cloudtrain.runtime.ports import free_port

ENVIRON = {"TOKEN": "t0ps3cret/" + "x" * 20, "PASSWORD": "pa55" + "w0rd"}


def notification(**fields: Any) -> Notification:
    return Notification.of("train-1/end", "failed", "train-1", "local", 0, 1_800_000_000.0, **fields)


def failing(rule: dict[str, Any], **fields: Any) -> NotSent:
    with pytest.raises(NotSent) as caught:
        send(Rule.from_dict(rule), notification(**fields), ENVIRON)
    assert not any(value in str(caught.value) for value in ENVIRON.values())
    return caught.value


@pytest.mark.parametrize(
    ("status", "again"), [(500, True), (503, True), (429, True), (400, False), (404, False), (410, False)]
)
def test_an_answer_decides_whether_another_try_is_worth_it(status: int, again: bool) -> None:
    answer = b"no\x1b[2J such hook " + b"!" * 9000
    with Receiver([status], {"Retry-After": "7"}, answer).up() as receiver:
        error = failing({"webhook": f"{receiver.url}/$TOKEN"})
    assert error.again == again and str(error).startswith(f"HTTP {status}") and "such hook" in str(error)
    assert error.wait == 7 and len(str(error)) < 1000 and len(receiver.tried) == 1


def test_a_redirect_is_not_followed() -> None:
    with Receiver().up() as other:
        for status in (301, 302, 307, 308):
            with Receiver([status], {"Location": other.url}).up() as receiver:
                error = failing({"slack": f"{receiver.url}/$TOKEN"})
            assert "redirects are not followed" in str(error) and not error.again
    assert other.tried == []


def test_a_signature_is_that_of_standard_webhooks() -> None:
    secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
    # the example of https://github.com/standard-webhooks/standard-webhooks, in its tests of all languages
    headers = signature_headers(secret, "msg_p5jXN8AQM9LWM0D4loKWxJek", b'{"test": 2432232314}', 1614265330.0)
    assert headers["webhook-signature"] == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
    with Receiver().up() as receiver:
        send(Rule.from_dict({"webhook": receiver.url, "secret": "$TOKEN"}), notification(), ENVIRON)
    [post] = receiver.posts
    signed = f"{post.headers['webhook-id']}.{post.headers['webhook-timestamp']}.".encode() + post.body
    digest = hmac.new(ENVIRON["TOKEN"].encode(), signed, hashlib.sha256).digest()
    assert post.headers["webhook-signature"] == f"v1,{base64.b64encode(digest).decode()}"


def test_a_server_that_sends_a_byte_now_and_then_holds_no_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sending, "MOST_SECONDS", 1.0)
    with socket.create_server(("127.0.0.1", 0)) as server:
        ended = threading.Event()

        def drip() -> None:
            connection, _ = server.accept()
            with connection:
                while not ended.wait(0.2):
                    connection.sendall(b"H")

        thread = threading.Thread(target=drip)
        thread.start()
        began = time.monotonic()
        error = failing({"webhook": f"http://127.0.0.1:{server.getsockname()[1]}"})
        assert time.monotonic() - began < 60 and "no answer within 1 s" in str(error) and error.again
        ended.set()
        thread.join()


def test_a_refused_connection_is_tried_again() -> None:
    port = free_port()
    for rule in (
        {"webhook": f"http://127.0.0.1:{port}/$TOKEN"},
        {"email": ["a@b.org"], "smtp": f"127.0.0.1:{port}"},
    ):
        error = failing(rule)
        assert error.again and "refused" in str(error)


def test_a_missing_variable_and_a_bad_url_are_final() -> None:
    assert str(failing({"slack": "$NONE"})) == "the variable NONE is not set"
    assert not failing({"webhook": "$TOKEN"}).again  # it is not a URL


def test_a_command_gets_the_notification_and_may_leave_a_process(tmp_path: Path) -> None:
    path = tmp_path / "got"
    script = 'cat > "$0"; printf %s "$CLOUDTRAIN_NOTIFICATION_TEXT" >> "$0"; sleep 600 & echo $! > "$0.pid"'
    began = time.monotonic()
    send(
        Rule.from_dict({"command": ["/bin/sh", "-c", script, str(path)]}),
        notification(summary="why"),
        os.environ,
    )
    assert time.monotonic() - began < 45
    assert '"event": "failed"' in path.read_text() and "job train-1 failed\nwhy\n" in path.read_text()
    os.kill(int(Path(f"{path}.pid").read_text()), 9)


def test_only_commands_that_exist_are_retried() -> None:
    error = failing(
        {"command": [sys.executable, "-c", "import os, sys; sys.exit('no ' + os.environ['TOKEN'])"]}
    )
    assert error.again and str(error).endswith("exited with code 1: no ***")
    assert not failing({"command": ["/nowhere/notify"]}).again


def certificate(folder: Path) -> tuple[Path, Path]:
    """A certificate of this machine that signs itself, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.timezone.utc)
    alternative = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    signed = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(alternative, critical=False)
        .sign(key, hashes.SHA256())
    )
    (folder / "cert.pem").write_bytes(signed.public_bytes(serialization.Encoding.PEM))
    form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    (folder / "key.pem").write_bytes(key.private_bytes(*form))
    return folder / "cert.pem", folder / "key.pem"


def test_a_password_is_sent_over_verified_tls_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cert, key = certificate(tmp_path)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(cert, key)
    seen: list[LoginPassword] = []

    def check(_server: Any, _session: Any, _envelope: Any, _mechanism: str, data: Any) -> AuthResult:
        seen.append(data)
        return AuthResult(success=data.password == ENVIRON["PASSWORD"].encode())

    port = free_port()
    rule = {
        "email": ["a@example.org", "b@example.org"],
        "smtp": f"127.0.0.1:{port}",
        "sender": "jobs@example.org",
    }
    rule |= {"user": "ann", "password": "$PASSWORD"}
    with mailbox(port):
        assert "offers no TLS" in str(failing(rule))
    with mailbox(
        port, tls_context=context, require_starttls=True, authenticator=check, auth_required=True
    ) as box:
        assert not failing(rule).again and seen == []  # the certificate is not trusted
        monkeypatch.setenv("SSL_CERT_FILE", str(cert))
        send(Rule.from_dict(rule), notification(summary="é\r\nBcc: c@example.org"), ENVIRON)
    [message] = box.messages
    assert len(seen) == 1 and message["To"] == "a@example.org, b@example.org" and message["Bcc"] is None
    assert r"é\r\nBcc" in message.get_content() and message["Message-ID"].endswith("@cloudtrain>")
