"""The last answer of a scheduler, in a file that all processes of this user share."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from cloudtrain._system.files import READ_REGULAR, lock, open_regular, read_regular
from cloudtrain.platforms.supervised.job_summary import from_cached, to_cached
from cloudtrain.storage.atomic import replace_file

if TYPE_CHECKING:
    from typing_extensions import Self

LARGEST = 64 << 20
WAIT_SECONDS = 60.0


@dataclass(frozen=True)
class Snapshot:
    """An answer, and what became of the attempts to get another. Times are in seconds since the epoch."""

    asked: float = 0.0
    """When the last answer came, or did not come: the pause until the next call begins then, however long one takes."""
    taken: float = 0.0
    """When ``text`` was asked for."""
    text: str = ""
    """The output of the command that lists the jobs."""
    calls: int = 1
    """How many calls the last answer took."""
    failures: int = 0
    """How many times the scheduler has not answered since."""
    failing_since: float = 0.0
    error: str = ""

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Self:
        """The inverse of ``asdict``. Raises TypeError, ValueError, KeyError or AttributeError."""
        return cls(**values)

    def answered(self, taken: float, asked: float, text: str) -> Self:
        """A new answer, with all else that is known."""
        return replace(self, asked=asked, taken=taken, text=text, calls=1, failures=0, error="")

    def failed(self, asked: float, error: str) -> Self:
        """The same answer, after the scheduler did not give another."""
        since = self.failing_since if self.failures else asked
        return replace(
            self, asked=asked, failures=min(self.failures + 1, 20), failing_since=since, error=error, calls=1
        )


Kept = TypeVar("Kept", bound=Snapshot)


class SnapshotFile(Generic[Kept]):
    """Where the last answer is kept. Without a file, and where it cannot be used, each process asks for itself."""

    def __init__(self, path: Path | None, kind: type[Kept]) -> None:
        self._path = path
        self._kind = kind

    @contextlib.contextmanager
    def taken(self, *, wait: bool) -> Iterator[bool]:
        """Give whether this process is the one to ask. Another one may be asking.

        Args:
            wait: for the other process, because there is no earlier answer to use meanwhile.
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
        except (OSError, ValueError, TypeError, KeyError, AttributeError):
            return None

    def write(self, snapshot: Kept) -> None:
        if self._path is not None:
            with contextlib.suppress(OSError):  # a full disk
                replace_file(self._path, to_cached({"snapshot": asdict(snapshot)}), mode=0o600)
