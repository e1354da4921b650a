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
import urllib.request
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn

MOUNTS = Path(os.path.abspath(__file__)).parent.parent  # not resolve: a ConfigMap's files are links
TERMINATION_LOG = Path(os.environ.get("CLOUDTRAIN_TERMINATION_MESSAGE") or "/dev/termination-log")
STOPPED = int(os.environ.get("CLOUDTRAIN_RESTART_EXIT_CODE") or 143)
"""The exit code of a pod that is deleted before its host has started."""
DOCUMENTS = ("hyperparameters.json", "inputdataconfig.json")
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
    base = Path(os.environ.get("SAGEMAKER_BASE_DIR") or "/opt/ml")
    own = base / "input" / "data" / "cloudtrain"
    program = own / "cloudtrain.pyz"
    try:
        _write_documents(base / "input" / "config")
        _deliver(
            MOUNTS / "config" / "sourcedir.tar.gz",
            "source-url",
            base / "input" / "data" / "code" / _source_name(),
        )
        _deliver(MOUNTS / "runtime" / "cloudtrain.pyz.gz", "runtime-url", program)
        _check_runtime(program)
        _provide_boto3(own / "boto3.zip", base / "input" / "boto3")
        _make_home()
    except (CannotStart, OSError, ValueError, zipfile.BadZipFile) as error:
        _fail(error)
    os.environ.pop("CLOUDTRAIN_RUNTIME_SHA256", None)
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])  # the runtime takes it from here
    os.execv(sys.executable, [sys.executable, "-S", str(program)])


def current_host(hosts: Sequence[str], environ: Mapping[str, str] = os.environ) -> str:
    """The name of this pod's host: the host name, or that of the index where pods have the names of their nodes."""
    own = socket.gethostname().partition(".")[0]
    if own in hosts:
        return own
    index = environ.get("JOB_COMPLETION_INDEX", "")
    if index.isdigit() and int(index) < len(hosts):
        return hosts[int(index)]
    raise CannotStart(
        "this pod is called {}, which is not a host of the job: {}".format(own, ", ".join(hosts))
    )


def _source_name() -> str:
    """The name of the source archive: the user may have named one."""
    values = json.loads((MOUNTS / "config" / "hyperparameters.json").read_bytes())
    uri = str(values.get("sagemaker_submit_directory", "")).strip('"')
    return uri.rpartition("/")[2] or "sourcedir.tar.gz"


def _write_documents(folder: Path) -> None:
    for name in DOCUMENTS:
        _write(folder / name, (MOUNTS / "config" / name).read_bytes())
    resources = json.loads((MOUNTS / "config" / "resourceconfig.json").read_bytes())
    host = current_host(resources["hosts"])
    _write(folder / "resourceconfig.json", json.dumps({"current_host": host, **resources}).encode())
    secret = MOUNTS / "secret" / "job-secret"
    if secret.exists():
        _write(folder / "secret", secret.read_bytes())


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
    began, pause = time.monotonic(), FIRST_PAUSE
    while True:
        try:
            found = _fetch(url, target)
            if sha256 in ("", found):
                return
            problem = f"its SHA-256 is {found}, expected {sha256}"
        except _Refused as refused:
            _download_with_own_credentials(shown, uri, target, str(refused))
            return
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
    bundle = os.environ.get("AWS_CA_BUNDLE")
    handler = urllib.request.HTTPSHandler(context=ssl.create_default_context(cafile=bundle or None))
    opener = urllib.request.build_opener(handler)  # with the proxies of the environment
    digest, size = hashlib.sha256(), 0
    if not url.startswith(("http://", "https://")):
        raise _Refused("the Secret holds no valid URL")
    try:
        with opener.open(url, timeout=60) as answer, target.open("wb") as file:
            for block in iter(lambda: answer.read(1 << 20), b""):
                file.write(block)
                digest.update(block)
                size += len(block)
            length = answer.headers.get("Content-Length")
    except urllib.error.HTTPError as error:
        why = f"{error.code} {_error_code(error) or error.reason}"
        if error.code >= 500 or error.code in (408, 425, 429):
            raise OSError(why) from None
        raise _Refused(why) from None
    except ValueError:  # quotes the URL
        raise _Refused("the Secret holds no valid URL") from None
    if length and size != int(length):
        raise OSError(f"the connection broke after {size:,} of {int(length):,} bytes")
    return digest.hexdigest()


def _error_code(error: urllib.error.HTTPError) -> str:
    """The code in the body of an S3 error, such as ``ExpiredToken``."""
    try:
        code = re.search(rb"<Code>([A-Za-z]{1,60})</Code>", error.read(1 << 12))
        message = b"Request has expired" if code and b"Request has expired" in code.string else b""
    except (OSError, http.client.HTTPException):
        return ""
    return (message or (code[1] if code else b"")).decode()


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


def _download_with_own_credentials(shown: str, uri: str, target: Path, refused: str) -> None:
    """The URL has expired, for example while the job waited in a queue: the pod may have a role. Raises CannotStart."""
    why = "the Secret does not name its s3:// URI"
    if uri.startswith("s3://"):
        command = [sys.executable, "-c", _WITH_BOTO3, uri, str(target)]
        with subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
            problem = process.communicate()[1].decode(errors="replace").strip()
        if process.returncode == 0:
            _say(
                f"{shown} was downloaded with the credentials of this pod: its URL is refused with {refused}"
            )
            return
        why = problem.rpartition("\n")[2] or f"exit code {process.returncode}"
    raise CannotStart(
        f"{shown}: its URL is refused with {refused}, and this pod cannot download it otherwise: {why}",
        "A URL is valid for at most 7 days, and no longer than the credentials that signed it. Submit the job again, "
        "with credentials that last longer than it waits in its queue. Or give its pods a service account with access "
        "to S3, and boto3 in their image.",
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


def _make_home() -> None:
    """A user that the image does not know has no home, name and shell: libraries, and mpirun, ask for them."""
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
