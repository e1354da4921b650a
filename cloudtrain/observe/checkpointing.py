"""Marks checkpoints that are being committed, and tracks when the state of a process must not be saved.

The runtime of a failing job waits for commits. A process marks a commit by a file in the host's run folder. The file
name contains the process id, because a killed process leaves its file behind.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

PREFIX = "committing-"


@contextlib.contextmanager
def committing() -> Iterator[None]:
    """Mark a commit by this process. May be entered in one thread and left in another."""
    run = os.environ.get("CLOUDTRAIN_RUN_DIR")
    if run is None:
        yield
        return
    owner = os.getpid()
    mark = Path(run, f"{PREFIX}{owner}-{os.urandom(8).hex()}")
    with contextlib.suppress(OSError):  # the local disk may be full; the checkpoint may be on another
        mark.touch()
    try:
        yield
    finally:
        if os.getpid() == owner:  # a forked child runs this too when it exits
            with contextlib.suppress(OSError):
                mark.unlink()


def commits(run: Path) -> dict[str, int]:
    """The unfinished commits on this host: the name of each, and its process id. Empty if ``run`` cannot be read."""
    try:
        names = os.listdir(run)
    except OSError:  # no host waits for a commit that it cannot list
        return {}
    found = ((name, name[len(PREFIX) :].partition("-")[0]) for name in names if name.startswith(PREFIX))
    return {
        name: int(pid) for name, pid in found if pid.isdecimal() and pid.isascii()
    }  # a script may add others


_why_spoiled = ""
_times_spoiled = 0


def spoil(why: str) -> None:
    """Record that this process computes wrong results until `recover`: no checkpoint may contain them."""
    global _why_spoiled, _times_spoiled
    _why_spoiled = why
    _times_spoiled += 1


def recover() -> None:
    """Record that results are correct again."""
    global _why_spoiled
    _why_spoiled = ""


class Unspoiled:
    """Shows whether a copy of the state, begun when this object was created, contains correct results."""

    def __init__(self) -> None:
        self._times = _times_spoiled

    def problem(self) -> str:
        """Why the copy may contain wrong results; empty if it does not."""
        if _why_spoiled:
            return _why_spoiled
        return "" if self._times == _times_spoiled else "collectives were aborted meanwhile"
