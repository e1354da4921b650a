"""The files of a job that are sent to its hosts through ssh, and those that the hosts send back."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from cloudtrain.contract import Paths, Settings
from cloudtrain.errors import PlatformError
from cloudtrain.platforms.common.bundled_runtime import SOURCE_CHANNEL
from cloudtrain.platforms.hosts.connection import Connection
from cloudtrain.runtime.output import write_all
from cloudtrain.runtime.start.messages import (
    LARGEST_CONTENT,
    Data,
    Facts,
    File,
    Folder,
    Message,
    Runtime,
    fingerprint,
)
from cloudtrain.storage import open_store, split_uri, uri_scheme, uri_to_path
from cloudtrain.storage.uri import is_valid_key

MOST_SENT = 2 << 30
"""The largest size in bytes of the channels that are sent to a host."""
SENT = "sent"
"""The folder of sent channels, below the host's own folder."""
CHECKPOINTS = "sent-checkpoints"
"""The folder of the checkpoints, if the host does not see that of this machine."""
BACK = ("model/", "output/data/", "output/logs/", f"{CHECKPOINTS}/")
"""The folders of files that a host may send back."""
MOST_WAITING = 32
"""How many messages may wait to be sent before the files are not read any further."""


@dataclass(frozen=True)
class Inputs:
    """The inputs of one host: folders and files to send, by their paths on the host, and the URIs for its runtime."""

    send: Mapping[str, Path]
    channels: tuple[tuple[str, str], ...]
    """URIs, in which ``{base}`` is the host's own folder."""
    checkpoint_uri: str

    @property
    def sends_checkpoints(self) -> bool:
        """Whether the host has its own folder for checkpoints, because it does not see this machine's."""
        return CHECKPOINTS in self.checkpoint_uri


def local_paths(settings: Settings) -> list[str]:
    """The paths of channels and checkpoints that are files on this machine."""
    uris = [uri for _, uri in settings.channels] + [settings.checkpoint_uri]
    return [str(uri_to_path(uri)) for uri in uris if uri and uri_scheme(uri) == "file"]


def plan_inputs(settings: Settings, facts: Facts, folder: str, archive: Path | None) -> Inputs:
    """The inputs of a host with these ``facts``.

    Args:
        folder: the shared folder, below which the host sees all files.
        archive: the packed source.
    """
    send = {f"input/data/{SOURCE_CHANNEL}/{archive.name}": archive} if archive else {}
    channels = []
    for name, uri in settings.channels:
        if uri_scheme(uri) == "file" and not _is_in_place(uri_to_path(uri), facts, folder):
            path = uri_to_path(uri)
            target = f"{SENT}/{name}" if path.is_dir() else f"{SENT}/{name}/{path.name}"
            send[target] = path
            channels.append((name, f"file://{{base}}/{target}"))
        else:
            channels.append((name, uri))
    checkpoints = settings.checkpoint_uri
    if uri_scheme(checkpoints) == "file":
        path = uri_to_path(checkpoints)
        if not _is_in_place(path, facts, folder):
            checkpoints = f"file://{{base}}/{CHECKPOINTS}"
            if path.is_dir():
                send[CHECKPOINTS] = path
    return Inputs(send, tuple(channels), checkpoints)


def check_size(settings: Settings, facts: Facts, host: str, folder: str) -> None:
    """Raises PlatformError if a channel is too large to be sent to ``host``."""
    total = 0
    for name, uri in settings.channels:
        if uri_scheme(uri) != "file" or _is_in_place(uri_to_path(uri), facts, folder):
            continue
        path = uri_to_path(uri)
        total += sum(os.path.getsize(file) for _, file in _files("", path) if os.path.exists(file))
        if total > MOST_SENT:
            raise PlatformError(
                f"channel {name!r}: {path} has more than {MOST_SENT >> 30} GiB, too much to send to {host}, which does "
                "not see it",
                hint="Put it into a folder that all hosts share, and set platform_options.folder; or into S3.",
            )


def _is_in_place(path: Path, facts: Facts, folder: str) -> bool:
    """Whether a host sees the same file or folder at ``path`` as this machine."""
    shared = bool(folder) and (path == Path(folder) or Path(folder) in path.parents)
    there = facts.fingerprints.get(str(path))
    return shared or (bool(there) and there == fingerprint(str(path)))


def send_runtime(connection: Connection, archive: Path) -> None:
    """Send the bundled runtime."""
    connection.send(Runtime())
    with archive.open("rb") as file:
        for message in _parts(file):
            connection.send(message)


def _parts(file: BinaryIO) -> Iterator[Message]:
    return map(Data.of, iter(lambda: file.read(LARGEST_CONTENT), b""))


def send_files(
    connection: Connection, send: Mapping[str, Path], folder: Folder, is_over: Callable[[], bool]
) -> None:
    """Send files and folders. Ends early if ``is_over``.

    Args:
        send: the files and folders to send, by their paths on the host.
        folder: the host's own folder.
    """
    connection.send(folder)
    for target, source in send.items():
        for key, path in _files(target, source):
            with open(path, "rb") as file:
                mode = 0o600 if key.endswith("/secret") else os.fstat(file.fileno()).st_mode & 0o777 | 0o600
                connection.send(File(key, mode))
                for message in _parts(file):
                    while connection.waiting > MOST_WAITING:
                        if is_over():
                            return
                        time.sleep(0.01)
                    connection.send(message)


def _files(target: str, source: Path) -> Iterator[tuple[str, str]]:
    """The files of ``source``, a file or a folder, each with its path on the host. Links are followed, except to
    a folder that contains them."""
    if not source.is_dir():
        yield target, str(source)
        return
    above: dict[str, frozenset[tuple[int, int]]] = {os.fspath(source): frozenset()}
    for parent, folders, names in os.walk(source, followlinks=True):
        own = above.pop(parent) | {_identity(parent)}
        folders[:] = sorted(name for name in folders if _identity(os.path.join(parent, name)) not in own)
        above.update((os.path.join(parent, name), own) for name in folders)
        for name in sorted(names):
            path = os.path.join(parent, name)
            if os.path.isfile(path):
                yield f"{target}/{Path(path).relative_to(source).as_posix()}", path


def _identity(path: str) -> tuple[int, int]:
    status = os.stat(path)
    return status.st_dev, status.st_ino


def fetch_archive(uri: str, folder: Path) -> Path:
    """The source's archive as a file on this machine. Raises StorageError."""
    if uri_scheme(uri) == "file":
        return uri_to_path(uri)
    parent, name = split_uri(uri)
    path = folder / "source" / name
    if not path.exists():
        path.parent.mkdir(exist_ok=True)
        open_store(parent).download(name, path)
    return path


class Arrivals:
    """Writes the files that a host sends back into its folder on this machine, to which only the supervisor writes.

    Args:
        checkpoints: the folder of the job's checkpoints.
    """

    def __init__(self, paths: Paths, checkpoints: Path | None) -> None:
        self._paths = paths
        self._checkpoints = checkpoints
        self._file: int | None = None

    def begin(self, file: File) -> None:
        """Begin the next file. Raises OSError, or ValueError if the host may not send it."""
        self.close()
        key = file.path
        if not is_valid_key(key) or not key.startswith(BACK):  # as on this machine, names need not be UTF-8
            raise ValueError(f"a host sent {key[:100]!r}")
        path = self._paths.base / key
        if key.startswith(f"{CHECKPOINTS}/"):
            if self._checkpoints is None:
                raise ValueError(f"a host sent {key[:100]!r}")
            path = self._checkpoints / key.partition("/")[2]
        path.parent.mkdir(parents=True, exist_ok=True)
        mode = file.mode & 0o755 | 0o600
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | getattr(os, "O_NOFOLLOW", 0), mode)

    def add(self, data: bytes) -> None:
        if self._file is not None:
            write_all(self._file, data)

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None
