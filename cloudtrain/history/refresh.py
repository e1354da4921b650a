"""Brings the history up to date by looking at the jobs whose end it does not have."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from functools import cache, partial

from cloudtrain.errors import CloudtrainError
from cloudtrain.history.described import at_once, each, outlines
from cloudtrain.history.ends import Seen, keep, look
from cloudtrain.history.outlines import known_end, missing_ends, record_of
from cloudtrain.history.shared import with_shared
from cloudtrain.index import IndexEntry
from cloudtrain.platforms import JobDescription, Platform, get_platform
from cloudtrain.storage import state_home

Progress = Callable[[int, int], object]
PART = 500
"""The number of jobs that are written at a time. An interrupt loses no more than these."""


def freeze(platform: Platform, description: JobDescription) -> None:
    """Keep how a job of this user ended, if it has. Warns if the shared history cannot be used."""
    if not keep_end(platform, description):
        return
    try:
        with_shared(lambda database: None)
    except CloudtrainError as error:
        warnings.warn(error.message, stacklevel=2)


def keep_end(platform: Platform, description: JobDescription) -> bool:
    """Like `freeze`, without the shared history, which gets it with the next query. Returns whether it was new."""
    if not description.status.is_final:
        return False
    name = description.name
    record = record_of(name, platform.name)
    if (end := known_end(name, platform.name)) and end.ended_at == description.ended_at:
        return False
    keep([look(platform, description, record)])
    return True


def refresh(progress: Progress | None = None) -> list[Seen]:
    """Look at the jobs of this user that have not ended, or whose end is not in the history.

    Jobs whose platform does not answer stay as they are. Returns the results that cannot be kept because the index
    cannot be written.

    Args:
        progress: called after each of several parts, with the number of jobs so far and the total.
    """
    missing = missing_ends()
    entries, home = [*missing], str(state_home()) if missing else ""
    left: list[Seen] = []
    for start in range(0, len(entries), PART):
        part = entries[start : start + PART]
        seen = _from_records({entry: missing[entry] for entry in part}, home)
        look_at_each = partial(each, action=partial(_look, home))
        others = at_once([entry for entry in part if entry not in seen], look_at_each).values()
        found = [*seen.values(), *(one for one in others if isinstance(one, Seen))]
        if not keep(found):
            left += found
        if progress and len(entries) > PART:
            progress(min(start + PART, len(entries)), len(entries))
    return left


def _from_records(has_request: Mapping[IndexEntry, bool], home: str) -> dict[IndexEntry, Seen]:
    """Those jobs with a folder on this machine whose records have everything that the history keeps about an end."""
    records = {entry: record_of(entry.name, entry.platform, home) for entry in has_request}
    found, platform_of = outlines([entry for entry, record in records.items() if record]), cache(get_platform)
    return {
        entry: look(platform_of(entry.platform), one, records[entry], has_request=has_request[entry])
        for entry, one in found.items()
        if isinstance(one, JobDescription) and one.is_end
    }


def _look(home: str, platform: Platform, name: str) -> Seen:
    record = record_of(name, platform.name, home)
    return look(platform, platform.describe(name), record)
