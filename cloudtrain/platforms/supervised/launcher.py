"""The host launcher: starts the hosts of a job, below a platform over job folders."""

from __future__ import annotations

from typing import Protocol

from cloudtrain.platforms.base import Request
from cloudtrain.platforms.supervised.root import JobFiles


class HostLauncher(Protocol):
    """Has the hosts of a job run: through a process of this machine, or through a scheduler.

    Whatever it starts writes the job's record and its other files; see `folder.JobFolder`.
    """

    def start(self, job: JobFiles, request: Request) -> None:
        """Start the hosts of ``job``, or put them into a queue. The job's folder has its request.

        Writes the job's first record, which is pending, before anything runs. From then on `is_alive` is true: a job
        that has a record and is not alive has ended.

        Raises PlatformError or StorageError if the job cannot be started; then nothing of it runs.
        """
        ...

    def signal(self, job: JobFiles, number: int) -> None:
        """Pass a signal on to the job: SIGTERM to stop it, SIGUSR1 to preempt it. Does nothing if it has ended."""
        ...

    def is_alive(self, job: JobFiles) -> bool:
        """Whether the job waits in a queue, or runs: whether its record may still change."""
        ...
