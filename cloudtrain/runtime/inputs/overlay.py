"""Caches virtual environments, on top of a user's interpreter, in which requirements are installed."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Callable

from cloudtrain._system.files import lock

COMPLETE = "complete"
"""The file that marks a complete environment. It contains the environment's size in bytes, and a hash of the names,
sizes and times of its files.

Its own modification time is that of the last use.
"""


@dataclass(frozen=True)
class Overlay:
    """One environment. Hosts and jobs on this machine share it, and hold its lock while they change it."""

    path: Path

    @property
    def python(self) -> str:
        return str(self.path / "bin" / "python")

    @property
    def site_packages(self) -> Path:
        [packages] = self.path.glob("lib/python*/site-packages")
        return packages

    @property
    def is_complete(self) -> bool:
        return (self.path / COMPLETE).exists()

    @property
    def is_intact(self) -> bool:
        """Whether it is complete, and no file has been removed, added or changed since."""
        try:
            return (self.path / COMPLETE).read_text().split()[1:] == [self._digest()]
        except OSError:
            return False

    def _digest(self) -> str:
        """A hash of the name, size and time of every file. Hashing the contents of a large one would take seconds."""
        digest = hashlib.sha256()
        for parent, folders, names in os.walk(self.path):
            folders[:] = sorted(name for name in folders if name != "__pycache__")
            for name in sorted(names):
                path = os.path.join(parent, name)
                if path != str(self.path / COMPLETE):
                    status = os.lstat(path)
                    state = f"{os.path.relpath(path, self.path)}\0{status.st_size}\0{status.st_mtime_ns}\0"
                    digest.update(state.encode("utf-8", "surrogateescape"))
        return digest.hexdigest()

    @property
    def size(self) -> int:
        """The size in bytes."""
        try:
            return int((self.path / COMPLETE).read_text().split()[0])
        except (OSError, ValueError, IndexError):
            return size_of(self.path)

    @property
    def last_used(self) -> float:
        """The time of the last use, in seconds since the epoch."""
        for path in (self.path / COMPLETE, self.path, self.path.with_suffix(".lock")):
            with contextlib.suppress(FileNotFoundError):
                return path.stat().st_mtime
        return time.time()  # it has just been removed

    def complete(self) -> None:
        (self.path / COMPLETE).write_text(f"{size_of(self.path)} {self._digest()}")

    def use(self) -> None:
        """Record that a job uses the environment."""
        os.utime(self.path / COMPLETE)

    @contextmanager
    def locked(self, *, wait: bool = True, on_wait: Callable[[], object] = lambda: None) -> Iterator[bool]:
        """Hold the lock. Without ``wait``, yields False if another process holds it.

        ``on_wait`` is called before the wait for another process.
        """
        path = self.path.with_suffix(".lock")
        path.parent.mkdir(parents=True, exist_ok=True)
        while True:
            with open(path, "w") as file:
                if not lock(file.fileno(), wait=False):
                    if not wait:
                        yield False
                        return
                    on_wait()
                    lock(file.fileno())
                if path.exists() and os.path.samestat(os.fstat(file.fileno()), path.stat()):
                    yield True
                    return
            # `remove` has deleted the file in the meantime

    def remove(self) -> None:
        """Remove the environment, unless another process is changing it."""
        with self.locked(wait=False) as is_free:
            if is_free:
                if self.path.exists():
                    shutil.rmtree(self.path)
                self.path.with_suffix(".lock").unlink()


def overlays_in(cache: Path) -> list[Overlay]:
    """All environments, including failed installations of which only a lock exists."""
    return [Overlay(path) for path in sorted({path.with_suffix("") for path in cache.glob("*")})]


def size_of(folder: Path) -> int:
    """The total size in bytes of the files below a folder."""
    total = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(FileNotFoundError):  # another process removes it
                total += os.lstat(os.path.join(parent, name)).st_size
    return total
