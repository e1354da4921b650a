"""The folder of all jobs of a platform, local or remote."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import time
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

from cloudtrain.platforms.supervised.folder import READ_SIZE, RECORD, REQUEST, STOP_MARK, JobFolder, jobs_home
from cloudtrain.platforms.supervised.record import JobRecord, damaged_record
from cloudtrain.storage.atomic import discard, is_temporary, publish, replace_file, temporary_name
from cloudtrain.storage.reserve import Reserve


class JobRoot(Protocol):
    """The folders of a platform's jobs: on this machine, or behind a connection.

    A path is relative to the root, with slashes: ``<job>/state.json``. Every method may raise PlatformError if the
    root cannot be reached.
    """

    @property
    def uri(self) -> str:
        """The URI of the root, as the job's hosts see it: the default for outputs and checkpoints."""
        ...

    def place(self, job_name: str) -> str:
        """The job's folder, for display."""
        ...

    def create(self, job_name: str) -> str:
        """Create the folder of a new job, under a temporary name, which is the result: `names` does not include it.

        Raises FileExistsError if there is a job of this name.
        """
        ...

    def publish(self, draft: str, job_name: str) -> None:
        """Give a folder that `create` made, and that is complete now, the name of its job, in one step.

        Raises FileExistsError if there is a job of this name.
        """
        ...

    def remove(self, name: str) -> None:
        """Remove the folder of a job that was not started."""
        ...

    def names(self) -> Iterable[str]:
        """The names of all jobs that have a record, in any order."""
        ...

    def read(self, path: str) -> bytes:
        """The content of a file that `write` wrote. Raises FileNotFoundError."""
        ...

    def read_part(self, path: str, start: int) -> bytes:
        """Some bytes of a growing file, from ``start``; empty only at its end. Raises FileNotFoundError."""
        ...

    def write(self, path: str, data: bytes) -> None:
        """Write ``data`` to ``path`` atomically, replacing an existing file."""
        ...


@dataclass(frozen=True)
class JobFiles:
    """The files of one job below a root."""

    root: JobRoot
    name: str

    def read(self, file: str) -> bytes:
        """See `JobRoot.read`. A missing file is empty."""
        with contextlib.suppress(FileNotFoundError):
            return self.root.read(f"{self.name}/{file}")
        return b""

    def read_part(self, file: str, start: int) -> bytes:
        """See `JobRoot.read_part`. A missing file is empty."""
        with contextlib.suppress(FileNotFoundError):
            return self.root.read_part(f"{self.name}/{file}", start)
        return b""

    def lines(self, file: str) -> list[str]:
        """All lines of a text file."""
        return self.read(file).decode("utf-8", "replace").splitlines()

    def write(self, file: str, data: bytes) -> None:
        self.root.write(f"{self.name}/{file}", data)

    def exists(self, file: str) -> bool:
        try:
            self.root.read(f"{self.name}/{file}")
        except FileNotFoundError:
            return False
        return True

    def request(self) -> dict[str, Any]:
        """The body of the job's request."""
        request: dict[str, Any] = json.loads(self.root.read(f"{self.name}/{REQUEST}"))
        return request

    def record(self) -> JobRecord:
        """The last record. Raises FileNotFoundError for a job that does not exist."""
        try:
            return JobRecord.from_json(self.root.read(f"{self.name}/{RECORD}"))
        except ValueError:
            return damaged_record(f"{self.root.place(self.name)}/{RECORD}", time.time())

    def publish(self, job_name: str) -> JobFiles:
        """Give this new folder the name of its job; see `JobRoot.publish`. Returns the job's files."""
        self.root.publish(self.name, job_name)
        return JobFiles(self.root, job_name)

    def write_record(self, record: JobRecord) -> None:
        self.write(RECORD, record.to_json())

    @property
    def is_stopped(self) -> bool:
        """Whether the user asked for the stop."""
        return self.exists(STOP_MARK)


class LocalRoot:
    """The jobs of one platform in this user's state folder on this machine."""

    def __init__(self, platform: str) -> None:
        self._platform = platform

    @cached_property
    def path(self) -> Path:
        return jobs_home(self._platform)

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
        shutil.rmtree(self.path / name, ignore_errors=True)

    def names(self) -> Iterable[str]:
        found = (path.parent.name for path in self.path.glob(f"*/{RECORD}"))
        return [name for name in found if not is_temporary(name)]

    def read(self, path: str) -> bytes:
        with open(f"{self.path}/{path}", "rb") as file:  # thousands of files are listed: no Path for each
            return file.read()

    def read_part(self, path: str, start: int) -> bytes:
        with open(f"{self.path}/{path}", "rb") as file:
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
