"""The folders of a host on its node: its own files on a local disk, and the files that the step reads."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shlex
import shutil
import socket
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from cloudtrain._system.owned import FolderIsOpen, own_place
from cloudtrain._system.safe_open import Beneath
from cloudtrain.contract import Paths
from cloudtrain.errors import PlatformError
from cloudtrain.runtime.start.messages import (
    LARGEST_CONTENT,
    Data,
    Events,
    File,
    Leader,
    Report,
    Warn,
)
from cloudtrain.storage.atomic import replace_file

COPY_SECONDS = 1.0
"""Seconds between two copies of new events into the job's folder."""
LEADER = "leader"
"""The file in a host's own folder with the address of its leader."""


TASK = ("SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_PROCID")
"""The variables that identify a task of Slurm."""


def _tag(job_folder: str) -> str:
    """Part of the name of a local folder, because two clusters may share a disk and both have a job 1."""
    return f"cloudtrain-{hashlib.sha256(os.fsencode(job_folder)).hexdigest()[:12]}"


def local_prefix(job_folder: str, environ: Mapping[str, str] = os.environ) -> str:
    """The beginning of a local folder's name. In a task of Slurm, it contains the job and the task."""
    values = [environ.get(name, "") for name in TASK]
    return f"{_tag(job_folder)}-{'.'.join(values)}-" if all(values) else "cloudtrain-"


def removal_script(job_folder: str, parent: str) -> str:
    """The script that removes the local folder of a task of Slurm whose node program was killed.

    Args:
        job_folder: the folder of the job, as in `local_prefix`.
        parent: see `local_folder`.
    """
    home, rest = ('"$HOME"/', parent[2:]) if parent.startswith("~/") else ("", parent)
    variable = re.compile(r"(\$\w+|\$\{\w+\})")
    parts = [
        f'"{part}"' if variable.fullmatch(part) else shlex.quote(part)
        for part in variable.split(rest)
        if part
    ]
    places = home + "".join(parts) or '"$TMPDIR" "$TEMP" "$TMP" /tmp /var/tmp'  # as Python chooses one
    name = f"{_tag(job_folder)}-" + ".".join(f'"${one}"' for one in TASK)
    return f'#!/bin/sh\nfor place in {places}; do [ "$place" ] && rm -rf -- "$place"/{name}-*; done\nexit 0\n'


@contextlib.contextmanager
def local_folder(parent: str, prefix: str = "cloudtrain-") -> Iterator[Path]:
    """A new folder on a disk of this node, below ``parent`` or the temporary folder, removed at the end.

    Args:
        prefix: see `local_prefix`.

    Raises PlatformError if it cannot be created.
    """
    place = os.path.expanduser(os.path.expandvars(parent))
    unset = re.search(r"\$\{?(\w+)", place)
    hint = "Choose a folder that every node has and you can write to, or leave the option out."
    if unset:
        raise PlatformError(
            f"platform_options.node_folder: the variable {unset[1]} is not set on {socket.gethostname()}",
            hint=hint,
        )
    try:
        place = own_place(place or tempfile.gettempdir(), create=True)
        folder = Path(tempfile.mkdtemp(prefix=prefix, dir=place))
    except FolderIsOpen as error:
        raise PlatformError(
            f"{error} on {socket.gethostname()}; they could run code as you", hint=hint
        ) from None
    except OSError as error:
        raise PlatformError(
            f"{error.filename or place} on {socket.gethostname()} cannot be used: {error.strerror}", hint=hint
        ) from error
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _link_run_folder(base: Path, target: Path) -> None:
    run = base / "run"
    if run.is_symlink():
        run.unlink(missing_ok=True)
    shutil.rmtree(run, ignore_errors=True)
    run.symlink_to(target, target_is_directory=True)


def _unlink_run_folder(base: Path, target: Path) -> None:
    """Remove the link, unless the next attempt has replaced it: a killed job may end after its requeue has started."""
    run = base / "run"
    with contextlib.suppress(OSError):
        if os.readlink(run) == str(target):
            run.unlink()


class HostFolder:
    """The folder of a host in the job's folder, in which the host also works."""

    def __init__(self, shared: Path, local: Path) -> None:
        """Put the runtime's files on this node, because some network file systems lack pipes, sockets or locks."""
        self.base = shared
        self._run = local / "run"
        self._run.mkdir()
        _link_run_folder(shared, self._run)

    def copy(self) -> None:
        """Does nothing: the files are already in the job's folder."""

    def take_leader(self, address: str) -> None:
        """Does nothing: the environment of the runtime already contains the address."""

    def close(self) -> None:
        _unlink_run_folder(self.base, self._run)


class LocalHostFolder(HostFolder):
    """The folder of a host on a disk of its node. The configuration is copied to it; events, logs and reports, back."""

    def __init__(self, shared: Path, local: Path) -> None:
        self.base = local / "base"
        self._shared, self._own = Paths(shared), Paths(self.base)
        self._position = 0
        self._copied_at = 0.0
        self._own.make()
        self._run = self._own.base / "run"
        _link_run_folder(shared, self._run)
        for path in self._shared.input_config.iterdir():
            shutil.copy(path, self._own.input_config)
        self._shared.output.mkdir(parents=True, exist_ok=True)
        for path in (self._shared.input_config / "secret", self._shared.events):
            path.unlink(missing_ok=True)

    def copy(self) -> None:
        """Copy new events, at most once in `COPY_SECONDS`."""
        if time.monotonic() - self._copied_at < COPY_SECONDS:
            return
        self._copied_at = time.monotonic()
        with contextlib.suppress(OSError):  # a full disk; the next call copies the rest
            with Beneath(self.base) as own, own.open(self._own.key(self._own.events)) as events:
                events.seek(self._position)
                data = events.read()
            if data:
                with open(self._shared.events, "ab") as shared:
                    shared.write(data)
                self._position += len(data)

    def close(self) -> None:
        _unlink_run_folder(self._shared.base, self._run)
        self._copied_at = float("-inf")
        self.copy()
        with contextlib.suppress(OSError), Beneath(self.base) as own:
            for path in (self._own.failure, self._own.failure_report, self._own.success):
                with contextlib.suppress(OSError):
                    self._copy_file(own, self._own.key(path))
            logs = self._own.key(self._own.logs)
            with own.inside(logs) as inside:
                keys = [
                    f"{logs}/{found.key}" for found in inside.walk(lambda key, why: None) if found.is_file
                ]
            for key in keys:
                with contextlib.suppress(OSError):
                    self._copy_file(own, key)

    def _copy_file(self, own: Beneath, key: str) -> None:
        """Copy a regular file without following links, because the script may have replaced it."""
        target = self._shared.base / key
        with own.open(key) as file:
            target.parent.mkdir(parents=True, exist_ok=True)
            with open(target, "wb") as copy:
                shutil.copyfileobj(file, copy)


class SentHostFolder(HostFolder):
    """The folder of a host that shares none with the job. It sends events, the report and the outputs to the job.

    Args:
        send: sends frames.
        leads: whether the leader runs on this host.
    """

    def __init__(self, base: Path, send: Callable[[bytes], object], *, leads: bool) -> None:
        self.base = base
        self._paths = Paths(base)
        self._send = send
        self._position = 0
        self._is_announced = not leads

    def copy(self) -> None:
        """Send the leader's address when it is available, and new events."""
        if not self._is_announced:
            with contextlib.suppress(OSError), Beneath(self.base) as own:
                self._send(Leader(own.read(LEADER, LARGEST_CONTENT).decode()).frames(0))
                self._is_announced = True
        key = self._paths.key(self._paths.events)
        with contextlib.suppress(OSError), Beneath(self.base) as own, own.open(key) as events:
            events.seek(self._position)
            for data in iter(lambda: events.read(LARGEST_CONTENT), b""):
                self._position += len(data)
                self._send(Events.of(data).frames(0))

    def take_leader(self, address: str) -> None:
        replace_file(self.base / LEADER, address.encode(), mode=0o600)

    def close(self) -> None:
        """Send the remaining events, and the report."""
        self.copy()
        with contextlib.suppress(OSError), Beneath(self.base) as own:
            report = own.read(self._paths.key(self._paths.failure_report), LARGEST_CONTENT)
            self._send(Report.of(report).frames(0))

    def send_outputs(self, folders: Iterable[str]) -> None:
        """Send every file below ``folders``. A link to a file in this host's folder is sent as that file."""
        with Beneath(self.base) as own:
            for folder in folders:
                try:
                    inside = own.inside(folder)
                except FileNotFoundError:
                    continue
                except OSError:  # the script has replaced it
                    self._leave(folder)
                    continue
                with inside:
                    left: dict[str, str] = {}
                    for found in inside.walk(left.__setitem__):
                        if not found.is_folder:
                            self._send_file(own, f"{folder}/{found.key}")
                    for key in left:
                        self._leave(f"{folder}/{key}")

    def _send_file(self, own: Beneath, key: str) -> None:
        try:
            file = own.open(key, follow=True)
        except OSError:
            self._leave(key)
            return
        with file:
            self._send(File(key, os.fstat(file.fileno()).st_mode & 0o777).frames(0))
            for data in iter(lambda: file.read(LARGEST_CONTENT), b""):
                self._send(Data.of(data).frames(0))

    def _leave(self, key: str) -> None:
        self._send(Warn(f"{key} is not a regular file: it was left on the host").frames(0))


def host_folder(shared: Path, local: Path, *, on_node: bool) -> HostFolder:
    """The folder in which a host works.

    Args:
        shared: the host's folder in the job's folder.
        local: a folder on a disk of this node.
        on_node: whether all of the host's files are in ``local``, and not only those of the runtime itself.
    """
    return (LocalHostFolder if on_node else HostFolder)(shared, local)
