"""The states of a job."""

from __future__ import annotations

from enum import Enum


class JobStatus(str, Enum):
    """The state of a job. The last four are final."""

    PENDING = "Pending"
    RUNNING = "Running"
    STOPPING = "Stopping"
    COMPLETED = "Completed"
    FAILED = "Failed"
    STOPPED = "Stopped"
    """Stopped by a user or by a time limit."""
    INTERRUPTED = "Interrupted"
    """The platform reclaimed the machine (preemption, spot interruption, reboot)."""

    @property
    def is_final(self) -> bool:
        return self in (JobStatus.COMPLETED, JobStatus.FAILED, JobStatus.STOPPED, JobStatus.INTERRUPTED)

    def __str__(self) -> str:
        return self.value
