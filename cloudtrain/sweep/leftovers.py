"""Finds the checkpoints of populations on this machine that can be removed."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from cloudtrain._system.users import owns
from cloudtrain.errors import CloudtrainError, PlatformError
from cloudtrain.platforms.supervised.leftovers import (
    JobEnds,
    Leftover,
    is_in_use,
    remove_unused,
    size_of_folder,
)
from cloudtrain.storage.atomic import discard
from cloudtrain.sweep.journal import CHECKPOINTS, EVENTS, Journal
from cloudtrain.sweep.started import sweep_names
from cloudtrain.sweep.trials import read_trials


def old_checkpoints(before: float, ends: JobEnds) -> Iterator[Leftover]:
    """The checkpoints of sweeps whose last event was before ``before``, in seconds since the epoch.

    Sweeps with a controller or an open trial, and those of other users, are skipped. While a job is running, nothing is
    returned, because the job may continue the best trial.
    """
    for name in sweep_names():
        with contextlib.suppress(CloudtrainError, OSError):  # unreadable, or another user's
            journal = Journal.named(name)
            folder = journal.folder / CHECKPOINTS
            if _is_own(folder) and os.stat(journal.folder / EVENTS).st_mtime < before and _has_ended(journal):
                if is_in_use(ends):
                    return
                yield Leftover(
                    "checkpoints",
                    name,
                    size_of_folder(folder),
                    partial(remove_unused, partial(_remove, journal), ends),
                )


def _remove(journal: Journal) -> None:
    """Raises PlatformError if the sweep has been continued meanwhile, because its trials need the checkpoints."""
    with journal.owned():
        if read_trials(journal).open:
            raise PlatformError(f"sweep {journal.name} has been continued")
        discard(journal.folder / CHECKPOINTS)


def _is_own(folder: Path) -> bool:
    status = os.lstat(folder)
    return stat.S_ISDIR(status.st_mode) and owns(status)


def _has_ended(journal: Journal) -> bool:
    return not journal.is_alive() and not read_trials(journal).open
