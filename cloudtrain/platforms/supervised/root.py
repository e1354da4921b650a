"""The folder of all jobs of a platform, local or remote."""

from __future__ import annotations

import contextlib
import errno
import os
import time
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

from cloudtrain._dataclass import dataclass
from cloudtrain._system.files import NOT_A_FILE, READ_REGULAR, open_regular, read_regular
from cloudtrain._system.retries import again, is_transient
from cloudtrain.contract.request_body import parse_body
from cloudtrain.errors import PlatformError
from cloudtrain.runtime.supervisor.folder import (
    READ_SIZE,
    REQUEST,
    STOP_MARK,
    JobFolder,
    folders_with_record,
    jobs_home,
)
from cloudtrain.runtime.supervisor.record import (
    LARGEST,
    RECORD,
    JobRecord,
    damaged_request,
    read_record,
    unreadable,
)
from cloudtrain.storage.atomic import discard, publish, replace_file, temporary_name
from cloudtrain.storage.disk_reserve import Reserve

POLL_SECONDS = 0.1

LONGEST_LINE = 1 << 20
"""Bytes after which an unfinished line is returned anyway."""


def follow_lines(read: Callable[[int], bytes], while_: Callable[[], bool] | None = None) -> Iterator[str]:
    """The lines of a file, including those that are appended while ``while_()`` is true.

    An incomplete last line is returned at the end.

    Args:
        read: returns some bytes from a position; nothing at the end of the file.
    """
    rest = b""
    position = 0
    last_look = while_ is None
    while True:
        # check before reading: everything written before the check is seen
        last_look = last_look or (while_ is not None and not while_())
        data = read(position)
        while data:
            position += len(data)
            *lines, rest = (rest + data).split(b"\n")
            if len(rest) > LONGEST_LINE:
                lines, rest = [*lines, rest], b""
            yield from (line.decode("utf-8", "backslashreplace") for line in lines)
            data = read(position)
        if last_look:
            break
        time.sleep(POLL_SECONDS)
    if rest:
        yield rest.decode("utf-8", "backslashreplace")


class JobRoot(Protocol):
    """The folders of a platform's jobs: on this machine, or behind a connection.

    A path is relative to the root, with slashes: ``<job>/state.json``. Every method may raise PlatformError if the
    root cannot be reached.
    """

    @property
    def uri(self) -> str:
        """The URI of the root, as the job's hosts see it: the default for outputs and checkpoints."""

    def place(self, job_name: str) -> str:
        """The job's folder, for display."""

    def create(self, job_name: str) -> str:
        """Create the folder of a new job under a temporary name, and return that name, which `names` does not include.

        Raises FileExistsError if there is a job of this name.
        """

    def publish(self, draft: str, job_name: str) -> None:
        """Rename a complete folder that `create` made to the name of its job, in one step.

        Raises FileExistsError if there is a job of this name.
        """

    def remove(self, name: str) -> None:
        """Remove the folder of a job that was not started."""

    def names(self) -> Iterable[str]:
        """The names of all jobs that have a record, in any order."""

    def read(self, path: str) -> bytes:
        """The content of a file that `write` wrote. Raises FileNotFoundError."""

    def read_part(self, path: str, start: int) -> bytes:
        """Some bytes of a growing file, from ``start``; empty only at its end. Raises FileNotFoundError."""

    def write(self, path: str, data: bytes) -> None:
        """Write ``data`` to ``path`` atomically, replacing an existing file."""


@dataclass(frozen=True)
class JobFiles:
    """The files of one job below a root."""

    root: JobRoot
    name: str

    def read(self, file: str) -> bytes:
        """See `JobRoot.read`. Empty if the file is missing or too large, or something else is in its place.

        Raises PlatformError.
        """
        try:
            return again(lambda: self.root.read(f"{self.name}/{file}"))
        except OSError as error:
            if error.errno not in (None, errno.ENOENT, errno.ENOTDIR, errno.EFBIG, *NOT_A_FILE):
                raise unreadable(f"{self.root.place(self.name)}/{file}", error) from error
            return b""

    def read_part(self, file: str, start: int) -> bytes:
        """See `JobRoot.read_part`. Empty if the file is missing. Raises PlatformError if it is not a regular file."""
        try:
            return again(lambda: self.root.read_part(f"{self.name}/{file}", start))
        except (FileNotFoundError, NotADirectoryError):
            return b""
        except OSError as error:
            place = f"{self.root.place(self.name)}/{file}"
            if is_transient(error):
                raise unreadable(place, error) from error
            raise PlatformError(
                f"{place} cannot be read: {error.strerror or error}",
                hint="Something else is in place of this file: remove it."
                if error.errno in NOT_A_FILE
                else "",
            ) from error

    def lines(self, file: str) -> Iterator[str]:
        """All lines of a text file. Raises PlatformError if it is not a regular file."""
        return follow_lines(lambda position: self.read_part(file, position))

    def write(self, file: str, data: bytes) -> None:
        again(lambda: self.root.write(f"{self.name}/{file}", data))

    def exists(self, file: str) -> bool:
        """Whether there is a file, or something else in its place. Raises PlatformError if that is unknown."""
        try:
            again(lambda: self.root.read(f"{self.name}/{file}"))
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError as error:
            if is_transient(error):
                raise unreadable(f"{self.root.place(self.name)}/{file}", error) from error
            return True
        return True

    def request(self) -> dict[str, Any]:
        """The body of the job's request. Raises PlatformError if it is damaged or gone."""
        try:
            return parse_body(again(lambda: self.root.read(f"{self.name}/{REQUEST}")))
        except (OSError, ValueError) as error:
            raise damaged_request(self.root.place(self.name), error) from None

    def record(self) -> JobRecord:
        """The last record, or that of a failed job if it cannot be read. Raises FileNotFoundError if there is none."""
        return read_record(lambda: self.root.read(f"{self.name}/{RECORD}"), self.root.place(self.name))

    def publish(self, job_name: str) -> JobFiles:
        """Give this new folder the name of its job; see `JobRoot.publish`. Returns the job's files."""
        self.root.publish(self.name, job_name)
        return JobFiles(self.root, job_name)

    def write_record(self, record: JobRecord) -> None:
        self.write(RECORD, record.to_json())

    @property
    def is_stopped(self) -> bool:
        """Whether the user requested the stop."""
        return self.exists(STOP_MARK)


class LocalRoot:
    """The jobs of one platform in this user's state folder on this machine, or in another folder here."""

    def __init__(self, platform: str, folder: Path | None = None) -> None:
        self._platform = platform
        self._folder = folder

    @cached_property
    def path(self) -> Path:
        return self._folder or jobs_home(self._platform)

    @property
    def uri(self) -> str:
        return self.path.as_uri()

    def place(self, job_name: str) -> str:
        return f"{self.path}{os.sep}{job_name}"

    def create(self, job_name: str) -> str:
        folder = JobFolder(self.path / job_name)
        if folder.is_half_made:
            discard(folder.path)
        if folder.path.exists():
            raise FileExistsError(folder.path)
        draft = temporary_name()
        (self.path / draft).mkdir(parents=True, mode=0o700)
        return draft

    def publish(self, draft: str, job_name: str) -> None:
        publish(self.path / draft, self.path / job_name)

    def remove(self, name: str) -> None:
        with contextlib.suppress(OSError):
            discard(self.path / name)

    def names(self) -> Iterable[str]:
        return [folder.name for folder in folders_with_record(self.path)]

    def read(self, path: str) -> bytes:
        return read_regular(f"{self.path}/{path}", LARGEST)  # a Path for each of thousands of files is slow

    def read_part(self, path: str, start: int) -> bytes:
        with open(open_regular(f"{self.path}/{path}", READ_REGULAR), "rb") as file:
            file.seek(start)
            return file.read(READ_SIZE)

    def write(self, path: str, data: bytes) -> None:
        target = self.path / path
        if target.name == RECORD:  # of a job whose supervisor is gone
            Reserve(target.parent).replace(target, data)
            Reserve(target.parent).remove()
        elif target.name == STOP_MARK:
            Reserve(target.parent).replace(target, data, leave=1)
        else:
            replace_file(target, data)
