"""A job in one row of a table."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple

from cloudtrain.history.outlines import Ended
from cloudtrain.runtime.supervisor.caps import money

if TYPE_CHECKING:
    from cloudtrain.platforms import JobDescription


class Brief(NamedTuple):
    """The cells of a table about one job."""

    status: str
    submitted_at: float | None = None
    seconds: float | None = None
    """From its start to its end, or until now."""
    progress: str = ""
    cost: str = ""
    """So far, over all attempts; empty if it is not known."""
    why: str = ""
    """Why it failed or ended early, or why its state is not known."""


def brief(found: JobDescription | Ended | Exception) -> Brief:
    """The cells of a table about a job, from its description, its recorded end, or the error of the query for it."""
    if isinstance(found, Ended):
        seconds = None if found.started_at is None else max(found.ended_at - found.started_at, 0.0)
        cost = "" if found.cost is None else money(found.cost, found.currency)
        return Brief(found.status.value, found.submitted_at, seconds, "", cost, found.why)
    # imported here so that a list of jobs that have ended loads no platform
    from cloudtrain._display.steps import brief_progress
    from cloudtrain._display.view import duration
    from cloudtrain.history.described import reason_of
    from cloudtrain.history.ends import why_of

    if isinstance(found, Exception):
        return Brief("Unknown", why=reason_of(found))
    return Brief(
        str(found.status),
        found.submitted_at,
        duration(found, time.time()),
        brief_progress(found) if found.ended_at is None else "",
        "" if found.cost is None else str(found.cost),
        why_of(found),
    )
