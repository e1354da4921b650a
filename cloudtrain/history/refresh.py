"""Brings the history up to date: looks at the jobs whose end it does not have."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial

from cloudtrain.errors import CloudtrainError
from cloudtrain.history.described import each
from cloudtrain.history.ends import Seen, keep, look
from cloudtrain.history.outlines import known_end, known_ends, record_of
from cloudtrain.history.shared import with_shared
from cloudtrain.platforms import JobDescription, Platform
from cloudtrain.storage import state_home

Progress = Callable[[int, int], object]
PART = 500
"""Jobs that are written at a time: an interrupt loses no more."""

NOT_KEPT = "conditions do not find what has changed since it was last written"


def freeze(platform: Platform, description: JobDescription) -> None:
    """Keep how a job ended, if it has ended and is one of this user. Warns if the shared history cannot be used."""
    if not description.status.is_final:
        return
    name = description.name
    record = record_of(name, platform.name)
    if (end := known_end(name, platform.name)) and end.ended_at == description.ended_at:
        return
    keep([look(platform, description, record)])
    try:
        with_shared(lambda database: None)
    except CloudtrainError as error:
        warnings.warn(error.message, stacklevel=2)


def refresh(progress: Progress | None = None) -> None:
    """Look at the jobs of this user that have not ended, or whose end the history does not have.

    Jobs whose platform does not answer stay as they are.

    Args:
        progress: called after each of several parts, with the number of jobs so far, and of all.
    """
    missing = [entry for entry, end in known_ends(whole=True) if end is None]
    home = str(state_home()) if missing else ""
    for start in range(0, len(missing), PART):
        seen = each(missing[start : start + PART], partial(_look, home)).values()
        keep([one for one in seen if isinstance(one, Seen)], NOT_KEPT)
        if progress and len(missing) > PART:
            progress(min(start + PART, len(missing)), len(missing))


def _look(home: str, platform: Platform, name: str) -> Seen:
    record = record_of(name, platform.name, home)
    return look(platform, platform.describe(name), record)
