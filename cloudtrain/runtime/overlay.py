"""Cached environments with installed requirements: virtual environments on top of a user's interpreter."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Callable

from cloudtrain._system.files import lock

COMPLETE = "complete"
"""The file that marks a finished environment. It contains the size in bytes; its time is that of the last use."""


@dataclass(frozen=True)
class Overlay:
    """One environment. Hosts and jobs of this machine share it, so all of them hold its lock while they change it."""

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
    def size(self) -> int:
        """The size in bytes."""
        try:
            return int((self.path / COMPLETE).read_text())
        except (OSError, ValueError):
            return size_of(self.path)

    @property
    def last_used(self) -> float:
        """Seconds since the epoch."""
        found = (self.path / COMPLETE, self.path, self.path.with_suffix(".lock"))
        return next(path for path in found if path.exists()).stat().st_mtime

    def complete(self) -> None:
        (self.path / COMPLETE).write_text(str(size_of(self.path)))

    def use(self) -> None:
        """Record that a job uses the environment now."""
        os.utime(self.path / COMPLETE)

    @contextmanager
    def locked(self, *, wait: bool = True, on_wait: Callable[[], object] = lambda: None) -> Iterator[bool]:
        """Hold the lock. Yields False if another process has it; only without ``wait``.

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
            # `remove` has deleted the file meanwhile

    def remove(self) -> None:
        """Remove the environment, unless another process is changing it."""
        with self.locked(wait=False) as is_free:
            if is_free:
                if self.path.exists():
                    shutil.rmtree(self.path)
                self.path.with_suffix(".lock").unlink()


def overlays_in(cache: Path) -> list[Overlay]:
    """All environments, and what is left of failed installations: a lock."""
    return [Overlay(path) for path in sorted({path.with_suffix("") for path in cache.glob("*")})]


def size_of(folder: Path) -> int:
    """The total size in bytes of the files below a folder."""
    return sum(
        os.lstat(os.path.join(parent, name)).st_size for parent, _, names in os.walk(folder) for name in names
    )
