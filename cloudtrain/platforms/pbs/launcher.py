"""The host launcher of PBS Professional, Torque and Cobalt."""

from __future__ import annotations

import time

from cloudtrain.errors import PlatformError
from cloudtrain.platforms.base import Request
from cloudtrain.platforms.batch.cluster import Cluster
from cloudtrain.platforms.batch.placement import SCRIPT, place_job
from cloudtrain.platforms.batch.submissions import (
    SUBMISSIONS,
    Submission,
    parse_submissions,
    submissions_to_json,
)
from cloudtrain.platforms.pbs.queue import ENDED, WAITING, QueueEntry, short_number
from cloudtrain.platforms.pbs.scheduler import Scheduler
from cloudtrain.platforms.supervised.launcher import PREEMPT
from cloudtrain.platforms.supervised.root import JobFiles

ALIVE_SECONDS = 5.0
"""How long an answer of the queue counts."""


class PbsLauncher:
    """A `HostLauncher` that hands jobs to ``qsub``."""

    def __init__(self, platform: str, cluster: Cluster) -> None:
        self._cluster = cluster
        self._scheduler = Scheduler(platform, cluster.shell)
        self._platform = platform
        self._entries: dict[str, QueueEntry] = {}
        self._watched: dict[str, str] = {}
        """The numbers of the jobs that were asked for, by name."""
        self._asked = float("-inf")

    def start(self, draft: JobFiles, request: Request) -> None:
        place_job(self._cluster, draft, request)
        job = draft.publish(request.job_name)
        try:
            number = self._scheduler.submit(self._cluster.job_folder(job.name), SCRIPT)
        except BaseException:
            self._cluster.root.remove(job.name)
            raise
        job.write(SUBMISSIONS, submissions_to_json([Submission(number, time=time.time())]))

    def signal(self, job: JobFiles, name: str) -> None:
        """A job that runs finds the mark of a stop in its folder. The schedulers would signal all its processes."""
        if name == PREEMPT:
            raise PlatformError(
                f"a job on {self._platform} cannot be preempted by hand",
                hint="Stop it, and submit it again: it resumes from its last checkpoint.",
            )
        number = self._number(job)
        entry = self.entry(job, fresh=True) if number else None
        if entry and entry.state == WAITING:
            self._scheduler.delete(number)
            self._asked = float("-inf")

    def is_alive(self, job: JobFiles) -> bool:
        if not self._number(job):
            return True  # it is being submitted
        entry = self.entry(job)
        return entry is not None and entry.state != ENDED

    def entry(self, job: JobFiles, *, fresh: bool = False) -> QueueEntry | None:
        """The job in the queue; None if it is not there. One command asks for all jobs that this process watches."""
        number = self._number(job)
        is_new = (
            self._watched.setdefault(job.name, number) != number or short_number(number) not in self._entries
        )
        self._watched[job.name] = number
        if fresh or is_new or time.monotonic() - self._asked > ALIVE_SECONDS:
            self._entries = self._scheduler.entries(list(self._watched.values()))
            self._asked = time.monotonic()
        entry = self._entries.get(short_number(number))
        if entry is None or entry.state == ENDED:
            del self._watched[job.name]
        return entry

    def ended(self, job: JobFiles) -> QueueEntry | None:
        """The scheduler's record of a job that has ended; None if it keeps none."""
        number = self._number(job)
        if not number:
            return None
        entry = self.entry(job)
        return entry or self._scheduler.ended(number)

    def _number(self, job: JobFiles) -> str:
        known = parse_submissions(job.read(SUBMISSIONS))
        return known[-1].number if known else ""
