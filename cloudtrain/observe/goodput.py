"""Goodput: the share of a job's time that went into training steps that count.

See docs/reference/goodput.md for the definitions. The time of a job is divided completely: `Goodput.productive` and the
values of `Goodput.lost` add up to `Goodput.wall`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import field
from typing import Any

from cloudtrain._dataclass import dataclass
from cloudtrain.observe.hanging import HANGING, read_hanging
from cloudtrain.observe.progress import INTERVAL

QUEUE, START, RESTORE, CHECKPOINTS, RECOMPUTED, HANG, RESTART, END = LOST = (
    "queue",
    "start",
    "restore",
    "checkpoints",
    "recomputed",
    "hang",
    "restart",
    "end",
)
MOST_MARKS = 1024
KINDS = ("attempt", "queued", "phase", "restored", "step", "retry", HANGING)
"""The events that goodput is computed from."""


@dataclass(frozen=True)
class Goodput:
    """The goodput of a job so far. All times are in seconds."""

    goodput: float
    """``productive`` / ``wall``, from 0 to 1."""
    wall: float
    """The time from the submission to the end, or to now."""
    productive: float
    """The time in steps whose result was kept."""
    lost: Mapping[str, float]
    """The lost time by cause: see `LOST`. Causes that cost nothing are left out."""
    measured_by: str
    """``steps``; or ``script`` if no steps were reported: the time of the script then counts as productive."""


@dataclass
class GoodputMeter:
    """Divides the time of a job according to its events, which are added in order. Its size is bounded."""

    began: float | None = None
    """The start of the first attempt."""
    attempts: int = 0
    idle_since: float = 0.0
    """When the current attempt began; after a failure, the end of the last step before it."""
    queued_since: float | None = None
    """When the job began to wait in the queue for its next attempt."""
    waited: float = 0.0
    """Seconds in the queue between two attempts."""
    cause: str = START
    """Why there have been no steps since then."""
    last: float | None = None
    """The end of the last step, unless the training has been interrupted since."""
    process: int | None = None
    stalled: float = 0.0
    """Seconds that rank 0 had waited for saves at its last step."""
    restoring: float = 0.0
    """Seconds of restores since `idle_since`."""
    hung_since: float | None = None
    """The last sign of life before a hang that is not over."""
    hung_until: float = 0.0
    """The end of the last hang, after which the next one counts, as a rank may have ended it without a sign of life."""
    hung: float = 0.0
    """Seconds of hangs since the last step, or since the current attempt began."""
    restored: int | None = None
    """The step that was restored since then; -1 if there was none to restore."""
    productive: float = 0.0
    lost: dict[str, float] = field(default_factory=dict)
    marks: list[tuple[int, float]] = field(default_factory=list)
    """Steps, ascending, with the productive time until the end of each."""
    has_steps: bool = False
    train_began: float | None = None
    train_ended: float | None = None
    """When the script ended, in the current attempt."""

    def add(self, event: Mapping[str, Any]) -> None:
        """Raises KeyError, TypeError or ValueError if the event lacks a field."""
        kind = event["event"]
        if kind not in KINDS:
            return
        time = _number(event["time"])
        if kind == "attempt":
            self._begin_attempt(time)
        elif kind == "queued":
            self._interrupt()
            self.train_began = self.train_ended = None
            self.queued_since = min(_number(event["since"]), time)
            self._end_hang(self.queued_since)
        elif kind == "retry":
            self._end_hang(time)
        elif kind == HANGING:
            found = read_hanging(event)
            if found is None:
                self._end_hang(time)
            else:
                last = self.idle_since if self.last is None else self.last
                self.hung_since = max(found.since, last, self.hung_until)
        elif kind == "phase" and event["phase"] == "train":
            if event["state"] == "ended":
                self.train_ended = time
            elif self.train_began is None:
                self.train_began = time
        elif kind == "restored":
            step = event["step"]
            self._restore(_number(event["seconds"]), -1 if step is None else int(step))
        elif kind == "step":
            step = event["step"]
            if event.get("pid") is None and self.process is not None:
                return  # from a Hugging Face Trainer, in a script that reports its steps itself
            self._step(time, None if step is None else int(step), _number(event["stalled"]), event.get("pid"))

    def _begin_attempt(self, time: float) -> None:
        if self.began is None:
            self.began = self.idle_since = time
        if self.attempts:
            self._interrupt()
        self._end_hang(time)
        self._lose(HANG, self.hung)
        self.idle_since, self.hung = self.idle_since + self.hung, 0.0
        waited, self.queued_since = self._waiting(time), None
        self.waited += waited
        self.idle_since += waited
        self.attempts += 1
        self.train_began = self.train_ended = None

    def _waiting(self, time: float) -> float:
        """How long the job has waited in the queue for its next attempt."""
        return 0.0 if self.queued_since is None else max(time - self.queued_since, 0.0)

    def _interrupt(self) -> None:
        """Record that the training was interrupted, which costs the time from its last step to the next one."""
        if self.last is not None:
            self.idle_since, self.last = self.last, None
            self.restoring = 0.0
        self.cause = RESTART
        self.restored = None

    def _end_hang(self, time: float) -> None:
        if self.hung_since is not None:
            self.hung += max(time - self.hung_since, 0.0)
            self.hung_since, self.hung_until = None, time

    def _restore(self, seconds: float, step: int) -> None:
        self.restored = step
        self.restoring += max(seconds, 0.0)

    def _step(self, time: float, step: int | None, stalled: float, process: Any) -> None:
        if self.hung_since is not None and time > self.hung_since:
            self._end_hang(time)
        goes_back = step is None or self._goes_back(step)
        if self.last is not None and process != self.process and (goes_back or self.restored is not None):
            # a launcher has restarted the ranks
            restored, restoring = self.restored, self.restoring
            self._interrupt()
            self.restored, self.restoring = restored, restoring
        elif self.last is not None and step is not None and self.restored is not None and goes_back:
            self.idle_since, self.last, self.cause = self.last, None, RESTART
        if self.last is None:
            self._resume(time, step)
        else:
            self._continue(time, stalled)
        self.process, self.stalled, self.has_steps = process, stalled, True
        if step is not None and (not self.marks or step > self.marks[-1][0]):
            self.marks.append((step, self.productive))
            if len(self.marks) > MOST_MARKS:
                del self.marks[1::2]

    def _goes_back(self, step: int) -> bool:
        """Whether the training computes steps again after a restore; a script may also restore to evaluate."""
        return bool(self.marks) and step <= self.marks[-1][0]

    def _continue(self, time: float, stalled: float) -> None:
        """Record the step that follows `last`."""
        assert self.last is not None
        left = max(time - self.last, 0.0)
        lost = ((HANG, self.hung), (CHECKPOINTS, stalled - self.stalled), (RESTORE, self.restoring))
        for cause, seconds in lost:
            seconds = min(max(seconds, 0.0), left)
            self._lose(cause, seconds)
            left -= seconds
        self.productive += left
        self.last, self.restoring, self.restored, self.hung = max(time, self.last), 0.0, None, 0.0

    def _resume(self, time: float, step: int | None) -> None:
        """Record the first step since `idle_since`."""
        if self.has_steps:
            base = self.restored if self.restored is not None else -1 if step is None else step - 1
            kept = self._productive_until(base)
            self._lose(RECOMPUTED, self.productive - kept)
            self.productive = kept
            self.marks = [mark for mark in self.marks if mark[0] <= base]
            if base >= 0 and (not self.marks or self.marks[-1][0] < base):
                self.marks.append((base, kept))
        idle = max(time - self.idle_since, 0.0)
        hung = min(self.hung, idle)
        restoring = min(self.restoring, idle - hung)
        self._lose(HANG, hung)
        self._lose(RESTORE, restoring)
        self._lose(self.cause, idle - hung - restoring)
        self.last, self.restoring, self.restored, self.hung = time, 0.0, None, 0.0

    def _productive_until(self, step: int) -> float:
        """The productive time up to the end of ``step``; between two marks, in proportion to the steps."""
        before = (0, 0.0)
        for mark in self.marks:
            if mark[0] > step:
                if mark is self.marks[0]:
                    return 0.0
                share = (step - before[0]) / (mark[0] - before[0])
                return before[1] + share * (mark[1] - before[1])
            before = mark
        return self.productive if self.marks else 0.0

    def _lose(self, cause: str, seconds: float) -> None:
        if seconds > 0:
            self.lost[cause] = self.lost.get(cause, 0.0) + seconds

    def result(self, submitted_at: float, ended_at: float | None, now: float) -> Goodput | None:
        """The goodput until ``ended_at``, or until ``now`` if the job has not ended; None before its first attempt.

        All times are in seconds since the epoch.
        """
        end = now if ended_at is None else ended_at
        if ended_at is None and self.last is not None and 0 <= now - self.last < 2 * INTERVAL:
            end = self.last  # the next event will show how the time since then was used
        wall = end - submitted_at
        if self.began is None or not wall > 0:
            return None
        lost = dict.fromkeys(LOST, 0.0)
        lost.update(self.lost)
        began = min(max(submitted_at, self.began), end)
        waiting = self._waiting(end)
        waited = self.waited + waiting
        lost[QUEUE] = began - submitted_at + waited
        productive = self.productive
        hung = self.hung + (0.0 if self.hung_since is None else max(end - self.hung_since, 0.0))
        if self.last is not None:
            left = max(end - self.last, 0.0)
            hung = min(hung, left)
            lost[HANG] += hung
            lost[END] = left - hung
        elif not self.has_steps:
            productive = self._divide_by_script(lost, began, end, waited, hung)
        else:
            idle = max(end - self.idle_since - waiting, 0.0)
            hung = min(hung, idle)
            restoring = min(self.restoring, idle - hung)
            lost[HANG] += hung
            lost[RESTORE] += restoring
            lost[self.cause] += idle - hung - restoring
        productive = min(max(wall - math.fsum(lost.values()), 0.0), wall) if self.has_steps else productive
        lost = {cause: round(seconds, 3) for cause, seconds in lost.items() if seconds >= 0.0005}
        measured_by = "steps" if self.has_steps else "script"
        return Goodput(round(productive / wall, 4), round(wall, 3), round(productive, 3), lost, measured_by)

    def _divide_by_script(
        self, lost: dict[str, float], began: float, end: float, waited: float, hung: float
    ) -> float:
        """The time of the script in the current attempt; all time before it is lost."""
        train = end if self.train_began is None else min(max(self.train_began, began), end)
        ended = end if self.train_ended is None else min(max(self.train_ended, train), end)
        restoring = min(self.restoring, ended - train)
        hung = min(hung, ended - train - restoring)
        lost[RESTORE] = restoring
        lost[self.cause] = max(train - began - waited - lost[HANG], 0.0)
        lost[HANG] += hung
        lost[END] = end - ended
        return ended - train - restoring - hung

    def to_dict(self) -> dict[str, Any]:
        return dict(vars(self))

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> GoodputMeter:
        """The inverse of `to_dict`. Raises TypeError or ValueError."""
        return cls(**{**data, "marks": [(step, seconds) for step, seconds in data["marks"]]})


def _number(value: Any) -> float:
    """``value``, if it is a finite number. Raises TypeError or ValueError."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError
    if not math.isfinite(value):
        raise ValueError
    return float(value)
