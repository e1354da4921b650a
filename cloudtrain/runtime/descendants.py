"""Ends processes that ranks started and left behind: daemons, and processes in their own session.

On Linux only. In a container, the kernel does the same when process 1 ends.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from pathlib import Path

ROUNDS = 50
"""Each round ends one generation."""


def adopt_orphans() -> None:
    """Become the parent of every descendant whose own parent ends."""
    if sys.platform.startswith("linux"):
        import ctypes

        ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER, prctl(2)


def end_descendants() -> None:
    """Kill all children of this process, and their children as this process adopts them."""
    for _ in range(ROUNDS):
        children = [
            int(pid) for task in Path("/proc/self/task").glob("*/children") for pid in _read(task).split()
        ]
        if not children:
            return
        for pid in children:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
