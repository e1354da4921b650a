"""The host launcher of a supervised platform, which starts the hosts of a job."""

from __future__ import annotations

from typing import Protocol

from cloudtrain.platforms.base import Request
from cloudtrain.platforms.supervised.root import JobFiles


class HostLauncher(Protocol):
    """Starts the hosts of a job, with a process of this machine or a scheduler.

    The process that it starts writes the job's record and its other files; see `folder.JobFolder`.
    """

    def start(self, draft: JobFiles, request: Request) -> None:
        """Start or queue the hosts of a job.

        ``draft`` is its folder, which contains its request and has a temporary name. Writes the first record, which is
        pending, and publishes the folder under the job's name (`JobFiles.publish`) before anything runs. From then on
        `is_alive` is true until the job ends: a job that is not alive has ended. A process that is killed at any moment
        thus leaves a job, or a folder that has no job's name.

        Raises PlatformError or StorageError if the job cannot be started, or FileExistsError if there is one of this
        name; then no part of it runs, and nothing has its name.
        """
        ...

    def signal(self, job: JobFiles, name: str) -> None:
        """Send a signal to the job: `preemption.STOP` or `preemption.PREEMPT`. Does nothing if it has ended."""
        ...

    def is_alive(self, job: JobFiles) -> bool:
        """Whether the job is queued or running, so its record may still change."""
        ...
