"""Platforms on the schedulers that `Scheduler` describes, and how their jobs enter and leave the queue."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from cloudtrain._system.signals import SIGKILL
from cloudtrain.contract import FailureClass, FailureReport, JobStatus
from cloudtrain.contract.preemption import PREEMPT
from cloudtrain.errors import PlatformError
from cloudtrain.platforms.base import JobState, Request
from cloudtrain.platforms.batch.cluster import Cluster, open_cluster
from cloudtrain.platforms.batch.cluster_jobs import ClusterJobs
from cloudtrain.platforms.batch.cluster_platform import ClusterPlatform, Ticket
from cloudtrain.platforms.batch.render import BatchOptions, check, render
from cloudtrain.platforms.batch.scheduler import SCHEDULER_LOG, WAITING, BatchQueue, QueueEntry, Scheduler
from cloudtrain.platforms.batch.submitting import is_same, never_queued, recorded
from cloudtrain.platforms.common.platform_options import check_own_options
from cloudtrain.platforms.supervised.root import JobFiles
from cloudtrain.spec import TrainingJob, convert

if TYPE_CHECKING:
    from cloudtrain.platforms.checks import Check


LINUX_SIGTERM = 15
RESUBMIT = "Submit the job again: it resumes from its last checkpoint."


class ScheduledJobs(ClusterJobs[QueueEntry]):
    """The jobs of one platform on one cluster, in one folder."""

    def __init__(self, platform: ScheduledPlatform, cluster: Cluster) -> None:
        self.name = platform.name
        self._platform = platform
        self._scheduler = platform.scheduler
        self.product, self.program = self._scheduler.product, self._scheduler.program
        self._queue = BatchQueue(self._scheduler, cluster.shell)
        super().__init__(cluster)

    def queue(self, cluster: str = "") -> BatchQueue:
        return self._queue

    def refusal(self, complaint: str) -> PlatformError:
        return self._queue.refusal(complaint)

    def signs(self, job_name: str, number: str) -> tuple[list[str], list[str]]:
        return [job_name, self._scheduler.short_name(job_name)], [job_name]

    def start(self, draft: JobFiles, request: Request) -> None:
        self._submit_new(draft, request, f"chmod +x job.sh && {self._scheduler.submit}")
        self._queue.expire()

    def signal(self, job: JobFiles, name: str) -> None:
        """A running job finds the stop mark in its folder: the schedulers would signal all its processes."""
        if name == PREEMPT:
            raise PlatformError(
                f"a job on {self.name} cannot be preempted by hand",
                hint="Stop it, and submit it again: it resumes from its last checkpoint.",
            )
        asked = time.time()
        self._queue.renew()
        standing, submission = self._standing(job)
        if standing.is_alive and standing.taken < asked:
            silence = self._queue.silence or f"{self.product} does not answer"
            raise self._not_unqueued(job, f"{silence}: job {job.name} was not taken out of the queue")
        if submission and standing.row and standing.row.state == WAITING:
            self._queue.delete(submission.number)
            self._queue.expire()

    def _ended(self, job: JobFiles) -> QueueEntry | None:
        """The scheduler's record of a job that has ended; None if it keeps none."""
        standing, submission = self._standing(job)
        if submission is None:
            return None
        entry = standing.row or self._queue.ended(submission.number)
        return entry if entry and is_same(entry, *self.signs(job.name, submission.number)) else None

    def render(self, job: TrainingJob) -> Request:
        return render(self._scheduler, job, self._platform.options_of(job), self.cluster)

    def states(self, job_name: str) -> list[JobState]:
        """Why the job waits in the queue, or has no processors at the moment."""
        job = self._existing(job_name)
        record = self._settled(job)
        states = [JobState(record.submitted_at, "Pending", self._why_waiting(job, record.status))]
        if record.started_at is not None:
            states.append(JobState(record.started_at, "Running"))
        if record.ended_at is not None:
            states.append(JobState(record.ended_at, str(record.status)))
        return states

    def lost(self, job: JobFiles) -> FailureReport:
        """The scheduler's reason, if it has recorded one."""
        if not recorded(job):
            return never_queued(self._scheduler.product)
        try:
            entry = self._ended(job)
        except PlatformError:
            entry = None
        return (entry and self._scheduler.explain(entry)) or super().lost(job)

    def _why_waiting(self, job: JobFiles, status: JobStatus) -> str:
        if status.is_final:
            return ""
        entry = self.standing(job).row
        return entry.why if entry and entry.state == WAITING else ""


def over_limit(platform: str, limit: str, *, is_memory: bool = False) -> FailureReport:
    """The report of a job that its scheduler ended because it exceeded a limit."""
    message = f"{platform} ended the job: it used more {limit} than it had asked for"
    if is_memory:
        hint, code = "Ask for more with platform_options.mem.", 128 + SIGKILL
        return FailureReport(FailureClass.OUT_OF_MEMORY, message, hint, exit_code=code, time=time.time())
    hint = f"Raise max_run, or choose a queue with a longer limit. {RESUBMIT}"
    return replace(ended_by(message, 128 + LINUX_SIGTERM), hint=hint)


def ended_by(message: str, exit_code: int, *, could_start: bool = True) -> FailureReport:
    """The report of a job that its scheduler ended, or, unless ``could_start``, never started."""
    kind = FailureClass.KILLED if could_start else FailureClass.PLATFORM
    hint = RESUBMIT if could_start else f"See {SCHEDULER_LOG} in the folder of the job."
    return FailureReport(kind, message, hint, exit_code=exit_code, time=time.time())


class ScheduledPlatform(ClusterPlatform[ScheduledJobs]):
    """The base of the platforms on the schedulers that `Scheduler` describes."""

    scheduler: ClassVar[Scheduler]
    options: ClassVar[type[BatchOptions]]

    def options_of(self, job: TrainingJob) -> BatchOptions:
        """Raises InvalidJob."""
        check_own_options(self.name, job.platform_options)
        return convert(job.platform_options, self.options, "platform_options")

    def resolve(self, job: TrainingJob) -> TrainingJob:
        options = self.options_of(job)
        check(self.name, job)
        return self._resolve_on(self._jobs(_ticket(options)), job, lambda job: _ticket(self.options_of(job)))

    def render(self, job: TrainingJob) -> Request:
        return self._jobs(_ticket(self.options_of(job))).render(job)

    def preflight(
        self, job: TrainingJob, request: Request | None, imports: Sequence[str]
    ) -> Mapping[str, Check]:
        from cloudtrain.platforms.checks import Finding, ok

        def answers() -> Finding:
            self._jobs(_ticket(options)).queue().check()
            where = options.login or "this machine"
            return ok(f"{self.scheduler.product} answers on {where}")

        options = self.options_of(job)
        return {"cluster": answers}

    def _open(self, ticket: Ticket) -> ScheduledJobs:
        cluster = open_cluster(self.name, ticket.login, ticket.folder or None, self.scheduler.program)
        return ScheduledJobs(self, cluster)


def _ticket(options: BatchOptions) -> Ticket:
    return Ticket(options.login or "", options.folder or "")
