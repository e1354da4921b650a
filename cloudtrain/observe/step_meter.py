"""The progress, the speed and the remaining time of a job's training, from its ``step`` events."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any

from cloudtrain._dataclass import dataclass

LONGEST_WINDOW = 600.0
SHORTEST_WINDOW = 30.0
SHARE = 0.2
"""The rate is measured over the last steps: this share of the time since the first one, within these two limits."""
LEAST_MARKS = 4
"""The number of events that count however old they are: a step may take an hour."""
MOST_MARKS = 256
LEAST_STALL = 60.0
STALL_FACTOR = 3.0
"""Training has stalled after this many seconds without a step, or this many times the longest recent pause."""


@dataclass
class StepMeter:
    """Follows the steps of a job through its events, which are added in order. Its size is bounded."""

    step: int | None = None
    total: int | None = None
    process: int | None = None
    """The process that reports steps; None if a Hugging Face Trainer reports them through the runtime."""
    began: float = 0.0
    marks: list[tuple[float, int]] = field(default_factory=list)
    """The times and numbers of recent steps of this attempt, ascending."""

    def add(self, event: Mapping[str, Any]) -> None:
        """Ignores events of other kinds. Raises KeyError, TypeError or ValueError if the event lacks a field."""
        kind = event["event"]
        if kind == "attempt":
            self.marks, self.process = [], None
        elif kind == "phase" and event["phase"] == "train" and event["state"] == "ended":
            self.marks = []
        elif kind == "restored" and event["step"] is not None and not self.marks:
            self.step = int(event["step"])
        elif kind == "step" and event["step"] is not None:
            self._step(float(event["time"]), int(event["step"]), event.get("total"), event.get("pid"))

    def _step(self, time: float, step: int, total: int | None, process: int | None) -> None:
        if process is None and self.process is not None:
            return  # the script reports its steps itself
        if total is not None:
            self.total = total
        goes_back = bool(self.marks) and (step < self.marks[-1][1] or time < self.marks[-1][0])
        if goes_back or process != self.process:
            self.marks = []
        if not self.marks:
            self.began = time
        self.step, self.process = step, process
        self.marks.append((time, step))
        window = min(max(SHARE * (time - self.began), SHORTEST_WINDOW), LONGEST_WINDOW)
        while len(self.marks) > LEAST_MARKS and self.marks[1][0] <= time - window:
            del self.marks[0]
        if len(self.marks) > MOST_MARKS:
            del self.marks[1::2]

    @property
    def rate(self) -> float | None:
        """Steps per second; None before there are two steps, and after the training."""
        if not self.marks:
            return None
        (first, low), (last, high) = self.marks[0], self.marks[-1]
        return (high - low) / (last - first) if high > low and last > first else None

    def result(self, now: float, *, is_running: bool) -> dict[str, Any]:
        """The fields of a `JobDescription` about steps. ``now`` is in seconds since the epoch."""
        step, total = self.step, self.total
        is_known = step is not None and total is not None and 0 <= step <= total
        rate = self.rate if is_running else None
        idle = max(now - self.marks[-1][0], 0.0) if is_running and self.marks else 0.0
        pauses = [later - earlier for (earlier, _), (later, _) in zip(self.marks, self.marks[1:])]
        is_over = is_known and step == total
        has_stalled = not is_over and idle > max(LEAST_STALL, STALL_FACTOR * max(pauses, default=0.0))
        remaining = None
        if is_known and rate and not has_stalled:
            assert step is not None and total is not None
            remaining = round(max((total - step) / rate - idle, 0.0), 1)
        return {
            "step": step,
            "total_steps": total,
            "progress": step / total if is_known and step is not None and total else None,
            "step_rate": rate,
            "remaining_seconds": remaining,
            "stalled_seconds": round(idle, 1) if has_stalled else None,
        }

    def to_dict(self) -> dict[str, Any]:
        return dict(vars(self))

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> StepMeter:
        """The inverse of `to_dict`. Raises TypeError or ValueError."""
        return cls(**{**data, "marks": [(time, step) for time, step in data.get("marks", ())]})
