"""The jobs that have not ended, of all platforms, and what is shown of each."""

from __future__ import annotations

import contextlib
import time
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
from cloudtrain.watch.sweeps import SweepView, known_sweeps, look_at_sweep, sweep_of

MOST_JOBS = 200
"""The most jobs on the screen: the newest."""
MOST_DESCRIBED = 50
"""The most jobs of one platform that are queried one by one to find those that have not ended: the newest."""


@dataclass(frozen=True)
class Row:
    """One job."""

    name: str
    platform: str
    view: JobView | None = None
    """None if the platform does not answer."""
    problem: str = ""
    at: float = 0.0
    """The time of the view, which may be older than the screen."""
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


@dataclass
class RunningJobs:
    """Finds the jobs that have not ended. One that has is not queried again."""

    platform: str | None = None
    """Only the jobs of this platform."""
    is_live: bool = True
    """Whether it looks again and again: then it waits for no silent owner of a sweep, of which it knows more later."""
    _ended: set[IndexEntry] = field(default_factory=set)
    _last: dict[tuple[str, str], Row] = field(default_factory=dict)

    def look(self) -> list[Row]:
        """All jobs now, newest first. A platform that does not answer leaves its jobs as they were, with the reason."""
        entries = [
            entry
            for entry, end in known_ends()
            if end is None and entry not in self._ended and self.platform in (None, entry.platform)
        ]
        found = describe_all(entries, most=MOST_DESCRIBED)
        self._ended |= {entry for entry, one in found.items() if _is_over(one)}
        shown = [entry for entry in entries if entry in found and entry not in self._ended][:MOST_JOBS]
        views = each(shown, look_at)
        self._ended |= {entry for entry, view in views.items() if isinstance(view, JobNotFound)}
        sweeps = _sweeps_of(shown, wait=not self.is_live)
        rows = [replace(self._row(entry, views[entry]), sweep=sweeps.get(entry.name)) for entry in shown]
        self._last = {(row.name, row.platform): row for row in rows}
        return rows

    def _row(self, entry: IndexEntry, found: JobView | Exception) -> Row:
        if isinstance(found, JobView):
            return Row(entry.name, entry.platform, found, at=time.time())
        last = self._last.get((entry.name, entry.platform), Row(entry.name, entry.platform))
        return replace(last, problem=reason_of(found))


def _sweeps_of(entries: Sequence[IndexEntry], *, wait: bool) -> dict[str, SweepView]:
    """The sweeps that jobs are trials of, by the names of the jobs. One that cannot be read has none."""
    known = known_sweeps()
    names = {entry.name: name for entry in entries if (name := sweep_of(entry.name, known))}
    views = {}
    if wait:
        see_owners({*names.values()})
    for name in {*names.values()}:
        with contextlib.suppress(CloudtrainError):
            views[name] = look_at_sweep(name, wait=wait)
    return {job: views[name] for job, name in names.items() if name in views}


def _is_over(found: JobDescription | Exception) -> bool:
    return isinstance(found, JobNotFound) or (isinstance(found, JobDescription) and found.status.is_final)
