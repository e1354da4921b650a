"""Carries out a plan of copies and deletions."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

from cloudtrain.data.plan import Copy, Deletion, Plan
from cloudtrain.storage import FileStore, Progress, S3Store
from cloudtrain.storage.errors import file_errors
from cloudtrain.storage.transfer import move_each

OnDone = Callable[["Copy | Deletion"], None]
"""Called after each step, possibly from several threads."""

BATCH = 1000
"""Objects to delete with one request."""


def carry_out(plan: Plan, on_done: OnDone, progress: Progress | None = None) -> None:
    """Carry out ``plan``: nothing is deleted before everything is copied.

    A file appears under its name when it is complete. The first error ends the work and is raised; what was copied
    before it remains. Ctrl-C likewise.
    """

    def move(copy: Copy, report: Progress) -> None:
        _copy(copy, report)
        on_done(copy)

    move_each(plan.copies, move, progress)
    for start in range(0, len(plan.deletions), BATCH):
        batch = plan.deletions[start : start + BATCH]
        batch[0].tree.store.delete([deletion.entry.key for deletion in batch])
        for deletion in batch:
            on_done(deletion)


def _copy(copy: Copy, progress: Progress) -> None:
    source, target = copy.source.store, copy.target.store
    if isinstance(source, FileStore):
        target.upload(source.folder / copy.entry.key, copy.key, progress)
    elif isinstance(target, S3Store):
        target.copy_from(source, copy.entry.key, copy.key, progress)
    else:
        path = target.folder / copy.key
        source.download(copy.entry.key, path, progress)
        _set_time(path, copy.entry.modified)


def _set_time(path: Path, modified: float) -> None:
    """Give a downloaded file the time of its object, so that the next sync finds it unchanged."""
    with file_errors(str(path)):
        os.utime(path, (time.time(), modified))
