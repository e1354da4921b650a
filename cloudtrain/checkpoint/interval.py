"""How often to save: ``every="auto"``, and the formula behind it, which `cloudtrain.plan` also uses."""

from __future__ import annotations

import contextlib
import json
import math
import os
import time
from collections.abc import Mapping
from pathlib import Path

from cloudtrain import environment
from cloudtrain.checkpoint.retention import Every, Schedule, schedule
from cloudtrain.errors import CheckpointError
from cloudtrain.observe.events import EventLog
from cloudtrain.observe.progress import VARIABLE

DAY = 86400.0
FAILURES = (2.34, 6.50, 23.7)
"""Failures that end a job, per 1,000 host-days: the hardware failures of Meta's clusters RSC-2 and RSC-1, and all
failures of its jobs with 1,024 GPUs. Kokolis et al. 2025, arXiv:2410.21680."""

FIRST_SECONDS = 30.0
"""The time from the start of the training to its first save, before which the cost of a save is unknown."""
LEAST_SECONDS = 5.0
"""The shortest time between two saves."""
LEAST_MTBF = 60.0
LONGEST = 100 * 365 * DAY
COMMITS = 4
"""The shortest interval, as a multiple of the time of a commit, so that network and storage are idle in between."""
SAVES = 5
"""The number of recent saves whose median is used, because a single one may have waited for the storage."""
CHANGE = 1.25
"""The factor by which the interval changes before another event reports it."""


def job_mtbf(hosts: int, failures_per_1000_node_days: float, preempted_after: float = math.inf) -> float:
    """The mean time between interruptions of a job on ``hosts`` hosts, in seconds.

    1/M = hosts/M_failure + hosts/M_preemption: hosts fail independently, and any of them stops the job. Kokolis et al.
    2025, arXiv:2410.21680, section 3.

    Args:
        preempted_after: the mean time until the platform takes a spot host back, in seconds.
    """
    rate = hosts * (failures_per_1000_node_days / 1000 / DAY + 1 / preempted_after)
    return 1 / rate if rate else math.inf


def best_interval(mtbf: float, save: float) -> float:
    """The time between checkpoints that loses the least work, in seconds: sqrt(2 M δ).

    Young 1974, doi:10.1145/361147.361115; the first order of Daly 2006, doi:10.1016/j.future.2004.11.016.

    Args:
        mtbf: M, the mean time between interruptions.
        save: δ, the time for which a checkpoint stops the training.
    """
    return math.sqrt(2 * mtbf * save)


class JobFailures:
    """The interruptions of this rank's job, as far as the rank can observe them."""

    def __init__(self, environ: Mapping[str, str] = os.environ) -> None:
        attempt = environ.get("CLOUDTRAIN_ATTEMPT", "")
        self.count = int(attempt) if attempt.isdecimal() else 0
        self._hosts = _host_count(environ.get("SM_HOSTS", ""))
        self._ran_before = _seconds(environ.get("CLOUDTRAIN_RAN", ""))
        self._began = time.monotonic()

    def mtbf(self) -> float:
        """The time that the job ran per interruption; before the first, the published value for as many hosts."""
        expected = job_mtbf(self._hosts, FAILURES[1])
        if not self.count:
            return expected
        ran = self._ran_before + time.monotonic() - self._began  # monotonic: setting the clock has no effect
        return min(max(ran / self.count, LEAST_MTBF), expected)


class AutoSchedule:
    """A `Schedule` that follows the cost of saves and the failures of the job. Each save decides when the next is due.

    Early in a job, intervals start short and double up to `best_interval`, so that a short job has a checkpoint too.

    Args:
        most: the longest interval.
    """

    by_time = True

    def __init__(self, most: Every = None) -> None:
        self._most = schedule("30m" if most is None else most, "max_every")
        self._failures = JobFailures()
        self._stops: list[float] = []
        self._commits: list[float] = []
        self._began = self._saved_at = time.monotonic()
        self._has_begun = False
        self._seconds = FIRST_SECONDS
        self._reported = 0.0

    def is_due(self, step: int) -> bool:
        """See `Schedule.is_due`."""
        now = time.monotonic()
        if not self._has_begun:
            self._has_begun = True
            self._began = self._saved_at = now
        return self._most.is_due(step) or now - self._saved_at >= self._seconds

    def saved(self, step: int) -> None:
        """Record that ``step`` has been saved or restored."""
        self._most.saved(step)
        self._saved_at = time.monotonic()
        self._decide()

    def restored(self, step: int, job: str | None) -> None:
        """See `Schedule.restored`. A step that this job has saved is restored after a failure."""
        is_own = job is not None and job == environment.job_name()
        self._failures.count = max(self._failures.count, int(is_own))
        self.saved(step)

    def stopped(self, seconds: float) -> None:
        """See `Schedule.stopped`."""
        self._stops = [*self._stops, seconds][-SAVES:]
        self._decide()

    def committed(self, seconds: float) -> None:
        """See `Schedule.committed`."""
        self._commits = [*self._commits, seconds][-SAVES:]

    def _decide(self) -> None:
        if not self._stops:
            return
        stop, commit, mtbf = _median(self._stops), _median(self._commits or [0.0]), self._failures.mtbf()
        best = max(best_interval(mtbf, stop), COMMITS * commit, LEAST_SECONDS)
        self._seconds = min(best, max(self._saved_at - self._began, FIRST_SECONDS))
        limit = self._most.seconds
        seconds = best if limit is None else min(best, limit)
        if max(seconds, self._reported) > CHANGE * min(seconds, self._reported):
            self._reported = seconds
            _report(seconds, stop, commit, mtbf, self._failures.count)


def schedule_of(every: Every, most: Every) -> Schedule | AutoSchedule:
    """The schedule of a `Checkpointer`. Raises CheckpointError."""
    if every == "auto":
        return AutoSchedule(most)
    if most is not None:
        raise CheckpointError(f'max_every={most!r} is for every="auto"', hint="Omit it.")
    return schedule(every)


def _report(seconds: float, stop: float, commit: float, mtbf: float, failures: int) -> None:
    """Add the choice to the events of the job. Does nothing outside a job."""
    path = os.environ.get(VARIABLE)
    if not path or environment.rank() != 0:
        return
    reason = f"{failures} failure{'s' * (failures != 1)} so far" if failures else "no failure so far"
    text = (
        f"every {_span(seconds)}: a save takes {_span(stop)}, and {_span(commit)} in the background; {reason}"
    )
    with contextlib.suppress(OSError):
        EventLog(Path(path), os.environ.get("SM_CURRENT_HOST", "")).emit(
            "save_interval",
            text=text,
            seconds=round(seconds, 3),
            stop=round(stop, 6),
            commit=round(commit, 6),
            mtbf=round(mtbf, 1),
            failures=failures,
        )


def _span(seconds: float) -> str:
    if seconds < 0.1:
        return f"{1000 * seconds:.1f} ms"
    return f"{seconds:.1f} s" if seconds < 120 else f"{seconds / 60:.1f} min"


def _median(values: list[float]) -> float:
    """The median; of two values the smaller, as the first save also allocates its memory."""
    return sorted(values)[(len(values) - 1) // 2]


def _host_count(hosts: str) -> int:
    try:
        return max(len(json.loads(hosts)), 1)
    except (ValueError, TypeError):
        return 1


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        return 0.0
    return seconds if 0 <= seconds <= LONGEST else 0.0
