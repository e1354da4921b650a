"""The host launcher of a scheduler that `Scheduler` describes."""

from __future__ import annotations

import time

from cloudtrain.contract.preemption import PREEMPT
from cloudtrain.errors import PlatformError
from cloudtrain.platforms.base import Request
from cloudtrain.platforms.batch.cluster import Cluster
from cloudtrain.platforms.batch.queue import Standing
from cloudtrain.platforms.batch.remote_root import RemoteRoot
from cloudtrain.platforms.batch.scheduler import WAITING, Commands, QueueEntry, Scheduler
from cloudtrain.platforms.batch.submitting import (
    Submitter,
    find_by_folder,
    find_unrecorded,
    is_same,
    recorded,
)
from cloudtrain.platforms.supervised.root import JobFiles
from cloudtrain.runtime.supervisor.submissions import Submission


class BatchLauncher:
    """A `HostLauncher` that hands jobs to a scheduler."""

    site = ":"  # the number has the name of the server, or there is one

    def __init__(self, scheduler: Scheduler, cluster: Cluster) -> None:
        self._cluster = cluster
        self._scheduler = scheduler
        self.commands = Commands(scheduler, cluster.shell)
        self.product, self.program = scheduler.product, scheduler.program
        self.refusal = self.commands.refusal
        self._submitter = Submitter(cluster, self)

    def start(self, draft: JobFiles, request: Request) -> None:
        self._submitter.start(draft, request, f"chmod +x job.sh && {self._scheduler.submit}")
        self.commands.queue.expire()

    def find(self, job: JobFiles) -> tuple[Submission | None, float]:
        since = job.record().submitted_at
        rows, asked = self.commands.queue.rows(since)
        folder = self._cluster.job_folder(job.name)
        number = find_by_folder(rows, self._names(job), folder, since, is_here=not self._cluster.login)
        return Submission(number, time=since) if number else None, asked

    def signal(self, job: JobFiles, name: str) -> None:
        """A job that runs finds the mark of a stop in its folder. The schedulers would signal all its processes."""
        if name == PREEMPT:
            raise PlatformError(
                f"a job on {self._scheduler.platform} cannot be preempted by hand",
                hint="Stop it, and submit it again: it resumes from its last checkpoint.",
            )
        asked = time.time()
        self.commands.queue.renew()
        standing, number = self.standing(job)
        if standing.is_alive and standing.taken < asked:
            silence = self.commands.queue.silence or f"{self.product} does not answer"
            raise PlatformError(
                f"{silence}: job {job.name} was not taken out of the queue",
                hint="The job is marked to stop: if it runs, it stops now; if it waits, it stops when it starts. To "
                f"take it out of the queue, run the command again later: cloudtrain stop {job.name}",
            )
        if standing.row and standing.row.state == WAITING:
            self.commands.delete(number)
            self.commands.queue.expire()

    def is_alive(self, job: JobFiles) -> bool:
        is_alive = self.standing(job)[0].is_alive
        if not is_alive and isinstance(self._cluster.root, RemoteRoot):
            self._cluster.root.forget()  # files that were read before may be older than its end
        return is_alive

    def standing(self, job: JobFiles) -> tuple[Standing[QueueEntry], str]:
        """The job in the queue, and its number there; empty if it has none. Another job with its number is not it."""
        known = recorded(job)
        if not known:
            found, may_come = find_unrecorded(job, self.find)
            if found is None:
                return Standing(may_come), ""
            known = [found]
        number = known[-1].number
        standing = self.commands.queue.look(number, known[-1].time)
        if standing.row and not self._is(standing.row, job):
            return Standing(False, taken=standing.taken), number
        return standing, number

    def ended(self, job: JobFiles) -> QueueEntry | None:
        """The scheduler's record of a job that has ended; None if it keeps none."""
        standing, number = self.standing(job)
        entry = standing.row or (self.commands.ended(number) if number else None)
        return entry if entry and self._is(entry, job) else None

    def _is(self, entry: QueueEntry, job: JobFiles) -> bool:
        return is_same(entry, self._names(job), [job.name])

    def _names(self, job: JobFiles) -> list[str]:
        """The names of a job in the queue."""
        return [job.name, self._scheduler.short_name(job.name)]
