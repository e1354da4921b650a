"""This user's jobs in a scheduler's queue, queried with one command for all jobs and all processes that watch them.

The answer is cached for some seconds, in this process and in a file that all processes of this user share, so that
ten waiting commands make as many calls as one. While the scheduler does not answer, jobs keep their last state: a job
whose state is unknown is not considered ended.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, TypeVar

from cloudtrain._dataclass import dataclass
from cloudtrain._system.files import READ_REGULAR, lock, open_regular, read_regular
from cloudtrain.errors import PlatformError
from cloudtrain.platforms.batch.shell import Shell
from cloudtrain.runtime.supervisor.event_summary import UNREADABLE, from_cached, to_cached
from cloudtrain.storage import state_home
from cloudtrain.storage.atomic import replace_file

if TYPE_CHECKING:
    from typing_extensions import Self

LARGEST = 64 << 20
WAIT_SECONDS = 60.0


@dataclass(frozen=True)
class Snapshot:
    """An answer, and the result of the queries after it. Times are in seconds since the epoch."""

    asked: float = 0.0
    """When the last query was answered or failed: the pause before the next one starts then."""
    taken: float = 0.0
    """When ``text`` was requested."""
    text: str = ""
    """The output of the command that lists the jobs."""
    calls: int = 1
    """How many calls the last answer took."""
    failures: int = 0
    """How many queries have failed since."""
    failing_since: float = 0.0
    error: str = ""

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Self:
        """The inverse of ``asdict``. Raises TypeError, ValueError, KeyError or AttributeError."""
        return cls(**values)

    def answered(self, taken: float, asked: float, text: str) -> Self:
        """This snapshot with a new answer."""
        return replace(self, asked=asked, taken=taken, text=text, calls=1, failures=0, error="")

    def failed(self, asked: float, error: str) -> Self:
        """This snapshot after a failed query: it keeps the last answer."""
        since = self.failing_since if self.failures else asked
        return replace(
            self, asked=asked, failures=min(self.failures + 1, 20), failing_since=since, error=error, calls=1
        )


Kept = TypeVar("Kept", bound=Snapshot)


class SnapshotFile(Generic[Kept]):
    """The file that keeps the last answer. Without it, or if it cannot be used, each process queries for itself."""

    def __init__(self, path: Path | None, kind: type[Kept]) -> None:
        self._path = path
        self._kind = kind

    @contextlib.contextmanager
    def taken(self, *, wait: bool) -> Iterator[bool]:
        """Whether this process is the one to query: false while another process does.

        Args:
            wait: for the other process, because there is no earlier answer to use in the meantime.
        """
        if self._path is None:
            yield True
            return
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            descriptor = open_regular(
                self._path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | READ_REGULAR, 0o600
            )
        except OSError:
            yield True
            return
        try:
            yield self._lock(descriptor, wait)
        finally:
            os.close(descriptor)

    def _lock(self, descriptor: int, wait: bool) -> bool:
        until = time.monotonic() + WAIT_SECONDS
        try:
            while not lock(descriptor, wait=False):
                if not wait or time.monotonic() > until:
                    return False
                time.sleep(0.05)
        except OSError:  # this system has no locks
            pass
        return True

    def read(self) -> Kept | None:
        """The last answer that any process got; None if there is none, or it is damaged."""
        if self._path is None:
            return None
        try:
            found = from_cached(read_regular(self._path, LARGEST))
            if found is None:
                return None
            return self._kind.of(found["snapshot"])
        except (OSError, *UNREADABLE):
            return None

    def write(self, snapshot: Kept) -> None:
        if self._path is not None:
            with contextlib.suppress(OSError):  # a full disk
                replace_file(self._path, to_cached({"snapshot": asdict(snapshot)}), mode=0o600)


POLL_SECONDS = 10.0
LONGEST_BACKOFF_SECONDS = 60.0
SILENT_SECONDS = 30.0
"""How long a scheduler may not answer before users are warned: the restart of a server takes less."""
CALL_SECONDS = 60.0
MOST_ABSENCES = 6
"""After this many answers in a row without a job, it is considered ended, even without better evidence."""
SKEW_SECONDS = 5.0
"""How far the clocks of this machine and the cluster may differ."""


class Named(Protocol):
    """A job in a queue, or a record of a job, with the fields that identify it."""

    @property
    def name(self) -> str: ...

    @property
    def folder(self) -> str:
        """The folder from which it was submitted, as an absolute path; empty if the scheduler does not report it."""


class Queued(Named, Protocol):
    """A job in the queue, or one that has just left it."""

    @property
    def submitted(self) -> float | None:
        """When it was submitted, in seconds since the epoch."""

    @property
    def is_ended(self) -> bool: ...


AnyQueued = TypeVar("AnyQueued", bound=Queued)


@dataclass(frozen=True)
class Standing(Generic[AnyQueued]):
    """A job as the queue shows it: whether it is alive, and its row."""

    is_alive: bool
    """Whether the job is or may be queued: false only if the scheduler reported its end, or that it does not exist."""
    row: AnyQueued | None = None
    taken: float = 0.0
    """When the scheduler was queried, in seconds since the epoch; 0 if it never answered."""


class SharedQueue(ABC, Generic[AnyQueued, Kept]):
    """The jobs of this user in the queue of a scheduler.

    Args:
        shell: runs the scheduler's commands.
        file: shared by the processes of this user on this machine; None for none.
        poll_seconds: how old an answer may be.
    """

    product: str
    """The name of the scheduler, for messages."""
    kind: ClassVar[type[Snapshot]] = Snapshot

    def __init__(self, shell: Shell, file: Path | None = None, *, poll_seconds: float = POLL_SECONDS) -> None:
        self._shell = shell
        self._file: SnapshotFile[Kept] = SnapshotFile(file, self.kind)  # type: ignore[arg-type]
        self._poll_seconds = poll_seconds
        self._lock = threading.Lock()
        self._snapshot: Kept = self.kind()  # type: ignore[assignment]
        self._rows: Mapping[str, AnyQueued] = {}
        self._parsed_of = -1.0
        self._expired_at = 0.0
        self._absent: dict[str, int] = {}
        """By job, how many answers have been without it since the last one with it, while nothing confirmed its end."""

    @abstractmethod
    def _query(self) -> str:
        """The answer of the scheduler about all jobs of this user. Raises PlatformError if it does not answer."""

    @abstractmethod
    def _parse(self, text: str) -> Mapping[str, AnyQueued]:
        """The jobs in an answer of the scheduler, by number."""

    def look(self, number: str, since: float) -> Standing[AnyQueued]:
        """Find a job in the queue. Queries the scheduler only if the last answer is too old.

        Args:
            since: when the job was submitted, in seconds since the epoch.
        """
        with self._lock:
            if self._snapshot.taken < since <= time.time():
                self._expired_at = max(self._expired_at, since)  # it was submitted after the last answer
            taken = self._refresh()
            row = self._rows.get(number)
            if row and not row.is_ended:
                self._absent.pop(number, None)
                return Standing(True, row, taken=taken)
            if row is None and (taken < since or self._snapshot.failures):
                return Standing(
                    True
                )  # perhaps it was not in the queue yet, or the scheduler has just restarted
            if row is None and self._may_return(number):
                return Standing(True)
            return Standing(False, row, taken=taken)

    def _may_return(self, number: str) -> bool:
        """Whether a job that is not in the queue may still be alive."""
        return False

    def rows(self, since: float) -> tuple[Mapping[str, AnyQueued], float]:
        """This user's jobs, by number, and when the scheduler was queried for them: after ``since``, or else 0."""
        with self._lock:
            if self._snapshot.taken < since <= time.time():
                self._expired_at = max(self._expired_at, since)
            taken = self._refresh()
            return self._rows, 0.0 if self._snapshot.failures or taken < since else taken

    def expire(self) -> None:
        """Let the next lookup query the scheduler, because a job has been submitted or stopped."""
        self._expired_at = time.time()

    def renew(self) -> None:
        """Query the scheduler now, even if it has not answered for a while, because a user waits for it."""
        with self._lock, self._file.taken(wait=True):
            self._snapshot = self._ask(self._snapshot)
            self._file.write(self._snapshot)

    def check(self) -> None:
        """Raises PlatformError if the scheduler does not answer now."""
        self._query()

    @property
    def silence(self) -> str:
        """The sentence about a scheduler that has not answered for a while; empty if it answers."""
        last = self._snapshot
        is_new = last.taken and time.time() - last.failing_since < SILENT_SECONDS
        if not last.failures or is_new:
            return ""
        since = f"{datetime.fromtimestamp(last.failing_since):%H:%M:%S}"
        where = f" on {self._shell.place}" if self._shell.place else ""
        return f"{self.product}{where} has not answered since {since} ({last.error})"

    def _refresh(self) -> float:
        """Bring the rows up to date. Returns when the scheduler was queried for them."""
        if self._is_due(self._snapshot):
            with self._file.taken(wait=not self._snapshot.taken) as is_mine:
                found = self._file.read() or self._snapshot
                if found.asked >= self._snapshot.asked:
                    self._snapshot = found
                if is_mine and self._is_due(self._snapshot):
                    self._snapshot = self._ask(self._snapshot)
                    self._file.write(self._snapshot)
        if self._parsed_of != self._snapshot.taken:
            self._rows = self._parse(self._snapshot.text)
            self._parsed_of = self._snapshot.taken
        return self._snapshot.taken

    def _is_due(self, last: Kept) -> bool:
        now = time.time()
        pause = self._poll_seconds * last.calls
        if last.failures:
            pause = min(self._poll_seconds * 2**last.failures, max(LONGEST_BACKOFF_SECONDS, pause))
        elif last.taken < self._expired_at:
            return True
        return not last.asked <= now < last.asked + pause  # the clock may have been set back

    def _ask(self, last: Kept) -> Kept:
        began = time.time()
        try:
            text = self._query()
        except PlatformError as error:
            return last.failed(time.time(), error.message)
        return last.answered(began, time.time(), text)


def queue_file(platform: str, *place: str) -> Path:
    """The file in which this user's processes keep the last answer of a scheduler.

    Args:
        place: identifies the scheduler: login node, cluster, and the variables that choose a server.
    """
    digest = hashlib.sha256("\n".join(place).encode()).hexdigest()[:16]
    return state_home() / "queues" / platform / f"{digest}.json"
