"""A rank's report of its training steps, from which the goodput of the job is computed.

Rank 0 appends events to the job's: ``step`` after the first step and from time to time, ``restored`` after a restore. A
step costs one read of the clock. Outside a job, and on other ranks, nothing is reported.
"""

from __future__ import annotations

import atexit
import contextlib
import math
import os
import sys
import time
from collections.abc import Iterator
from operator import index
from pathlib import Path

from cloudtrain.contract.documents import LARGEST_NUMBER
from cloudtrain.observe import steady
from cloudtrain.observe.events import EventLog, to_line

VARIABLE = "CLOUDTRAIN_EVENTS_FILE"
"""The file of the job's events."""

INTERVAL = 5.0
"""The most seconds between two events."""
FIRST_INTERVAL = 0.5
SHARE = 0.01
"""The interval as a share of the time since the first step, within these two limits. The steps of a killed rank in
its last interval are not reported."""


class Progress:
    """The steps of this process."""

    def __init__(self) -> None:
        self._process = os.getpid()
        path = os.environ.get(VARIABLE)
        self._log = EventLog(Path(path), os.environ.get("SM_CURRENT_HOST", "")) if path else None
        self._steps = 0
        self.number: int | None = None
        """The last step that was reported."""
        self.total: int | None = None
        """The number of the last step of the training, if the script has reported it."""
        self._done_at = 0.0
        """When the last step was done, on the clock of `time.monotonic`."""
        self._due_at = -math.inf
        """When the next event is due."""
        self._began_at = 0.0
        self._reported_steps = self._steps_at_save = 0
        self._stalled = 0.0
        self._is_stalled = False

    def step(self, number: int | None, ago: float = 0.0) -> None:
        """Record that a step was done ``ago`` seconds ago."""
        self._steps += 1
        if number is not None:
            self.number = number
        now = time.monotonic()
        self._done_at = now - ago
        if now >= self._due_at:
            if not self._reported_steps:
                atexit.register(self.report)
                self._began_at = now
            self.report()

    def report_due(self) -> None:
        """Report the last step, if the next event is due."""
        if time.monotonic() >= self._due_at:
            self.report()

    def saved(self, number: int) -> None:
        """Record that the state after step ``number`` is being saved."""
        if self.number != number or self._steps == self._steps_at_save:
            self.step(number)  # it was not reported: the script may only save
        self._steps_at_save = self._steps

    def report(self) -> None:
        """Append an event about the last step, unless it was reported. A later report makes up for a failing disk."""
        if self._steps == self._reported_steps or os.getpid() != self._process:
            return
        now = time.monotonic()
        self._reported_steps = self._steps
        self._due_at = now + min(max(SHARE * (now - self._began_at), FIRST_INTERVAL), INTERVAL)
        ago = now - self._done_at
        total = {} if self.total is None else {"total": self.total}
        stalled = round(self._stalled, 3)
        self._emit("step", ago, step=self.number, **total, stalled=stalled, pid=self._process)

    @contextlib.contextmanager
    def stalled(self) -> Iterator[None]:
        """Measure how long the training waits for a save in the body."""
        if self._is_stalled:  # within another one
            yield
            return
        self._is_stalled, began = True, time.monotonic()
        try:
            yield
        finally:
            self._is_stalled = False
            self._stalled += time.monotonic() - began

    @contextlib.contextmanager
    def restoring(self) -> Iterator[list[int]]:
        """Measure a restore in the body, which appends the restored step to the list, if there is one."""
        began = time.monotonic()
        restored: list[int] = []
        yield restored
        if os.getpid() == self._process:
            self.report()
            seconds = round(time.monotonic() - began, 3)
            self._emit("restored", 0.0, step=restored[-1] if restored else None, seconds=seconds)

    def _emit(self, event: str, ago: float, **fields: object) -> None:
        """Append an event, without retries: a failing disk must neither end nor delay the training."""
        if self._log is None or current_rank() != 0:
            return
        log = EventLog(self._log.path, self._log.source, clock=lambda: steady.now() - ago)
        with contextlib.suppress(OSError):
            log.append(to_line(log.record(event, **fields)))


def current_rank() -> int:
    """The rank of this process in ``torch.distributed`` if the script has initialized it, else in its launcher.

    -1 if the launcher's variable is not a number.
    """
    from cloudtrain.contract.rank import LauncherEnv, with_rank

    dist = sys.modules.get("torch.distributed")
    if dist is not None and dist.is_available() and dist.is_initialized():
        return int(dist.get_rank())
    environ = with_rank(os.environ)
    rank = environ.get(LauncherEnv.detect(environ).rank, "0")
    return int(rank) if rank.isdecimal() else -1


_own: Progress | None = None


def own_progress() -> Progress:
    """The steps of this process; a forked child has its own."""
    global _own
    if _own is None or _own._process != os.getpid():
        _own = Progress()
    return _own


def report_step(step: int | None = None, total_steps: int | None = None) -> None:
    """Report that a training step is done: cheap enough for every step.

    `Checkpointer.maybe_save` and the optimizers of `cloudtrain.distributed.torch` call this. Call it in a training
    loop that uses neither, on every rank: the goodput of a job is the share of its time that went into steps.

    Args:
        step: the number of the step. After a restart, the numbers show which steps are computed again.
        total_steps: the number of the last step. With both, cloudtrain shows the remaining time of the training.

    Raises:
        TypeError, ValueError: ``total_steps`` is not a whole number from 1 on.
    """
    progress = own_progress()
    if total_steps is not None and total_steps != progress.total:
        progress.total = whole_total(total_steps)
    progress.step(step)


def whole_total(total_steps: object) -> int:
    """``total_steps``, checked. Raises TypeError or ValueError."""
    total = index(total_steps)  # type: ignore[arg-type]
    if not 1 <= total <= LARGEST_NUMBER:
        raise ValueError(f"total_steps must be from 1 on, not {total}")
    return total
