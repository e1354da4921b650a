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
import json
import os
import socket
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn

MOUNTS = Path(os.path.abspath(__file__)).parent.parent  # not resolve: a ConfigMap's files are links
TERMINATION_LOG = Path("/dev/termination-log")
DOCUMENTS = ("hyperparameters.json", "inputdataconfig.json")
ATTEMPTS = 6


class CannotStart(Exception):
    """Why this pod cannot run its host."""


def main() -> None:
    base = Path(os.environ.get("SAGEMAKER_BASE_DIR") or "/opt/ml")
    try:
        _write_documents(base / "input" / "config")
        source = _deliver(MOUNTS / "config" / "sourcedir.tar.gz", "source-url")
        runtime = _deliver(MOUNTS / "runtime" / "cloudtrain.pyz.gz", "runtime-url")
        _write(base / "input" / "data" / "code" / "sourcedir.tar.gz", source)
        program = base / "input" / "data" / "cloudtrain" / "cloudtrain.pyz"
        _write(program, _checked_runtime(runtime))
        _make_home()
    except (CannotStart, OSError, ValueError) as error:
        _fail(str(error))
    os.environ.pop("CLOUDTRAIN_RUNTIME_SHA256", None)
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


def _write_documents(folder: Path) -> None:
    for name in DOCUMENTS:
        _write(folder / name, (MOUNTS / "config" / name).read_bytes())
    resources = json.loads((MOUNTS / "config" / "resourceconfig.json").read_bytes())
    host = current_host(resources["hosts"])
    _write(folder / "resourceconfig.json", json.dumps({"current_host": host, **resources}).encode())
    secret = MOUNTS / "secret" / "job-secret"
    if secret.exists():
        _write(folder / "secret", secret.read_bytes())


def _deliver(mounted: Path, url_file: str) -> bytes:
    """The bytes of a mounted file, or of what a URL in the Secret leads to."""
    if mounted.exists():
        return mounted.read_bytes()
    link = MOUNTS / "secret" / url_file
    if not link.exists():
        raise CannotStart(f"neither {mounted} nor {link} is mounted in this pod")
    return download(link.read_text().strip())


def download(url: str) -> bytes:
    """Raises CannotStart, without the URL's signature, if it does not answer for a minute."""
    shown, problem = url.partition("?")[0], ""
    for attempt in range(ATTEMPTS):
        try:
            with urllib.request.urlopen(url, timeout=60) as answer:
                data: bytes = answer.read()
                return data
        except urllib.error.HTTPError as error:
            if error.code < 500 and error.code != 429:
                hint = (
                    "; URLs are valid for a limited time: submit the job again" if error.code == 403 else ""
                )
                raise CannotStart(f"{shown} answers {error.code} {error.reason}{hint}") from None
            problem = f"{error.code} {error.reason}"
        except (OSError, EOFError) as error:
            problem = str(getattr(error, "reason", error))
        _say(f"{shown}: {problem}")
        if attempt < ATTEMPTS - 1:
            time.sleep(2**attempt)
    raise CannotStart(f"{shown} cannot be downloaded: {problem}")


def _checked_runtime(data: bytes) -> bytes:
    if data[:2] == b"\x1f\x8b":
        data = gzip.decompress(data)
    wanted, found = os.environ.get("CLOUDTRAIN_RUNTIME_SHA256"), hashlib.sha256(data).hexdigest()
    if wanted and wanted != found:
        raise CannotStart(f"cloudtrain's runtime has SHA-256 {found}, expected {wanted}")
    return data


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(str(path), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)


def _say(text: str) -> None:
    sys.stderr.write(f"cloudtrain: {text}\n")


def _make_home() -> None:
    """A user that the image does not know has no home and no name: libraries ask for both."""
    home = os.environ.get("HOME", "")
    if not home or home == "/" or not os.access(home, os.W_OK):
        os.environ["HOME"] = tempfile.gettempdir()
    try:
        getpass.getuser()
    except (ImportError, KeyError, OSError):
        os.environ.setdefault("USER", "cloudtrain")
        os.environ.setdefault("LOGNAME", "cloudtrain")


def _fail(message: str) -> NoReturn:
    text = f"the pod cannot start: {message}"
    _say(text)
    with contextlib.suppress(OSError):
        TERMINATION_LOG.write_text(f"cloudtrain: {text}")
    sys.exit(1)


if __name__ == "__main__":
    main()
