"""The page of a job, as parts of HTML that are updated independently."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from cloudtrain._display.facts import facts
from cloudtrain._display.markup import Html, element
from cloudtrain._display.view import look_at
from cloudtrain.contract.text import one_line
from cloudtrain.errors import CloudtrainError
from cloudtrain.job import Job
from cloudtrain.observe.metric_series import MetricReader
from cloudtrain.platforms import Events, Metrics, Platform, Requests, Series
from cloudtrain.watch.dashboard.logs import Logs, command
from cloudtrain.watch.dashboard.parts import ranks
from cloudtrain.watch.dashboard.points import PARTS as POINTS, heat_map, plots
from cloudtrain.watch.report.content import report
from cloudtrain.watch.report.document import Facts, Paragraph, Section
from cloudtrain.watch.report.facts import what_ran
from cloudtrain.watch.report.gather import Gathered, shown_request
from cloudtrain.watch.report.page import section_html

PARTS = ("status", "problem", "failure", "hang", "now", "ranks", "hosts", "phases", "rest")
"""The ids of the parts that change while a job runs, in the order of the page."""
READING = Section("Now", [Paragraph("The events of the job are being read.")])
LASTING = ("submitted", "started", "hosts", "image")
LOOK_SECONDS = 1.0
SHARE = 10
"""Reading all values of metrics takes at most about one ``SHARE``-th of the time."""
PATIENCE = 0.6
"""Seconds to wait for a look and for all values of metrics, because a job may have millions of events."""
COURSE_PATIENCE = 0.2
"""Seconds to wait for all values if the course of each metric, its means and bounds, is known already."""


@dataclass(frozen=True)
class Look:
    """A job at one moment."""

    at: float
    """On the monotonic clock."""
    is_final: bool
    parts: Mapping[str, Html] = field(default_factory=dict)
    values: object = None
    """Changes whenever a metric has a new value."""


class Watched:
    """One job. All pages that show it share the looks at it. Thread-safe."""

    def __init__(self, platform: Platform, name: str) -> None:
        self._platform, self.name = platform, name
        self.job, self.logs = Job(name, platform), Logs(command(platform.name, name))
        self._lock, self._plots_lock = threading.Lock(), threading.Lock()
        self._look: Look | None = None
        self._plots: dict[str, Any] | None = None
        self._series: Series = {}
        self._reader: MetricReader | None = None
        """The reader of all values of metrics, while they are being read."""
        self._is_reading = self._is_looking = False
        self._plots_until = float("-inf")
        self._request: dict[str, Any] | None = None

    def look(self) -> Look:
        """The job as it is now, or as of the last look if this one takes long. Before the first look has ended,
        only its name is known."""
        with self._lock:
            is_due = self._look is None or time.monotonic() - self._look.at > LOOK_SECONDS
            if is_due and not self._is_looking:
                self._is_looking = True
                thread = threading.Thread(target=self._look_now, name=f"look at {self.name}", daemon=True)
                thread.start()
                thread.join(PATIENCE)
            return self._look or Look(0.0, False, {"now": Html(section_html(READING))})

    def _look_now(self) -> None:
        try:
            self._look = self._new_look()
        except Exception as error:  # a plug-in may raise anything
            last = self._look or Look(0.0, False)
            problem = Html(section_html(Section("The platform does not answer", [_alert(error)])))
            parts = {**last.parts, "problem": problem}
            self._look = replace(last, at=time.monotonic(), is_final=False, parts=parts)
        self._is_looking = False

    def _new_look(self) -> Look:
        looked = look_at(self._platform, self.name)
        self._series = looked.series
        view = replace(looked, series={})  # the page draws them itself
        gathered = Gathered(
            self.name,
            self._platform.name,
            view.at,
            view.description.submitted_at,
            view,
            self._own_request(),
        )
        sections = {section.title: section for section in report(gathered).sections if section.blocks}
        status = view.description.status
        sections["Now"] = Section("Now", [Facts([*facts(view)])])
        lasting = [fact for fact in what_ran(gathered) if fact[0] in LASTING]
        sections["What ran"] = Section("What ran", [Facts(lasting)])
        if self.logs.is_read and not status.is_final:  # the job was interrupted, and continues
            self.logs = Logs(command(self._platform.name, self.name))
        parts = {name: _html(sections.get(name.capitalize())) for name in PARTS}
        parts["hosts"] = heat_map(view)
        found = ranks(view)
        parts["ranks"] = _html(found if found.blocks else None)
        parts["status"] = element("span", str(status), class_=f"status {str(status).lower()}")
        parts["rest"] = Html(
            "".join(_html(sections.get(name)) for name in ("Parameters", "What ran", "Request"))
        )
        values = [(name, value) for name, value in view.description.metrics.items()]
        counts = [len(points) for points in looked.series.values()]
        return Look(
            time.monotonic(),
            status.is_final,
            parts,
            repr((values, counts, view.description.step)),
        )

    def _own_request(self) -> dict[str, Any]:
        """The request without secrets, which is read once; empty if the platform does not have it."""
        if self._request is None:
            self._request = {}
            if isinstance(self._platform, Requests):
                try:
                    self._request = shown_request(self._platform.request(self.name))
                except CloudtrainError:
                    self._request = None
        return self._request or {}

    def plots(self) -> dict[str, Any]:
        """The courses of all metrics, by name: see `plots`.

        Millions of values take long to read. Until then, ``is_whole`` is false, and the courses are those of the values
        read so far, or those that the platform has summarised, whose ``count`` is 0.
        """
        with self._plots_lock:
            if (
                isinstance(self._platform, Metrics)
                and not self._is_reading
                and time.monotonic() > self._plots_until
            ):
                self._is_reading = True
                thread = threading.Thread(target=self._read, name=f"metrics of {self.name}", daemon=True)
                thread.start()
                thread.join(COURSE_PATIENCE if self._series else PATIENCE)
            if self._plots is not None:
                return {"is_whole": True, "metrics": self._plots}
            if self._reader and not self._series:
                return {"is_whole": False, "metrics": plots(self._reader.series(), self._reader.counts())}
        self.look()
        if not self._is_reading:
            return {"is_whole": True, "metrics": plots(self._series)}
        return {"is_whole": False, "metrics": plots(self._series, dict.fromkeys(self._series, 0))}

    def _read(self) -> None:
        began = time.monotonic()
        with contextlib.suppress(Exception):  # a plug-in may raise anything; keep the last values
            if isinstance(self._platform, Events):
                self._reader = reader = MetricReader(POINTS)
                for event in self._platform.events(self.name):
                    reader.add(event)
                self._plots = plots(reader.series(), reader.counts())
            elif isinstance(self._platform, Metrics):
                self._plots = plots(self._platform.metrics(self.name))
        self._reader = None
        now = time.monotonic()
        self._plots_until = now + max(LOOK_SECONDS / 2, SHARE * (now - began))
        self._is_reading = False


def _html(section: Section | None) -> Html:
    return section_html(section) if section else Html("")


def _alert(error: Exception) -> Paragraph:
    return Paragraph(one_line(error), "warning")
