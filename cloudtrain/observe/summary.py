"""Summarises the events of a job."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable
from dataclasses import field
from typing import Any

from cloudtrain._dataclass import dataclass
from cloudtrain.contract.documents import is_count
from cloudtrain.observe.course import MOST_HOSTS, OF_THE_COURSE, Course
from cloudtrain.observe.events import PLACES, SPARE, SUPERVISOR
from cloudtrain.observe.goodput import KINDS, GoodputMeter
from cloudtrain.observe.hanging import HANGING, Hanging, read_hanging
from cloudtrain.observe.metric_series import Point
from cloudtrain.observe.samples import Sample, add_recent
from cloudtrain.observe.stacks import GROUP, TAKEN, StackReader
from cloudtrain.observe.step_meter import StepMeter

MOST_POINTS = 80
"""Twice the width of a sparkline."""


@dataclass
class Trend:
    """The course of a metric in at most `MOST_POINTS` points, each of which combines the same number of values."""

    points: list[tuple[float, float, float, float]] = field(default_factory=list)
    """The time of a point's last value, in seconds since the epoch; then the mean, the smallest and the largest of its
    finite values, or NaN, infinity and minus infinity if it has none."""
    size: int = 1
    """The number of values in each point; the values of an unfinished one are in `total`."""
    total: float = 0.0
    finite: int = 0
    count: int = 0
    """The number of values in `total`; `finite` of them are finite."""
    low: float = math.inf
    high: float = -math.inf
    """The smallest and the largest of them."""

    def add(self, time: float, value: float) -> None:
        self.count += 1
        if math.isfinite(value):
            self.total += value
            self.finite += 1
            if value < self.low:
                self.low = value
            if value > self.high:
                self.high = value
        if self.count < self.size:
            return
        self.points.append((time, self._mean(), self.low, self.high))
        self.total, self.finite, self.count = 0.0, 0, 0
        self.low, self.high = math.inf, -math.inf
        if len(self.points) == MOST_POINTS:
            self.size *= 2
            self.points = [
                (end, _mean(mean, other), min(low, its_low), max(high, its_high))
                for (_, mean, low, high), (end, other, its_low, its_high) in zip(
                    self.points[::2], self.points[1::2]
                )
            ]

    def series(self, time: float) -> list[Point]:
        """The points, and one with this ``time`` for the latest values. Points of several values have bounds."""
        latest = [(time, self._mean(), self.low, self.high)] if self.count else []
        return [
            Point(at, mean, None, low, high) if low < high else Point(at, mean)
            for at, mean, low, high in (*self.points, *latest)
        ]

    def _mean(self) -> float:
        return self.total / self.finite if self.finite else math.nan

    def to_list(self) -> list[Any]:
        return [self.points, self.size, self.total, self.finite, self.count, self.low, self.high]

    @classmethod
    def from_list(cls, data: list[Any]) -> Trend:
        """The inverse of `to_list`. Raises TypeError or ValueError."""
        points, *rest = data
        return cls([(time, mean, low, high) for time, mean, low, high in points], *rest)


def _mean(first: float, second: float) -> float:
    finite = [value for value in (first, second) if math.isfinite(value)]
    return sum(finite) / len(finite) if finite else math.nan


WARNINGS = 10
"""The most warnings in a summary."""
WAITS = "start"
"""The state of a host whose runtime has started, but which is not in a phase yet."""
OUTPUTS = ("model", "output")
LONGEST_CHOICE = 200
"""The most characters, as a script may have forged the event."""
RECENT_STEPS = 64
"""Steps for which the values of hosts are combined: they arrive one host after another."""
MOST_NAMES = 1000
"""The most metrics, and the most phases, in a summary."""


@dataclass
class HostProgress:
    """The progress of one host."""

    state: str
    """The phase that it is in, or how it ended."""
    done: int = 0
    total: int = 0
    """Bytes to move in this phase; 0 if that is not known."""


@dataclass
class Summary:
    """The summary of a job: phases and hosts of the last attempt; metrics and uploads of the whole job.

    Its size is bounded, however many events there are.
    """

    phase: str | None = None
    """The current phase."""
    phases: dict[str, float] = field(default_factory=dict)
    """Seconds of each completed phase, on the slowest host."""
    hosts: dict[str, HostProgress] = field(default_factory=dict)
    """The hosts of the last attempt."""
    steps: StepMeter = field(default_factory=StepMeter)
    metrics: dict[str, float] = field(default_factory=dict)
    """The last value of each metric."""
    logged: dict[str, list[tuple[int, float, int]]] = field(default_factory=dict)
    """The last steps of each metric that ``cloudtrain.log`` logged: step, mean, and the number of ranks in it."""
    earlier: dict[str, list[float]] = field(default_factory=dict)
    """The smallest and the largest value of each metric, without those of `logged`, which may change."""
    uploaded: dict[str, str] = field(default_factory=dict)
    """The URI of each kind of output: ``model``, ``output``."""
    warnings: list[str] = field(default_factory=list)
    """The last distinct warnings of the last attempt, oldest first."""
    trends: dict[str, Trend] = field(default_factory=dict)
    """The course of each metric."""
    samples: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    """The recent samples of each host of the last attempt, as events, oldest first: see `recent_samples`."""
    last: float = 0.0
    """The time of the last metric, in seconds since the epoch."""
    meter: GoodputMeter = field(default_factory=GoodputMeter)
    stacks: StackReader = field(default_factory=StackReader)
    """The last stacks of the ranks that were taken."""
    places: str = ""
    """Which spare hosts wait, and which ones have taken a place, where the hosts themselves assign places."""
    save_interval: str = ""
    """The choice of ``Checkpointer(every="auto")``, and its reasons."""
    hanging: Hanging | None = None
    """The hang that was found in the last attempt and is not over."""
    hung: str = ""
    """The last hang of the last attempt that is over: how long it lasted, and what ended it."""
    course: Course = field(default_factory=Course)
    """Attempts and their phases on a time axis; the ranks of each host."""

    @property
    def last_step(self) -> int | None:
        """The last step that a rank reported in the last attempt; None if it is unknown."""
        steps = [host.step for host in self.course.hosts.values()]
        return max((step for step in steps if step is not None and is_count(step)), default=None)

    @property
    def ranges(self) -> dict[str, tuple[float, float]]:
        """The smallest and the largest value of each metric, over all attempts; without those that are not finite."""
        found = {name: (low, high) for name, (low, high) in self.earlier.items()}
        for name, steps in self.logged.items():
            values = [*found.get(name, ()), *(mean for _, mean, _ in steps if math.isfinite(mean))]
            if values:
                found[name] = (min(values), max(values))
        return found

    @property
    def details(self) -> dict[str, str]:
        """For `JobDescription.details`."""
        found = {"saves": self.save_interval, "spare hosts": self.places, "last hang": self.hung}
        return {name: text for name, text in found.items() if text}

    def add(self, event: dict[str, Any]) -> None:
        """Add the next event of the job. Ignores one that lacks a field."""
        try:
            kind = event["event"]
            if kind == "metric":
                self._add_metric(_text(event["name"]), event)
            elif kind == "attempt":
                for name, steps in self.logged.items():
                    for _, mean, _ in steps:
                        self._extend(name, mean)
                self.logged.clear()
                self.phases.clear()
                self.hosts.clear()
                self.samples.clear()
                self.warnings.clear()
                self.hanging, self.hung = None, ""
            elif kind == "phase":
                self._add_phase(_text(event["phase"]), event)
            elif kind == "host":
                self._set_host(event, WAITS)
            elif kind == SPARE:
                self._set_host(event, f"spare: {_text(event['state'])}")
            elif kind == "outcome":
                self._set_host(event, _text(event["status"]))
            elif kind == "progress":
                self._add_progress(event)
            elif kind == "sample":
                add_recent(self.samples, event)
            elif kind == "uploaded":
                if event["kind"] in OUTPUTS:
                    self.uploaded.setdefault(event["kind"], _text(event["uri"]))
            elif kind == PLACES:
                self.places = _text(event["text"])[:LONGEST_CHOICE]
            elif kind == "save_interval":
                self.save_interval = _text(event["text"])[:LONGEST_CHOICE]
            elif kind == HANGING:
                found = read_hanging(event)
                if self.hanging is not None and found is None:
                    self.hung = self.hanging.until(event)
                self.hanging = found
            elif kind in (GROUP, TAKEN):
                self.stacks.add(event)
            elif kind == "discarded":
                self.uploaded.pop(event["kind"], None)
            elif kind == "warning" and _text(event["message"]) not in self.warnings:
                self.warnings = [*self.warnings, event["message"]][-WARNINGS:]
        except (KeyError, TypeError, ValueError, OverflowError):
            return
        if kind in OF_THE_COURSE or (kind == "metric" and "step" in event):
            with contextlib.suppress(KeyError, TypeError, ValueError, OverflowError):
                self.course.add(event)
        if kind in KINDS:
            for meter in (self.steps, self.meter):
                with contextlib.suppress(KeyError, TypeError, ValueError, OverflowError):
                    meter.add(event)

    @property
    def series(self) -> dict[str, list[Point]]:
        """The course of each metric: at most a few hundred points, of successive values."""
        return {name: trend.series(self.last) for name, trend in self.trends.items()}

    def _add_metric(self, name: str, event: dict[str, Any]) -> None:
        value, step, ranks = event["value"], event.get("step"), event.get("ranks") or 1
        time = self.last = event.get("time", 0.0)
        recent = self.logged.get(name, [])
        for place, (logged, mean, count) in enumerate(recent):
            if logged == step:  # another host has logged this step, whose mean is in the trend
                total = count + ranks
                recent[place] = (step, (mean * count + value * ranks) / total, total)
                self.metrics[name] = recent[-1][1]
                return
        if event.get("late"):
            return
        trend = self.trends.get(name)
        if trend is None:
            if len(self.trends) == MOST_NAMES:
                return
            trend = self.trends[name] = Trend()
        trend.add(time, value)
        self.metrics[name] = value
        if step is None:
            self._extend(name, value)
            return
        self.logged[name] = [*recent, (step, value, ranks)]
        if len(self.logged[name]) > RECENT_STEPS:
            self._extend(name, self.logged[name].pop(0)[1])

    def _extend(self, name: str, value: float) -> None:
        """Widen the range of a metric."""
        if math.isfinite(value):
            low, high = self.earlier.get(name, (value, value))
            self.earlier[name] = [min(low, value), max(high, value)]

    def _add_phase(self, name: str, event: dict[str, Any]) -> None:
        if event["state"] == "began":
            self.phase = name
            self._set_host(event, name)
        elif name in self.phases or len(self.phases) < MOST_NAMES:
            self.phases[name] = max(event["seconds"], self.phases.get(name, 0.0))

    def _set_host(self, event: dict[str, Any], state: str) -> None:
        name = event.get("source")
        if name == SUPERVISOR:  # it uploads the outputs of containers
            return
        if name in self.hosts or (name and len(self.hosts) < MOST_HOSTS):
            self.hosts[_text(name)] = HostProgress(state)

    def _add_progress(self, event: dict[str, Any]) -> None:
        host = self.hosts.get(event.get("source", ""))
        if host and host.state == event["phase"]:
            host.done, host.total = event["done"], event.get("total") or 0

    def recent_samples(self) -> dict[str, list[Sample]]:
        """The recent samples by host, oldest first."""
        return {host: [*map(Sample.of, events)] for host, events in self.samples.items()}

    def last_samples(self) -> dict[str, Sample]:
        """The last sample of each host."""
        return {host: Sample.of(events[-1]) for host, events in self.samples.items()}

    def to_dict(self) -> dict[str, Any]:
        """As data for JSON."""
        trends = {name: trend.to_list() for name, trend in self.trends.items()}
        hosts = {name: vars(host) for name, host in self.hosts.items()}
        parts = {name: getattr(self, name).to_dict() for name in _PARTS}
        hanging = self.hanging and self.hanging.to_dict()
        return {**vars(self), "hosts": hosts, "trends": trends, "hanging": hanging, **parts}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Summary:
        """The inverse of `to_dict`. Raises TypeError, ValueError or KeyError."""
        trends = {name: Trend.from_list(points) for name, points in data["trends"].items()}
        hosts = {name: HostProgress(**values) for name, values in data.get("hosts", {}).items()}
        parts = {name: kind.from_dict(data[name]) for name, kind in _PARTS.items()}
        hanging = data.get("hanging") and Hanging.from_dict(data["hanging"])
        return cls(**{**data, "hosts": hosts, "trends": trends, "hanging": hanging, **parts})


_PARTS: dict[str, Any] = {"meter": GoodputMeter, "steps": StepMeter, "course": Course, "stacks": StackReader}
"""The fields that have ``to_dict`` and ``from_dict``."""


def _text(value: Any) -> str:
    """``value``, if it is a string. Raises TypeError."""
    if not isinstance(value, str):
        raise TypeError
    return value


def summarize(events: Iterable[dict[str, Any]]) -> Summary:
    """Summarise the records of ``events.jsonl``, in the order of the file."""
    summary = Summary()
    for event in events:
        summary.add(event)
    return summary
