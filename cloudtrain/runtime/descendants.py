"""Ends processes that ranks have started and not ended: daemons, and processes in their own session.

On Linux, this process becomes their parent when their own parent ends. Elsewhere, as on macOS, only processes whose
parent is alive are found. In a container, the kernel ends all processes when process 1 ends.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
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
"""The most rounds, each of which ends one generation."""
KILLED_SECONDS = 30.0
"""How long to wait for a process after SIGKILL: it may stay in the kernel while a file system does not answer."""
LATE_SECONDS = 2.0
"""The least time to wait, for processes that are killed later than the ranks."""

_CHILDREN = Path("/proc/self/task")
_SET_SUBREAPER, _GET_SUBREAPER = 36, 37  # prctl(2)


def adopt_orphans(*, adopts: bool = True) -> None:
    """Become the parent of every descendant whose own parent ends. If ``adopts`` is false, stop this."""
    if sys.platform.startswith("linux"):
        import ctypes

        ctypes.CDLL(None).prctl(_SET_SUBREAPER, int(adopts), 0, 0, 0)


@contextlib.contextmanager
def no_orphans_adopted() -> Iterator[None]:
    """Adopt no orphans during the block."""
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
    """Reaps adopted processes that have ended, because launchers such as Ray's wait until their daemons are gone.

    Processes of the runtime itself are left to their waiters, which reap them immediately, before the second look.
    """

    def __init__(self) -> None:
        self._dead: set[int] = set()
        """The children that were dead at the last look."""
        self._next = 0.0

    def reap(self, own: set[int]) -> None:
        """Reap dead processes. Call this often. ``own`` are processes that are waited for later."""
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + REAP_SECONDS
        dead = {pid for pid in {*_children()} - own if _is_zombie(pid)}
        for pid in dead & self._dead:
            with contextlib.suppress(ChildProcessError):
                exit_code(pid)
        self._dead = dead


def end_descendants(since: float | None = None) -> list[int]:
    """Kill all children of this process, and then their children, which this process adopts.

    Args:
        since: the monotonic time at which ranks among them were killed; None if none were.

    Returns the processes that have not ended within `KILLED_SECONDS`, because the kernel holds them.
    """
    now = time.monotonic()
    has_proc = _CHILDREN.is_dir()
    if (
        since is None and has_proc and all(map(_is_held, _children()))
    ):  # a runtime has waited for them already
        since = -math.inf
    deadline = now + KILLED_SECONDS if since is None else max(since + KILLED_SECONDS, now + LATE_SECONDS)
    if not has_proc:
        return _kill(descendants(_processes(), os.getpid()), deadline)
    left: list[int] = []
    for _ in range(ROUNDS):
        children = _children()
        if {*children} <= {*left}:
            break
        left = _kill(children, deadline)
    return left


def show_left(processes: list[int]) -> str:
    """A warning about processes that `end_descendants` has returned."""
    noun, them = ("process", "it") if len(processes) == 1 else ("processes", "them")
    return (
        f"SIGKILL has not ended {noun} {', '.join(map(str, processes))}: the kernel holds on to {them}, as it does "
        "while a file system does not answer"
    )


def descendants(parents: dict[int, int], ancestor: int) -> list[int]:
    """The descendants of ``ancestor``, each after its parent.

    >>> descendants({2: 1, 3: 2, 4: 9}, 1)
    [2, 3]
    """
    found = [process for process, parent in parents.items() if parent == ancestor]
    for process in found:  # grows
        found += [child for child, parent in parents.items() if parent == process]
    return found


def _processes() -> dict[int, int]:
    """The parent of every process of this machine, as reported by ps(1); empty if there is no ps."""
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


def _kill(processes: list[int], deadline: float) -> list[int]:
    """Kill processes, and wait for those that are children. Returns those that remain at the deadline."""
    for pid in processes:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, SIGKILL)
    pause = 0.0
    while (processes := [pid for pid in processes if not _has_ended(pid)]) and time.monotonic() < deadline:
        time.sleep(pause)
        pause = min(pause + 0.001, 0.05)
    return processes


def _has_ended(child: int) -> bool:
    try:
        return exit_code(child) is not None
    except ChildProcessError:
        return True


def _children() -> list[int]:
    return [int(pid) for task in _CHILDREN.glob("*/children") for pid in _read(task).split()]


def _is_held(pid: int) -> bool:
    """Whether SIGKILL is still pending for a process or its first thread: see proc(5)."""
    pending = re.findall(r"^(?:Sig|Shd)Pnd:\s*([0-9a-f]+)$", _read(Path(f"/proc/{pid}/status")), re.MULTILINE)
    return any(int(signals, 16) >> (SIGKILL - 1) & 1 for signals in pending)


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
