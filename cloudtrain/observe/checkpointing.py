"""Checkpoints that are on their way: the runtime of a job that fails lets them be committed.

A process says so by a file in the host's run folder, whose name has its number: who was killed commits no more.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

PREFIX = "committing-"


@contextlib.contextmanager
def committing() -> Iterator[None]:
    """As long as this lasts, the process commits a checkpoint. It may begin in one thread and end in another."""
    run = os.environ.get("CLOUDTRAIN_RUN_DIR")
    if run is None:
        yield
        return
    owner = os.getpid()
    mark = Path(run, f"{PREFIX}{owner}-{os.urandom(8).hex()}")
    with contextlib.suppress(OSError):  # a full disk is no reason not to commit elsewhere
        mark.touch()
    try:
        yield
    finally:
        if os.getpid() == owner:  # a forked child has a copy of this, and ends it when it ends
            with contextlib.suppress(OSError):
                mark.unlink()


def commits(run: Path) -> dict[str, int]:
    """The commits that were begun on the host and not ended: a name of each, and the number of its process."""
    names = [path.name for path in run.glob(f"{PREFIX}*")]
    return {name: int(name.split("-")[1]) for name in names}
