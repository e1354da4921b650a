"""The folder of cloudtrain on a cluster, and the shell there."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from cloudtrain._dataclass import dataclass
from cloudtrain._system.files import READ_REGULAR, open_regular
from cloudtrain._system.owned import FolderIsOpen, own_folder, own_place
from cloudtrain._system.users import ROOT, user_id
from cloudtrain.errors import InvalidJob, PlatformError
from cloudtrain.platforms.batch.remote_path import check_path, uri_path
from cloudtrain.platforms.batch.remote_root import RemoteRoot
from cloudtrain.platforms.batch.shell import LocalShell, Shell
from cloudtrain.platforms.batch.ssh import SshShell
from cloudtrain.platforms.supervised.client_environ import client_environ
from cloudtrain.platforms.supervised.root import JobRoot, LocalRoot
from cloudtrain.runtime.digest import sha256_of_open
from cloudtrain.runtime.outer_variables import without_outer_allocation
from cloudtrain.storage import state_home
from cloudtrain.storage.atomic import replace_file


class BatchRoot(JobRoot, Protocol):
    """A `JobRoot` on a cluster, which also holds what several jobs share."""

    def write_private(self, path: str, data: bytes) -> None:
        """Write a file that no one but its owner can read, not even while it is written."""

    def provide(self, path: str, content: Callable[[], bytes]) -> None:
        """Write a file whose name contains a hash of its content, unless it exists.

        Args:
            path: absolute, on the cluster.
            content: called only if the file does not exist.
        """


class LocalBatchRoot(LocalRoot):
    """The job folders of a cluster whose file system this machine shares."""

    def create(self, job_name: str) -> str:
        self._make_own(self.path)
        return super().create(job_name)

    def write_private(self, path: str, data: bytes) -> None:
        replace_file(self.path / path, data, mode=0o600)

    def provide(self, path: str, content: Callable[[], bytes]) -> None:
        file = Path(path)
        self._make_own(file.parent)
        if _sha256(file) != file.parent.name:
            replace_file(file, content(), mode=0o600)

    def _make_own(self, folder: Path) -> None:
        """Create a folder inside the cluster's. No other user may write to it, because it holds the code of all jobs.

        Raises PlatformError if another user owns it, or could replace it.
        """
        top = self.path.parents[1]
        try:
            own_place(top, create=True)
            for part in (*reversed(folder.relative_to(top).parents[:-1]), folder.relative_to(top)):
                own_folder(top / part, create=True)
        except FolderIsOpen as error:
            raise open_folder_error(error) from None


def open_folder_error(error: FolderIsOpen) -> PlatformError:
    return PlatformError(
        f"{error}; they could run code as you",
        hint=f"{error.hint} platform_options.folder names it.",
    )


def _sha256(file: Path) -> str:
    """The hash of a regular file that this user or root owns; empty if there is none."""
    with contextlib.suppress(OSError), open(open_regular(file, READ_REGULAR), "rb") as content:
        if os.fstat(content.fileno()).st_uid in (user_id(), ROOT):
            return sha256_of_open(content)
    return ""


@dataclass(frozen=True)
class Cluster:
    """Where jobs are submitted and where they live."""

    shell: Shell
    root: BatchRoot
    folder: str
    """Absolute, as the nodes see it. It contains ``jobs/<platform>/``, ``runtime/`` and ``sources/``."""
    login: str = ""
    left_out: Sequence[str] = ()
    """The variables of an outer job, which are removed from the environment of the commands of `shell`."""

    def job_folder(self, job_name: str) -> str:
        return f"{uri_path(self.root.uri)}/{job_name}"

    def runtime_file(self, sha256: str) -> str:
        return f"{self.folder}/runtime/{sha256}/cloudtrain.pyz"

    def source_file(self, sha256: str) -> str:
        return f"{self.folder}/sources/{sha256}/sourcedir.tar.gz"


REMOTE_FOLDER = "$HOME/.local/state/cloudtrain"
"""The default folder on a cluster that is reached through a login node."""


def open_cluster(platform: str, login: str, folder: str | None, command: str) -> Cluster:
    """The cluster behind the login node ``login``, or that of this machine.

    Args:
        command: a command of the scheduler, which must be found on the login node.

    Raises InvalidJob if the folder is not valid, PlatformError if the login node does not answer.
    """
    if not login:
        return local_cluster(platform, folder)
    folder = folder or REMOTE_FOLDER
    check_path(folder, "platform_options.folder")
    below = f"/jobs/{platform}"
    root = RemoteRoot(SshShell(login, needs=command), folder.rstrip("/") + below)
    return Cluster(root.shell, root, root.path.removesuffix(below), login)


def local_cluster(platform: str, folder: str | None) -> Cluster:
    """The cluster whose scheduler commands are on this machine. ``folder`` is on a file system that all nodes share.

    Raises InvalidJob if the folder names a variable that is not set.
    """
    environ, left_out = without_outer_allocation(client_environ())
    path = expand_folder(folder) if folder else str(state_home())
    return Cluster(
        LocalShell(environ), LocalBatchRoot(platform, Path(path, "jobs", platform)), path, left_out=left_out
    )


def expand_folder(folder: str) -> str:
    """``folder`` as an absolute path, with the variables of this machine. Raises InvalidJob."""
    path = os.path.expanduser(os.path.expandvars(folder))
    missing = re.search(r"\$\{?(\w+)", path)
    if missing:
        raise InvalidJob(
            f"platform_options.folder: the variable {missing[1]} is not set here",
            hint="Write the path itself: a folder that all nodes of the cluster share.",
        )
    return os.path.abspath(path)
