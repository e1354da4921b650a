"""Views of jobs, made without a platform."""

from __future__ import annotations

from typing import Any

from cloudtrain._display.view import JobView
from cloudtrain.contract import JobStatus
from cloudtrain.platforms import JobDescription, Series

NOW = 1.8e9


def view(
    series: Series | None = None, *, cost: float | None = None, states: Any = (), **fields: Any
) -> JobView:
    """A job that has run for 90 seconds, with these fields of its description."""
    given = {
        "name": "train-1",
        "platform": "fake",
        "status": JobStatus.RUNNING,
        "started_at": NOW - 90,
        **fields,
    }
    return JobView(JobDescription(submitted_at=NOW - 100, **given), NOW, series or {}, states, cost)
