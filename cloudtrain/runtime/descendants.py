"""Ends processes that ranks started and left behind: daemons, and processes in their own session.

Linux gives them to this process when their own parent ends. Without that, as on macOS, only processes whose parent is
alive are found. In a container, the kernel does the same when process 1 ends.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from cloudtrain._system.processes import exit_code, stat_fields
from cloudtrain._system.signals import SIGKILL

REAP_SECONDS = 1.0
"""Seconds between two looks for adopted processes that have ended."""
ROUNDS = 50
"""Each round ends one generation."""

_CHILDREN = Path("/proc/self/task")
_SET_SUBREAPER, _GET_SUBREAPER = 36, 37  # prctl(2)


def adopt_orphans(*, adopts: bool = True) -> None:
    """Become the parent of every descendant whose own parent ends; no longer, if ``adopts`` is false."""
    if sys.platform.startswith("linux"):
        import ctypes

        ctypes.CDLL(None).prctl(_SET_SUBREAPER, int(adopts), 0, 0, 0)


@contextlib.contextmanager
def no_orphans_adopted() -> Iterator[None]:
    """Adopt none during the block."""
    if not sys.platform.startswith("linux"):
        yield
        return
    import ctypes

    adopts = ctypes.c_int()
    ctypes.CDLL(None).prctl(_GET_SUBREAPER, ctypes.byref(adopts), 0, 0, 0)
    adopt_orphans(adopts=False)
    try:
        yield
    finally:
        adopt_orphans(adopts=bool(adopts.value))


class OrphanReaper:
    """Removes adopted processes that have ended: launchers such as Ray's wait until their daemons are gone.

    A process of the runtime itself is left to those who wait for it. They do so immediately: it is never dead for long.
    """

    def __init__(self) -> None:
        self._dead: set[int] = set()
        """The children that were dead at the last look."""
        self._next = 0.0

    def reap(self, own: set[int]) -> None:
        """Call it often. ``own`` are processes that someone waits for later."""
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + REAP_SECONDS
        children = {int(pid) for task in _CHILDREN.glob("*/children") for pid in _read(task).split()}
        dead = {pid for pid in children - own if _is_zombie(pid)}
        for pid in dead & self._dead:
            with contextlib.suppress(ChildProcessError):
                exit_code(pid)
        self._dead = dead


def end_descendants() -> None:
    """Kill all children of this process, and their children as this process adopts them."""
    if not _CHILDREN.is_dir():
        _kill(descendants(_processes(), os.getpid()))
        return
    for _ in range(ROUNDS):
        children = [int(pid) for task in _CHILDREN.glob("*/children") for pid in _read(task).split()]
        if not children:
            return
        _kill(children)


def descendants(parents: dict[int, int], ancestor: int) -> list[int]:
    """The processes below ``ancestor``, each after its parent.

    >>> descendants({2: 1, 3: 2, 4: 9}, 1)
    [2, 3]
    """
    found = [process for process, parent in parents.items() if parent == ancestor]
    for process in found:  # grows
        found += [child for child, parent in parents.items() if parent == process]
    return found


def _processes() -> dict[int, int]:
    """The parent of every process of this machine, by ps(1); nothing if there is no ps."""
    try:
        listed = subprocess.run(
            ["ps", "-A", "-o", "pid=,ppid="],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return {}
    return {int(pid): int(parent) for pid, parent in map(str.split, listed.splitlines())}


def _kill(processes: list[int]) -> None:
    for pid in processes:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, 0)


def _is_zombie(pid: int) -> bool:
    try:
        return stat_fields(pid)[0] == "Z"
    except (OSError, IndexError):
        return False


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
