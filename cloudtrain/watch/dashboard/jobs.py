"""The list of jobs, one page at a time, however many jobs there are."""

from __future__ import annotations

import threading
import time
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from cloudtrain._display.brief import brief
from cloudtrain._display.past import cell
from cloudtrain._display.steps import span
from cloudtrain._display.view import moment
from cloudtrain.contract.text import one_line
from cloudtrain.errors import CloudtrainError, PlatformError
from cloudtrain.history.described import describe_all
from cloudtrain.history.outlines import COLUMNS, Ended, end_of
from cloudtrain.history.queries import search
from cloudtrain.history.refresh import refresh
from cloudtrain.history.shared import url
from cloudtrain.history.sql import labels, named
from cloudtrain.index import IndexEntry, changes, list_rows
from cloudtrain.platforms import JobDescription
from cloudtrain.storage import state_home
from cloudtrain.watch.asking import Answer, Asking
from cloudtrain.watch.sweeps import known_sweeps, look_at_sweep, sweep_of

PAGE = 100
STALE_SECONDS = 60.0
"""The index is read at least this often, because the modification time of a file is coarse."""
PATIENCE = 1.0
"""Seconds to wait for platforms and, before a query, for the history to be up to date."""
REFRESH_SECONDS = 10.0
Described = dict[IndexEntry, JobDescription | Exception]


@dataclass(frozen=True)
class Wanted:
    """The jobs to show, as the user has entered it."""

    name: str = ""
    """A part of their names."""
    platform: str = ""
    where: str = ""
    """A condition of `cloudtrain.history.query`."""
    sort: str = ""
    group: str = ""
    """A field, a parameter or a metric: jobs with the same value are listed together."""
    page: int = 0

    @property
    def is_query(self) -> bool:
        """Whether the list comes from the history."""
        return bool(self.where.strip() or self.sort.strip() or self.group.strip())


@dataclass(frozen=True)
class Row:
    """One job in the list. Fields that are not known yet are empty."""

    name: str
    platform: str
    status: str = ""
    submitted: str = ""
    took: str = ""
    progress: str = ""
    why: str = ""
    group: str = ""
    is_sweep: bool = False
    """Whether the row is a sweep, with its own page, and replaces the rows of its trials."""
    has_page: bool = True
    """False for a job that is only in the history, because it is another user's or was removed."""
    more: Mapping[str, str] = field(default_factory=dict)
    """The values of the fields in the query, by name; without a query, the cost if it is known."""


@dataclass(frozen=True)
class Listed:
    """A page of the list."""

    rows: Sequence[Row] = ()
    count: int = 0
    """The number of jobs on all pages."""
    columns: Sequence[str] = ()
    """The names of the columns in `Row.more`."""
    problem: str = ""
    """Why the query cannot be answered."""


class Jobs:
    """The jobs of this user. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._rows: dict[tuple[str, str], Sequence[Any]] = {}
        """The rows of the index by platform and name, the newest first."""
        self._seen: object = ()
        self._last: tuple[object, Listed] | None = None
        self._refreshed_at = float("-inf")
        self._is_refreshing = False
        self._asking = Asking(describe_all, PATIENCE)

    def entries(self) -> Mapping[tuple[str, str], Sequence[Any]]:
        """The rows of the index by platform and name, the newest first: the fields of `IndexEntry`, then the end.

        They are only read if the index or the folders of jobs have changed.
        """
        with self._lock:
            seen = changes(), time.monotonic() // STALE_SECONDS
            if seen != self._seen:
                self._rows = {(row[1], row[0]): row for row in list_rows(columns=COLUMNS)}
                self._seen = seen
            return self._rows

    def page(self, wanted: Wanted, *, with_states: bool = True) -> Listed:
        """The requested page of the list.

        Args:
            wanted: the jobs to show.
            with_states: whether to query the platforms for the states of the jobs. Otherwise no network is used.
        """
        if wanted.is_query:
            self._refresh()
            known, key = self.entries(), (wanted, self._seen)
            last = self._last
            if url() or last is None or last[0] != key:
                self._last = last = key, _of_history(wanted, known)
            return last[1]
        rows = [row for key, row in self.entries().items() if _fits(wanted, *key)]
        if not wanted.name.strip():
            rows = _together(rows)
        shown = rows[wanted.page * PAGE : (wanted.page + 1) * PAGE]
        sweeps = {row: look_at_row(row) for row in shown if isinstance(row, SweepKey)}
        home = str(state_home())  # check only what is shown, because a check reads the job's folder
        found: dict[IndexEntry, JobDescription | Ended | Exception | None] = {
            IndexEntry(*row[:3]): end_of(row, home) for row in shown if row not in sweeps
        }
        unknown = [entry for entry, end in found.items() if end is None]
        if unknown and with_states:
            answers = self._asking.ask(unknown)
            found.update({entry: _described(entry, answers[entry.platform]) for entry in unknown})
        lines = [
            sweeps[row] if row in sweeps else _row(entry := IndexEntry(*row[:3]), found[entry])
            for row in shown
        ]
        return Listed(lines, len(rows), ["cost"] if any(line.more for line in lines) else [])

    def _refresh(self) -> None:
        """Bring the history up to date in the background, because that takes seconds for thousands of jobs."""
        with self._lock:
            if self._is_refreshing or time.monotonic() - self._refreshed_at < REFRESH_SECONDS:
                return
            self._is_refreshing = True
        thread = threading.Thread(target=self._refresh_now, name="history", daemon=True)
        thread.start()
        thread.join(PATIENCE)

    def _refresh_now(self) -> None:
        try:
            refresh()
        finally:
            with self._lock:
                self._is_refreshing, self._refreshed_at = False, time.monotonic()


class SweepKey(NamedTuple):
    """The key of a sweep, which replaces the rows of its trials."""

    name: str
    platform: str
    """The platform of its last trial."""
    submitted_at: float
    """The time at which its last trial was submitted."""


def _together(rows: Sequence[Sequence[Any]]) -> list[Any]:
    """``rows``, newest first, with all trials of a sweep replaced by one `SweepKey` in place of the newest."""
    known = known_sweeps()
    if not known:
        return [*rows]
    found: dict[object, Any] = {}
    for row in rows:
        sweep = sweep_of(row[0], known)
        key = sweep or (row[1], row[0])
        if key not in found:
            found[key] = SweepKey(sweep, row[1], row[2]) if sweep else row
    return [*found.values()]


def look_at_row(key: SweepKey) -> Row:
    """The row of a sweep."""
    try:
        view = look_at_sweep(key.name, wait=False)
    except CloudtrainError as error:
        return Row(key.name, key.platform, "Unknown", why=one_line(error), is_sweep=True)
    began = view.trials.created_at
    took = max((view.ended_at or time.time()) - began, 0.0)
    return Row(
        key.name,
        view.plan.platform,
        view.status,
        moment(began),
        _span(took),
        view.progress,
        view.why or view.best,
        is_sweep=True,
    )


def _fits(wanted: Wanted, platform: str, name: str) -> bool:
    return wanted.name.strip().lower() in name.lower() and wanted.platform in ("", platform)


def _row(entry: IndexEntry, found: JobDescription | Ended | Exception | None) -> Row:
    if found is None:
        return Row(entry.name, entry.platform, submitted=moment(entry.submitted_at))
    shown = brief(found)
    at = shown.submitted_at or entry.submitted_at
    return Row(
        entry.name,
        entry.platform,
        shown.status,
        moment(at),
        _span(shown.seconds),
        shown.progress,
        shown.why,
        more={"cost": shown.cost} if shown.cost else {},
    )


def _described(entry: IndexEntry, answer: Answer[Described]) -> JobDescription | Exception:
    """The answer for one job. The last one may be for the jobs of another page."""
    found = (answer.result or {}).get(entry)
    return PlatformError(answer.problem or f"asking {entry.platform} ...") if found is None else found


def _span(seconds: float | None) -> str:
    return "" if seconds is None else span(seconds)


def _of_history(wanted: Wanted, known: Container[tuple[str, str]]) -> Listed:
    group = wanted.group.strip()
    among = named(wanted.name.strip(), wanted.platform)
    start = wanted.page * PAGE
    try:
        found = search(
            wanted.where, wanted.sort.strip(), PAGE, start=start, group=group, among=among, up_to_date=False
        )
    except CloudtrainError as error:
        return Listed(problem=f"{error.message}. {error.hint or ''}".strip())
    fields = found.fields
    more = {label: one for label, one in zip(labels(fields), fields, strict=True) if label not in SHOWN}
    rows = [
        Row(
            job.name,
            job.platform,
            job.status,
            moment(job.submitted_at),
            _span(job.duration),
            why=job.why,
            group=f"{group}: {cell(found.group, job) or 'unknown'}" if found.group else "",
            has_page=(job.platform, job.name) in known,
            more={label: cell(one, job) for label, one in more.items()},
        )
        for job in found.jobs
    ]
    return Listed(rows, found.count, [*more])


SHOWN = ("name", "platform", "status", "submitted", "duration", "why")
"""Fields that have a column in every table."""
