"""The states of a job."""

from __future__ import annotations

from enum import Enum


class JobStatus(str, Enum):
    """Where a job is in its life. The last four are final."""

    PENDING = "Pending"
    RUNNING = "Running"
    STOPPING = "Stopping"
    COMPLETED = "Completed"
    FAILED = "Failed"
    STOPPED = "Stopped"
    """Somebody asked for the stop, or a time limit did."""
    INTERRUPTED = "Interrupted"
    """The platform took the machine away (preemption, spot, reboot notice)."""

    @property
    def is_final(self) -> bool:
        return self in (JobStatus.COMPLETED, JobStatus.FAILED, JobStatus.STOPPED, JobStatus.INTERRUPTED)

    def __str__(self) -> str:
        return self.value
