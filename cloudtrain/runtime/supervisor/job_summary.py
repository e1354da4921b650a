"""The supervisor's summary of a job's events: for readers, for the last step, and for the goodput."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from cloudtrain.observe import EventLog, steady
from cloudtrain.runtime.supervisor.folder import SUMMARY, JobFolder
from cloudtrain.storage.atomic import replace_file

if TYPE_CHECKING:
    from cloudtrain.observe.summary import Summary
    from cloudtrain.runtime.supervisor.event_summary import EventSummary
    from cloudtrain.runtime.supervisor.record import JobRecord

MANY_EVENTS = 1 << 20
"""New events are summarised after this number of bytes, which takes 25 ms of CPU time."""


class JobSummary:
    """The summary of the events in a job folder, which is updated as events are added."""

    def __init__(self, folder: JobFolder, events: EventLog) -> None:
        self._folder, self._events = folder, events
        self._summary: EventSummary | None = None

    def update(self) -> Summary:
        """Summarise the events so far, and store the summary for readers. Raises OSError."""
        from cloudtrain.runtime.supervisor.event_summary import EventSummary  # not before the ranks start

        # start with an empty summary, because the script may have written the file
        self._summary = self._summary or EventSummary()
        summary = self._summary.update(self._folder.read_events)
        self._summary.store(lambda data: replace_file(self._folder.path / SUMMARY, data))
        return summary

    def update_if_large(self) -> None:
        """Summarise the events when `MANY_EVENTS` bytes of them are new, so that no reader has to read them all."""
        with contextlib.suppress(OSError):
            done = self._summary.mark.position if self._summary else 0
            if self._folder.events.stat().st_size - done >= MANY_EVENTS:
                self.update()

    def last_step(self) -> int | None:
        """The last step that a rank reported in this attempt; None if it is unknown."""
        with contextlib.suppress(OSError):  # a full disk or a removed folder
            return self.update().last_step
        return None

    def with_results(self, record: JobRecord, request: Mapping[str, Any]) -> JobRecord:
        """Add the results in a job's events to its final record. Also adds its goodput to the events."""
        with contextlib.suppress(OSError):  # a full disk or a removed folder: the outcome is what matters
            summary = self.update()
            record = record.with_results(summary, request)
            ended_at = record.ended_at or steady.now()
            found = summary.meter.result(record.submitted_at, ended_at, ended_at)
            if found:
                self._events.emit("goodput", **asdict(found))
        return record
