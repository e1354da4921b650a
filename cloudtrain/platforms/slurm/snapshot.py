"""The last answer of Slurm, in a file that all processes of this user share."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from cloudtrain._system.files import READ_REGULAR, lock, open_regular, read_regular
from cloudtrain.platforms.slurm.states import Ending
from cloudtrain.platforms.supervised.cached import from_cached, to_cached
from cloudtrain.storage.atomic import replace_file

LARGEST = 64 << 20
WAIT_SECONDS = 60.0
MOST_ENDINGS = 5000
FORGET_SECONDS = 3600.0
"""How long after the last answer a cluster may have got accounting."""


@dataclass(frozen=True)
class Snapshot:
    """An answer, and what became of the attempts to get another. Times are in seconds since the epoch."""

    asked: float = 0.0
    """When Slurm was last asked, with or without success."""
    taken: float = 0.0
    """When ``text`` was asked for."""
    text: str = ""
    """The output of ``squeue``."""
    calls: int = 1
    """How many calls the last answer took."""
    failures: int = 0
    """How many times Slurm has not answered since."""
    failing_since: float = 0.0
    error: str = ""
    places: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    places_taken: float = 0.0
    endings: Mapping[str, Ending] = field(default_factory=dict)
    """How jobs ended that have left the queue, as far as a process asked."""
    has_accounting: bool = True
    """False once ``sacct`` has said that there is none."""

    def with_endings(self, endings: Mapping[str, Ending]) -> Snapshot:
        """The same answer, with these endings, and the latest of those known."""
        merged = list({**self.endings, **endings}.items())
        return replace(self, endings=dict(merged[-MOST_ENDINGS:]))

    def answered(self, asked: float, text: str) -> Snapshot:
        """A new answer of ``squeue``, with all else that is known."""
        has_accounting = self.has_accounting or asked - self.taken > FORGET_SECONDS
        return replace(
            self,
            asked=asked,
            taken=asked,
            text=text,
            calls=1,
            failures=0,
            error="",
            has_accounting=has_accounting,
        )

    def failed(self, asked: float, error: str) -> Snapshot:
        """The same answer, after Slurm did not give another."""
        since = self.failing_since if self.failures else asked
        return replace(
            self, asked=asked, failures=min(self.failures + 1, 20), failing_since=since, error=error, calls=1
        )


class SnapshotFile:
    """Where the last answer is kept. Without a file, and where it cannot be used, each process asks for itself."""

    def __init__(self, path: Path | None) -> None:
        self._path = path

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

    def read(self) -> Snapshot | None:
        """The last answer that any process got; None if there is none, or it is damaged."""
        if self._path is None:
            return None
        try:
            found = from_cached(read_regular(self._path, LARGEST))
            if found is None:
                return None
            values = found["snapshot"]
            places = {number: (int(place), int(count)) for number, (place, count) in values["places"].items()}
            endings = {number: Ending(**ending) for number, ending in values["endings"].items()}
            return Snapshot(**{**values, "places": places, "endings": endings})
        except (OSError, ValueError, TypeError, KeyError, AttributeError):
            return None

    def write(self, snapshot: Snapshot) -> None:
        if self._path is not None:
            with contextlib.suppress(OSError):  # a full disk
                replace_file(self._path, to_cached({"snapshot": asdict(snapshot)}), mode=0o600)
