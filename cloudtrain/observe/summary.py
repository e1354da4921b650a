"""Summarises the events of a job."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

WARNINGS = 10
"""The most warnings in a summary."""


@dataclass
class Summary:
    """Phases are those of the last attempt; metrics and uploads those of the whole job."""

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


def summarize(events: Iterable[dict[str, Any]]) -> Summary:
    """Summarise the records of ``events.jsonl``, in the order of the file."""
    summary = Summary()
    for event in events:
        kind = event.get("event")
        if kind == "attempt":
            summary.phases.clear()
            summary.warnings.clear()
        elif kind == "phase" and event["state"] == "began":
            summary.phase = event["phase"]
        elif kind == "phase":
            seconds = max(event["seconds"], summary.phases.get(event["phase"], 0.0))
            summary.phases[event["phase"]] = seconds
        elif kind == "metric":
            summary.metrics[event["name"]] = event["value"]
        elif kind == "uploaded":
            summary.uploaded.setdefault(event["kind"], event["uri"])
        elif kind == "discarded":
            summary.uploaded.pop(event["kind"], None)
        elif kind == "warning" and event["message"] not in summary.warnings:
            summary.warnings = [*summary.warnings, event["message"]][-WARNINGS:]
    return summary
