"""Summarises the events of a job."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from cloudtrain.observe.goodput import KINDS, GoodputMeter
from cloudtrain.observe.trend import Trend

WARNINGS = 10
"""The most warnings in a summary."""
OUTPUTS = ("model", "output")
MOST_NAMES = 1000
"""The most metrics, and the most phases, in a summary."""


@dataclass
class Summary:
    """Phases are those of the last attempt; metrics and uploads those of the whole job.

    Its size is bounded, whatever the events are.
    """

    phase: str | None = None
    """The current phase."""
    phases: dict[str, float] = field(default_factory=dict)
    """Seconds of each completed phase, on the slowest host."""
    metrics: dict[str, float] = field(default_factory=dict)
    """The last value of each metric."""
    uploaded: dict[str, str] = field(default_factory=dict)
    """The URI of each kind of output: ``model``, ``output``."""
    warnings: list[str] = field(default_factory=list)
    """The last different warnings of the last attempt, oldest first."""
    trends: dict[str, Trend] = field(default_factory=dict)
    """The course of each metric."""
    last: float = 0.0
    """The time of the last metric, in seconds since the epoch."""
    meter: GoodputMeter = field(default_factory=GoodputMeter)

    def add(self, event: dict[str, Any]) -> None:
        """Add the next event of the job. Ignores one that lacks a field."""
        try:
            kind = event["event"]
            if kind == "metric":
                self._add_metric(_text(event["name"]), event["value"], event.get("time", 0.0))
            elif kind == "attempt":
                self.phases.clear()
                self.warnings.clear()
            elif kind == "phase":
                self._add_phase(_text(event["phase"]), event)
            elif kind == "uploaded":
                if event["kind"] in OUTPUTS:
                    self.uploaded.setdefault(event["kind"], _text(event["uri"]))
            elif kind == "discarded":
                self.uploaded.pop(event["kind"], None)
            elif kind == "warning" and _text(event["message"]) not in self.warnings:
                self.warnings = [*self.warnings, event["message"]][-WARNINGS:]
        except (KeyError, TypeError, ValueError, OverflowError):
            return
        if kind in KINDS:
            with contextlib.suppress(KeyError, TypeError, ValueError, OverflowError):
                self.meter.add(event)

    def _add_metric(self, name: str, value: float, time: float) -> None:
        trend = self.trends.get(name)
        if trend is None:
            if len(self.trends) == MOST_NAMES:
                return
            trend = self.trends[name] = Trend()
        trend.add(time, value)
        self.metrics[name] = value
        self.last = time

    def _add_phase(self, name: str, event: dict[str, Any]) -> None:
        if event["state"] == "began":
            self.phase = name
        elif name in self.phases or len(self.phases) < MOST_NAMES:
            self.phases[name] = max(event["seconds"], self.phases.get(name, 0.0))

    def to_dict(self) -> dict[str, Any]:
        """As data for JSON."""
        trends = {name: trend.to_list() for name, trend in self.trends.items()}
        return {**vars(self), "trends": trends, "meter": self.meter.to_dict()}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Summary:
        """The inverse of `to_dict`. Raises TypeError, ValueError or KeyError."""
        trends = {name: Trend.from_list(points) for name, points in data["trends"].items()}
        return cls(**{**data, "trends": trends, "meter": GoodputMeter.from_dict(data["meter"])})


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
