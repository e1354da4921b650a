"""The time limit of a running job, and the notice ahead of it.

Slurm's limit may come from the job, the partition, a QOS or an administrator: only the running job knows it. The script
asks for a notice as if the limit were long. In a shorter one, that comes too early, and counts later.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

END_SECONDS = 120
"""The time for the end of a job beyond its grace: the last uploads, and the end of all processes."""
EARLY_SECONDS = 60
"""How much earlier than asked Slurm may send a signal."""
LARGEST_PART = 3
"""The notice takes at most a third of the time."""


def notice_seconds(stop_grace: float, limit: float | None = None) -> float:
    """How long before the time limit a job begins to end. Half of it is enough for the grace of at most 120 s."""
    notice = stop_grace + END_SECONDS
    return notice if limit is None else min(notice, limit / LARGEST_PART)


@dataclass(frozen=True)
class TimeLimit:
    """When a job started and when Slurm ends it, in seconds since the epoch."""

    start: float
    end: float

    @property
    def seconds(self) -> float:
        return self.end - self.start

    def spare_seconds(self, stop_grace: float, now: float) -> float:
        """How long the job may still train after a notice that came at ``now``; 0 if that is not too early."""
        asked, needed = notice_seconds(stop_grace), notice_seconds(stop_grace, self.seconds)
        left = self.end - now
        if needed == asked or left > asked + EARLY_SECONDS:  # a long limit, or not a notice of its end
            return 0.0
        return max(left - needed, 0.0)


def parse_time_limit(shown: str, environ: Mapping[str, str]) -> TimeLimit | None:
    """The limit of a job; None if it has none, or Slurm does not show it.

    Args:
        shown: the output of ``scontrol show job --oneliner``, with ``SLURM_TIME_FORMAT=%s``.
        environ: of the batch step. Later versions of Slurm write the times there.
    """
    times = []
    for name, variable in (("StartTime", "SLURM_JOB_START_TIME"), ("EndTime", "SLURM_JOB_END_TIME")):
        found = re.search(rf" {name}=(\d+)\b", shown)
        text = found[1] if found else environ.get(variable, "")
        if not text.isdigit():
            return None
        times.append(float(text))
    return TimeLimit(*times) if times[0] < times[1] else None
