"""The host launcher of a supervised platform, which starts the hosts of a job."""

from __future__ import annotations

from typing import Protocol

from cloudtrain.platforms.base import Request
from cloudtrain.platforms.supervised.root import JobFiles


class HostLauncher(Protocol):
    """Starts the hosts of a job, with a process of this machine or a scheduler.

    The process that it starts writes the job's record and its other files; see `folder.JobFolder`.
    """

    def start(self, job: JobFiles, request: Request) -> None:
        """Start or queue the hosts of ``job``, whose folder contains its request.

        Writes the job's first record, which is pending, before anything runs. From then on `is_alive` is true until
        the job ends: a job with a record that is not alive has ended.

        Raises PlatformError or StorageError if the job cannot be started; then no part of it runs.
        """
        ...

    def signal(self, job: JobFiles, number: int) -> None:
        """Send a signal to the job: SIGTERM to stop it, SIGUSR1 to preempt it. Does nothing if it has ended."""
        ...

    def is_alive(self, job: JobFiles) -> bool:
        """Whether the job is queued or running, so its record may still change."""
        ...
