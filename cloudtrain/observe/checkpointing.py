"""Marks checkpoints that are being committed: the runtime of a failing job waits for them.

A process marks a commit by a file in the host's run folder. The file name contains the process id, because a killed
process leaves its file behind.
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
    """The unfinished commits on this host: the name of each, and its process id."""
    names = [path.name for path in run.glob(f"{PREFIX}*")]
    return {name: int(name.split("-")[1]) for name in names}
