"""The jobs on all platforms that have not ended, as rows of the list."""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from cloudtrain._display.view import JobView, look_at
from cloudtrain.errors import CloudtrainError, JobNotFound
from cloudtrain.history.described import describe_all, each, reason_of
from cloudtrain.history.outlines import known_ends
from cloudtrain.index import IndexEntry
from cloudtrain.platforms import JobDescription
from cloudtrain.sweep.journal import see_owners
from cloudtrain.watch.asking import Asking
from cloudtrain.watch.sweeps import SweepView, known_sweeps, look_at_sweep, sweep_of

MOST_JOBS = 200
"""The most jobs on the screen; the newest are shown."""
MOST_DESCRIBED = 50
"""The most jobs of one platform that are queried one by one to find those that have not ended; the newest are."""


@dataclass(frozen=True)
class Row:
    """One job."""

    name: str
    platform: str
    view: JobView | None = None
    """None if the platform does not answer."""
    problem: str = ""
    at: float = 0.0
    """The time at which the view was queried. It may be older than the screen."""
    sweep: SweepView | None = None
    """The sweep that the job is a trial of."""

    def to_dict(self) -> dict[str, Any]:
        """As data for JSON."""
        about = {"kind": "job", "sweep": self.sweep.name if self.sweep else None}
        if self.view is None:
            return {
                **about,
                "name": self.name,
                "platform": self.platform,
                "status": "Unknown",
                "reason": self.problem,
            }
        return {**about, **self.view.to_dict()}


PATIENCE = 0.3
"""Seconds that a live list waits for platforms. Jobs of slower platforms appear when these have answered."""


@dataclass
class RunningJobs:
    """Finds the jobs that have not ended. A job that has ended is not queried any more."""

    platform: str | None = None
    """Only show the jobs of this platform."""
    is_live: bool = True
    """Whether it looks repeatedly. If so, it waits neither for a slow platform nor for the silent owner of a sweep,
    because a later look will include them."""
    _ended: set[IndexEntry] = field(default_factory=set)
    _last: dict[IndexEntry, Row] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._asking = Asking(self._rows, PATIENCE if self.is_live else None)

    def look(self) -> list[Row]:
        """All jobs that have not ended, newest first. If a platform does not answer, its jobs stay as they were,
        with the reason."""
        entries = [
            entry
            for entry, end in known_ends()
            if end is None and entry not in self._ended and self.platform in (None, entry.platform)
        ]
        answers = self._asking.ask(entries)
        unknown: Counter[str] = Counter()
        rows = []
        for entry in entries:
            answer = answers[entry.platform]
            if answer.result is None:
                unknown[entry.platform] += 1
                if unknown[entry.platform] <= MOST_DESCRIBED:
                    rows.append(Row(entry.name, entry.platform, problem=answer.problem))
            elif (row := answer.result.get(entry)) and entry not in self._ended:
                rows.append(replace(row, problem=row.problem or answer.problem))
        del rows[MOST_JOBS:]
        sweeps = _sweeps_of(rows, wait=not self.is_live)
        return [replace(row, sweep=sweeps.get(row.name)) for row in rows]

    def _rows(self, entries: Sequence[IndexEntry]) -> dict[IndexEntry, Row]:
        """The rows of those jobs of one platform that have not ended."""
        found = describe_all(entries, most=MOST_DESCRIBED)
        self._ended.update(entry for entry, one in found.items() if _is_over(one))
        shown = [entry for entry in entries if entry in found and entry not in self._ended][:MOST_JOBS]
        views = each(shown, look_at)
        self._ended.update(entry for entry, view in views.items() if isinstance(view, JobNotFound))
        self._last.update({entry: _row(entry, views[entry], self._last.get(entry)) for entry in shown})
        return {entry: self._last[entry] for entry in shown}


def _row(entry: IndexEntry, found: JobView | Exception, last: Row | None) -> Row:
    if isinstance(found, JobView):
        return Row(entry.name, entry.platform, found, at=time.time())
    return replace(last or Row(entry.name, entry.platform), problem=reason_of(found))


def _sweeps_of(rows: Sequence[Row], *, wait: bool) -> dict[str, SweepView]:
    """The sweep of each job that is a trial, by the name of the job. Sweeps that cannot be read are left out."""
    known = known_sweeps()
    names = {row.name: name for row in rows if (name := sweep_of(row.name, known))}
    views = {}
    if wait:
        see_owners({*names.values()})
    for name in {*names.values()}:
        with contextlib.suppress(CloudtrainError):
            views[name] = look_at_sweep(name, wait=wait)
    return {job: views[name] for job, name in names.items() if name in views}


def _is_over(found: JobDescription | Exception) -> bool:
    return isinstance(found, JobNotFound) or (isinstance(found, JobDescription) and found.status.is_final)
