"""S3 as a folder whose files are read on demand: a read-only FUSE mount by rclone."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from cloudtrain._system.mounts import MOUNTS, read_mounts
from cloudtrain._system.users import ROOT, user_id
from cloudtrain.errors import StorageError
from cloudtrain.storage import mount_guard
from cloudtrain.storage.client import connection
from cloudtrain.storage.uri import split_bucket_uri

MOUNT_SECONDS = 30.0
"""How long the client has to mount."""
STOP_SECONDS = 10.0
POLL_SECONDS = 0.02

FUSE = Path("/dev/fuse")
FUSE_SETTINGS = Path("/etc/fuse.conf")
USERS = Path("/proc/self/uid_map")

_PASSED_ON = (
    "PATH",
    "HOME",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
    "http_proxy",
    "https_proxy",
    "no_proxy",
)
"""Variables for the client, in addition to those of AWS. rclone's own are left out: they would change what it does."""


def why_no_mounts(*, for_others: bool = False) -> str:
    """Why this machine cannot mount S3; empty if it can, as far as is known without trying.

    Args:
        for_others: other users, such as the user of a container, must be able to read the mount.
    """
    if not FUSE.exists() or not os.access(FUSE, os.R_OK | os.W_OK):
        return f"this machine has no {FUSE}"
    for programs, package in ((("rclone",), "rclone"), (("fusermount3", "fusermount"), "fuse3")):
        if not any(map(shutil.which, programs)):
            return f"{programs[0]} is not installed (apt-get install {package})"
    if user_id() != ROOT and not _can_become_root():
        return "fusermount has no effect in a user namespace (see platform_options.mount_opt_ml)"
    if for_others and user_id() != ROOT and not _users_may_share():
        return f"user_allow_other is not set in {FUSE_SETTINGS}"
    return ""


class S3Mount:
    """The objects below ``uri`` as files in ``folder``, read-only, from `start` to `stop`.

    The mount also ends with this process, however the process ends. Credentials and settings are those of this process;
    the client gets them in its environment. Credentials that expire are found and renewed by the client itself.

    Args:
        for_others: other users may read it.
    """

    def __init__(self, uri: str, folder: Path, *, for_others: bool = False) -> None:
        self._uri = uri
        self._folder = folder
        self._for_others = for_others
        self._guard: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Mount, unless it is mounted, and wait until it is ready. After a StorageError, nothing is left mounted."""
        if self._guard and self._guard.poll() is None:
            return
        if self._folder in mounts_below(self._folder):
            mount_guard.unmount(str(self._folder))  # left by an attempt that was killed
        self._folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile() as log:
            self._guard = subprocess.Popen(
                [sys.executable, "-I", mount_guard.__file__, str(self._folder), *self._command()],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                env=self._environment(),
                cwd="/",
                start_new_session=True,  # a signal to the group of this process does not end it
            )
            try:
                self._wait(log)
            except BaseException:
                self.stop()
                raise

    def stop(self) -> None:
        """Unmount. Does nothing if it is not mounted."""
        if self._guard is None or self._guard.stdin is None:
            return
        self._guard.stdin.close()
        try:
            self._guard.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._guard.kill()
            self._guard.wait()
        self._guard = None
        if self._folder in mounts_below(self._folder):  # the guard was killed
            mount_guard.unmount(str(self._folder))

    def _wait(self, log: Any) -> None:
        assert self._guard
        end = time.monotonic() + MOUNT_SECONDS
        while self._folder not in mounts_below(self._folder):
            if self._guard.poll() is not None or time.monotonic() > end:
                log.seek(0)
                lines = log.read().decode(errors="backslashreplace").strip().splitlines()
                raise StorageError(f"{self._uri} cannot be mounted: {lines[-1] if lines else 'no answer'}")
            time.sleep(POLL_SECONDS)
        try:
            with os.scandir(self._folder) as files:
                next(files, None)
        except OSError as error:
            raise StorageError(f"{self._uri} cannot be read where it is mounted: {error.strerror}") from error

    def _command(self) -> list[str]:
        bucket, prefix = split_bucket_uri(self._uri)
        return [
            *("rclone", "mount", f":s3:{bucket}/{prefix}", str(self._folder)),
            *("--config", "", "--log-level", "ERROR", "--read-only"),
            # no copy on this disk; one request for the names of a folder, and none for the times of its files
            *(
                "--vfs-cache-mode",
                "off",
                "--use-server-modtime",
                "--dir-cache-time",
                "24h",
                "--poll-interval",
                "0",
            ),
            *(["--allow-other"] if self._for_others else []),
        ]

    def _environment(self) -> dict[str, str]:
        from boto3 import Session
        from botocore.credentials import RefreshableCredentials

        connected = connection()
        client = connected.client
        environment = {
            name: value for name, value in os.environ.items() if name in _PASSED_ON or name.startswith("AWS_")
        }
        if authorities := environment.pop("AWS_CA_BUNDLE", ""):
            environment["RCLONE_CA_CERT"] = authorities  # rclone refuses AWS's variable
        environment["AWS_SDK_LOAD_CONFIG"] = "1"  # makes rclone read ~/.aws/config, as boto3 does
        environment["RCLONE_S3_ENV_AUTH"] = "true"
        environment["RCLONE_S3_PROVIDER"] = "AWS" if connected.is_aws else "Other"
        environment["RCLONE_S3_REGION"] = client.meta.region_name or ""
        if not connected.is_aws:
            environment["RCLONE_S3_ENDPOINT"] = client.meta.endpoint_url
        credentials = Session().get_credentials()
        if credentials and not isinstance(credentials, RefreshableCredentials):
            frozen = credentials.get_frozen_credentials()
            values = {
                "AWS_ACCESS_KEY_ID": frozen.access_key,
                "AWS_SECRET_ACCESS_KEY": frozen.secret_key,
                "AWS_SESSION_TOKEN": frozen.token,
            }
            environment.update({name: value for name, value in values.items() if value})
        return environment


def mounts_below(folder: Path, table: Path = MOUNTS) -> list[Path]:
    """The FUSE mounts at or below ``folder``, also those whose client is gone.

    Args:
        table: ``/proc/<pid>/mountinfo`` of the process whose mounts are returned.
    """
    top = os.path.abspath(folder)
    return [
        Path(point)
        for point, kind in read_mounts(table)
        if kind.startswith("fuse") and (point == top or point.startswith(top.rstrip("/") + "/"))
    ]


def unmount(folder: Path) -> None:
    """Detach a FUSE mount. Raises StorageError if it stays."""
    mount_guard.unmount(str(folder))
    if folder in mounts_below(folder):
        raise StorageError(f"{folder} cannot be unmounted", hint=f"Run as root: umount --lazy {folder}")


def _can_become_root() -> bool:
    """Whether setuid programs work: the namespace that gives an ordinary user's job its ``/opt/ml`` has no root."""
    try:
        return any(line.split()[0] == "0" for line in USERS.read_text().splitlines())
    except OSError:  # another system
        return True


def _users_may_share() -> bool:
    try:
        lines = FUSE_SETTINGS.read_text(errors="replace").splitlines()
    except OSError:
        return False
    return "user_allow_other" in (line.strip() for line in lines)
