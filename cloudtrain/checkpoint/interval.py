"""How often to save: ``every="auto"``, and the formula behind it, which `cloudtrain.plan` uses, too."""

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
"""Failures per 1,000 days of a host that end a job: the hardware failures of Meta's clusters RSC-2 and RSC-1, and all
failures of its jobs with 1,024 GPUs. Kokolis et al. 2025, arXiv:2410.21680."""

FIRST_SECONDS = 30.0
"""From the start of the training to its first save: until then, the cost of a save is not known."""
LEAST_SECONDS = 5.0
"""Between two saves."""
LEAST_MTBF = 60.0
LONGEST = 100 * 365 * DAY
COMMITS = 4
"""Times that a commit takes: the least interval. The network and the storage are free in between."""
SAVES = 5
"""Of so many, the median counts: one may have waited for the storage."""
CHANGE = 1.25
"""The factor by which the interval changes before another event reports it."""


def job_mtbf(hosts: int, failures_per_1000_node_days: float, preempted_after: float = math.inf) -> float:
    """The mean time between interruptions of a job on ``hosts`` hosts, in seconds.

    1/M = hosts/M_failure + hosts/M_preemption: independent hosts, of which each stops the job. Kokolis et al. 2025,
    arXiv:2410.21680, section 3.

    Args:
        preempted_after: the mean time until the platform takes a spot host back, in seconds.
    """
    rate = hosts * (failures_per_1000_node_days / 1000 / DAY + 1 / preempted_after)
    return 1 / rate if rate else math.inf


def best_interval(mtbf: float, save: float) -> float:
    """The time between checkpoints that loses least, in seconds: sqrt(2 M δ).

    Young 1974, doi:10.1145/361147.361115; the first order of Daly 2006, doi:10.1016/j.future.2004.11.016.

    Args:
        mtbf: M, the mean time between interruptions.
        save: δ, for which a checkpoint stops the training.
    """
    return math.sqrt(2 * mtbf * save)


class JobFailures:
    """The interruptions of the job that this process is a rank of, as far as it can know them."""

    def __init__(self, environ: Mapping[str, str] = os.environ) -> None:
        attempt = environ.get("CLOUDTRAIN_ATTEMPT", "")
        self.count = int(attempt) if attempt.isdecimal() else 0
        self._hosts = _host_count(environ.get("SM_HOSTS", ""))
        self._ran_before = _seconds(environ.get("CLOUDTRAIN_RAN", ""))
        self._began = time.monotonic()

    def mtbf(self) -> float:
        """The time of the job per interruption; before the first, what is published for as many hosts."""
        expected = job_mtbf(self._hosts, FAILURES[1])
        if not self.count:
            return expected
        ran = self._ran_before + time.monotonic() - self._began  # a clock that is set changes nothing
        return min(max(ran / self.count, LEAST_MTBF), expected)


class AutoSchedule:
    """A `Schedule` by the cost of the saves and the failures of the job. It decides at each save for the next one.

    Until `best_interval` has passed, a save follows when the training has taken twice as long: a short job has one too.

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
    """Add the choice to the events of the job. Outside a job, it does nothing."""
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
    """Of two, the smaller one: the first save also allocates its memory."""
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
