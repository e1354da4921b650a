"""Starts a pod of a job: lays out the contract's folders from what is mounted, and becomes the runtime.

The pod gets this file in a ConfigMap and runs it with the image's Python, 3.9 or newer, before cloudtrain can be
imported. Next to its folder are ``runtime`` and ``secret``. Any user may run it, on a root file system that is
read-only.
"""

from __future__ import annotations

import contextlib
import getpass
import gzip
import hashlib
import hmac
import http.client
import json
import os
import random
import re
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn

assert sys.platform != "win32"  # pods run Linux

MOUNTS = Path(os.path.abspath(__file__)).parent.parent  # not resolve: a ConfigMap's files are links
TERMINATION_LOG = Path(os.environ.get("CLOUDTRAIN_TERMINATION_MESSAGE") or "/dev/termination-log")
STOPPED = int(os.environ.get("CLOUDTRAIN_RESTART_EXIT_CODE") or 143)
"""The exit code of a pod that is deleted before its host has started."""
DOCUMENTS = HYPERPARAMETERS, _, RESOURCES = (
    "hyperparameters.json",
    "inputdataconfig.json",
    "resourceconfig.json",
)
PATIENCE = 600.0
"""In seconds: how long a download is tried again while S3, or the network, is away."""
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 30.0
"""In seconds, between two attempts. A pause is twice as long as the one before."""


class CannotStart(Exception):
    """Why this pod cannot run its host, and what to do."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


def main() -> None:
    # as process 1, it would not be ended by the signal: the kernel discards what nothing handles
    signal.signal(signal.SIGTERM, lambda *_: os._exit(STOPPED))
    # no process that this one starts or becomes has it in its environment: the runtime takes it from a file
    secret = os.environ.pop("CLOUDTRAIN_SECRET", "")
    base = Path(os.environ.get("SAGEMAKER_BASE_DIR") or "/opt/ml")
    own = base / "input" / "data" / "cloudtrain"
    program = own / "cloudtrain.pyz"
    try:
        documents = _documents()
        _write_documents(documents, base / "input" / "config")
        if secret:
            _write(base / "input" / "config" / "secret", secret.encode())
        _deliver(
            MOUNTS / "config" / "sourcedir.tar.gz",
            "source-url",
            base / "input" / "data" / "code" / _source_name(documents[HYPERPARAMETERS]),
        )
        _deliver(MOUNTS / "runtime" / "cloudtrain.pyz.gz", "runtime-url", program)
        _check_runtime(program)
        _provide_boto3(own / "boto3.zip", base / "input" / "boto3")
        _make_home(base)
    except (CannotStart, OSError, ValueError, zipfile.BadZipFile) as error:
        _fail(error)
    for name in ("CLOUDTRAIN_RUNTIME_SHA256", "CLOUDTRAIN_DOCUMENTS_SHA256"):
        os.environ.pop(name, None)
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])  # the runtime takes it from here
    os.execv(sys.executable, [sys.executable, "-S", str(program)])


def current_host(hosts: Sequence[str], environ: Mapping[str, str] = os.environ) -> str:
    """The name of this pod's host: the host name. In the network of its node, a pod has the node's name: its own, with
    or without what the API server has added, or its index, says which host it is."""
    own = socket.gethostname().partition(".")[0]
    pod = environ.get("CLOUDTRAIN_POD", "")
    for name in (own, pod, pod.rpartition("-")[0]):
        if name in hosts:
            return name
    index = environ.get("JOB_COMPLETION_INDEX", "")
    if index.isdigit() and int(index) < len(hosts):
        return hosts[int(index)]
    raise CannotStart(
        "this pod is called {}, which is not a host of the job: {}".format(own, ", ".join(hosts))
    )


def _documents() -> dict[str, bytes]:
    """The mounted documents. Raises CannotStart if the job was not submitted with them."""
    found = {name: (MOUNTS / "config" / name).read_bytes() for name in DOCUMENTS}
    wanted = os.environ.get("CLOUDTRAIN_DOCUMENTS_SHA256")
    if wanted and wanted != hashlib.sha256(b"".join(found.values())).hexdigest():
        raise CannotStart(
            "the job was not submitted with the files of its ConfigMap",
            "A user who may write ConfigMaps has replaced it: see its managedFields.",
        )
    return found


def _source_name(hyperparameters: bytes) -> str:
    """The name of the source archive: the user may have named one."""
    uri = str(json.loads(hyperparameters).get("sagemaker_submit_directory", "")).strip('"')
    return uri.rpartition("/")[2] or "sourcedir.tar.gz"


def _write_documents(documents: Mapping[str, bytes], folder: Path) -> None:
    resources = json.loads(documents[RESOURCES])
    host = current_host(resources["hosts"])
    own = {RESOURCES: json.dumps({"current_host": host, **resources}).encode()}
    for name, data in {**documents, **own}.items():
        _write(folder / name, data)


def _deliver(mounted: Path, url_file: str, target: Path) -> None:
    """Put a mounted file, or what a URL in the Secret leads to, at ``target``. Raises CannotStart."""
    if mounted.exists():
        _write(target, mounted.read_bytes())
        return
    link = MOUNTS / "secret" / url_file
    if not link.exists():
        raise CannotStart(f"neither {mounted} nor {link} is mounted in this pod")
    download(link.read_text(), target)


def download(link: str, target: Path) -> None:
    """Download what ``link`` leads to: a URL, then its ``s3://`` URI and its SHA-256, which may be missing.

    Raises CannotStart, without the URL's signature, if it has not arrived within `PATIENCE` seconds, or never will.
    """
    url, uri, sha256 = (*link.split("\n"), "", "", "")[:3]
    shown = uri or url.partition("?")[0]
    target.parent.mkdir(parents=True, exist_ok=True)
    began, pause, refusal = time.monotonic(), FIRST_PAUSE, ""
    while True:
        try:
            if refusal:
                credentials = own_credentials()
                if credentials is None:
                    _download_with_boto3(shown, uri, target, refusal)
                    return
                found = _fetch(sign(url, credentials), target)
            else:
                found = _fetch(url, target)
            if sha256 in ("", found):
                return
            problem = f"its SHA-256 is {found}, expected {sha256}"
        except _Refused as refused:
            if refusal:
                raise _expired(shown, refusal, f"its own credentials are refused with {refused}") from None
            refusal = str(refused)
            _say(f"{shown}: its URL is refused with {refusal}; tries the credentials of this pod")
            continue
        except (OSError, http.client.HTTPException) as error:
            problem = str(getattr(error, "reason", error)) or type(error).__name__
            if "CERTIFICATE_VERIFY_FAILED" in problem:
                raise CannotStart(f"{shown}: {problem}: name the CA's file in AWS_CA_BUNDLE") from None
        waited = time.monotonic() - began
        if waited + pause > PATIENCE:
            raise CannotStart(f"{shown} cannot be downloaded, after {waited:.0f} s: {problem}")
        _say(f"{shown}: {problem}; tries again in {pause:.0f} s")
        time.sleep(pause * random.uniform(0.5, 1.0))  # all pods of a job ask at the same time
        pause = min(2 * pause, LONGEST_PAUSE)


class _Refused(Exception):
    """The server has answered, and will not answer otherwise."""


def _fetch(url: str, target: Path) -> str:
    """Download once; returns the SHA-256. Raises _Refused, OSError, HTTPException."""
    digest, size = hashlib.sha256(), 0
    if not url.startswith(("http://", "https://")):
        raise _Refused("the Secret holds no valid URL")
    try:
        with _opener().open(url, timeout=60) as answer, target.open("wb") as file:
            for block in iter(lambda: answer.read(1 << 20), b""):
                file.write(block)
                digest.update(block)
                size += len(block)
            length = answer.headers.get("Content-Length")
    except urllib.error.HTTPError as error:
        raise _answered(error) from None
    except ValueError:  # quotes the URL
        raise _Refused("the Secret holds no valid URL") from None
    if length and size != int(length):
        raise OSError(f"the connection broke after {size:,} of {int(length):,} bytes")
    return digest.hexdigest()


def _opener() -> urllib.request.OpenerDirector:
    """With the proxies of the environment."""
    bundle = os.environ.get("AWS_CA_BUNDLE")
    context = ssl.create_default_context(cafile=bundle or None)
    return urllib.request.build_opener(urllib.request.HTTPSHandler(context=context))


def _answered(error: urllib.error.HTTPError) -> Exception:
    """OSError, if the server may answer otherwise later; else _Refused."""
    why = f"{error.code} {_error_code(error) or error.reason}"
    return OSError(why) if error.code >= 500 or error.code in (408, 425, 429) else _Refused(why)


def _error_code(error: urllib.error.HTTPError) -> str:
    """The code in the body of an S3 error, such as ``ExpiredToken``."""
    try:
        code = re.search(rb"<Code>([A-Za-z]{1,60})</Code>", error.read(1 << 12))
        message = b"Request has expired" if code and b"Request has expired" in code.string else b""
    except (OSError, http.client.HTTPException):
        return ""
    return (message or (code[1] if code else b"")).decode()


def own_credentials() -> tuple[str, str, str] | None:
    """The key, the secret and the session token of this pod: from its variables, or for its service account.

    None if it has none there. Raises OSError, HTTPException, or _Refused if the service account may not have them.
    """
    get = os.environ.get
    key, secret = get("AWS_ACCESS_KEY_ID"), get("AWS_SECRET_ACCESS_KEY")
    if key and secret:
        return key, secret, get("AWS_SESSION_TOKEN", "")
    role, token_file = get("AWS_ROLE_ARN"), get("AWS_WEB_IDENTITY_TOKEN_FILE")
    if role and token_file:  # IRSA
        region = get("AWS_REGION") or get("AWS_DEFAULT_REGION") or "us-east-1"
        suffix = ".cn" if region.startswith("cn-") else ""
        values = {
            "Action": "AssumeRoleWithWebIdentity",
            "Version": "2011-06-15",
            "RoleArn": role,
            "RoleSessionName": "cloudtrain",
            "WebIdentityToken": Path(token_file).read_text().strip(),
        }
        url = get("AWS_ENDPOINT_URL_STS") or f"https://sts.{region}.amazonaws.com{suffix}"
        text = _ask(urllib.request.Request(url, urllib.parse.urlencode(values).encode()))
        return _found([re.search(f"<{name}>([^<]+)</", text) for name in _NAMES])
    url, token_file = (
        get(f"AWS_CONTAINER_{name}", "") for name in ("CREDENTIALS_FULL_URI", "AUTHORIZATION_TOKEN_FILE")
    )
    if url:  # Pod Identity
        token = (
            Path(token_file).read_text().strip()
            if token_file
            else get("AWS_CONTAINER_AUTHORIZATION_TOKEN", "")
        )
        text = _ask(urllib.request.Request(url, headers={"Authorization": token} if token else {}))
        return _found([re.search(f'"{name}"\\s*:\\s*"([^"]+)"', text) for name in (*_NAMES[:2], "Token")])
    return None


_NAMES = ("AccessKeyId", "SecretAccessKey", "SessionToken")


def _found(matches: Sequence[re.Match[str] | None]) -> tuple[str, str, str]:
    key, secret, token = (match[1] if match else "" for match in matches)
    if not key or not secret:
        raise _Refused("an answer without credentials")
    return key, secret, token


def _ask(request: urllib.request.Request) -> str:
    """Raises _Refused, OSError, HTTPException."""
    try:
        with _opener().open(request, timeout=30) as answer:
            text: str = answer.read(1 << 20).decode()
            return text
    except urllib.error.HTTPError as error:
        raise _answered(error) from None


def sign(url: str, credentials: tuple[str, str, str]) -> str:
    """The presigned ``url``, signed with other credentials (AWS Signature Version 4)."""
    parts = urllib.parse.urlsplit(url)
    query = dict(urllib.parse.parse_qsl(parts.query))
    key, secret, token = credentials
    moment = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    scope = "/".join([moment[:8], *query.get("X-Amz-Credential", "").split("/")[2:]])
    signed = {
        "X-Amz-Algorithm": "AWS4-HMAC-SHA256",
        "X-Amz-Credential": f"{key}/{scope}",
        "X-Amz-Date": moment,
        "X-Amz-Expires": "3600",
        "X-Amz-SignedHeaders": "host",
        **({"X-Amz-Security-Token": token} if token else {}),
    }
    others = {name: value for name, value in query.items() if not name.startswith("X-Amz-")}
    pairs = urllib.parse.urlencode(
        sorted({**others, **signed}.items()), quote_via=urllib.parse.quote, safe="-_.~"
    )
    request = f"GET\n{parts.path}\n{pairs}\nhost:{parts.netloc}\n\nhost\nUNSIGNED-PAYLOAD"
    digest = hashlib.sha256(request.encode()).hexdigest()
    own = f"AWS4{secret}".encode()
    for part in scope.split("/"):
        own = hmac.new(own, part.encode(), hashlib.sha256).digest()
    text = f"AWS4-HMAC-SHA256\n{moment}\n{scope}\n{digest}"
    signature = hmac.new(own, text.encode(), hashlib.sha256).hexdigest()
    return urllib.parse.urlunsplit(parts._replace(query=f"{pairs}&X-Amz-Signature={signature}"))


_WITH_BOTO3 = """
import sys
try:
    import boto3
except ImportError:
    sys.exit("this image has no boto3")
bucket, _, key = sys.argv[1][5:].partition("/")
try:
    boto3.client("s3").download_file(bucket, key, sys.argv[2])
except Exception as error:
    sys.exit(str(error))
"""


def _download_with_boto3(shown: str, uri: str, target: Path, refusal: str) -> None:
    """boto3 knows more ways to credentials. Raises CannotStart."""
    if not uri.startswith("s3://"):
        raise _expired(shown, refusal, "the Secret does not name its s3:// URI")
    command = [sys.executable, "-c", _WITH_BOTO3, uri, str(target)]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
        problem = process.communicate()[1].decode(errors="replace").strip()
    if process.returncode:
        why = problem.rpartition("\n")[2] or f"exit code {process.returncode}"
        raise _expired(shown, refusal, f"this pod has no credentials in its environment, and {why}")


def _expired(shown: str, refusal: str, why: str) -> CannotStart:
    return CannotStart(
        f"{shown}: its URL is refused with {refusal}, and {why}",
        "A URL is valid for at most 7 days, and no longer than the credentials that signed it. Submit the job again, "
        "with credentials that last longer than it waits in its queue. Or give its pods a service account that may "
        "read this object.",
    )


def _check_runtime(program: Path) -> None:
    """Unpack the runtime, and compare it with the one that the job was rendered for. Raises CannotStart."""
    data = program.read_bytes()
    if data[:2] == b"\x1f\x8b":
        data = gzip.decompress(data)
        _write(program, data)
    wanted, found = os.environ.get("CLOUDTRAIN_RUNTIME_SHA256"), hashlib.sha256(data).hexdigest()
    if wanted and wanted != found:
        raise CannotStart(f"cloudtrain's runtime has SHA-256 {found}, expected {wanted}")


def _provide_boto3(archive: Path, folder: Path) -> None:
    """Unpack boto3 for an image that lacks it, if the job brings it along. Raises CannotStart, BadZipFile."""
    link = MOUNTS / "secret" / "boto3-url"
    if not link.exists() or _has_boto3():
        return
    download(link.read_text(), archive)
    with zipfile.ZipFile(archive) as files:
        files.extractall(folder)
    archive.unlink()
    os.environ["CLOUDTRAIN_BOTO3_FOLDER"] = str(folder)


def _has_boto3() -> bool:
    """Asks another process: this one has been started without the image's packages."""
    question = "import importlib.util, sys; sys.exit(importlib.util.find_spec('boto3') is None)"
    return subprocess.call([sys.executable, "-c", question], stdin=subprocess.DEVNULL) == 0


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(str(path), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)


def _say(text: str) -> None:
    sys.stderr.write(f"cloudtrain: {text}\n")


def _make_home(base: Path) -> None:
    """A user that the image does not know has no home, name and shell, and may not write /tmp: libraries, and mpirun,
    ask for them."""
    with contextlib.suppress(FileNotFoundError):
        tempfile.gettempdir()
    if not tempfile.tempdir or tempfile.tempdir == os.getcwd():  # /tmp cannot be written
        os.environ["TMPDIR"] = tempfile.tempdir = str(base / "tmp")
        os.makedirs(tempfile.tempdir, exist_ok=True)
    home = os.environ.get("HOME", "")
    if not home or home == "/" or not os.access(home, os.W_OK):
        os.environ["HOME"] = tempfile.gettempdir()
    try:
        getpass.getuser()
    except (ImportError, KeyError, OSError):
        os.environ.setdefault("SHELL", "/bin/sh")
        os.environ.setdefault("USER", "cloudtrain")
        os.environ.setdefault("LOGNAME", "cloudtrain")


def _fail(error: Exception) -> NoReturn:
    """End this pod, with a termination message in the form of `cloudtrain.contract.ending`."""
    message, hint = f"the pod cannot start: {error}", getattr(error, "hint", "")
    _say(f"{message}\n{hint}".strip())
    report = {"failure_class": "platform", "message": message[:2000], "hint": hint, "phase": "start"}
    report.update(host=socket.gethostname().partition(".")[0], time=round(time.time(), 3))
    with contextlib.suppress(OSError):
        TERMINATION_LOG.write_text(json.dumps({"status": "Failed", "failure": report}))
    sys.exit(1)


if __name__ == "__main__":
    main()
