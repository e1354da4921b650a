"""A platform on a scheduler that `Scheduler` describes, and how its jobs get into the queue and out of it."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

from cloudtrain._system.signals import SIGKILL
from cloudtrain.contract import FailureClass, FailureReport, JobStatus
from cloudtrain.contract.preemption import PREEMPT
from cloudtrain.errors import PlatformError
from cloudtrain.platforms.base import JobState, Request
from cloudtrain.platforms.batch.cluster import Cluster, open_cluster
from cloudtrain.platforms.batch.cluster_platform import ClusterJobs, ClusterPlatform, Ticket
from cloudtrain.platforms.batch.queue import Standing
from cloudtrain.platforms.batch.remote_root import RemoteRoot
from cloudtrain.platforms.batch.render import BatchOptions, check, render
from cloudtrain.platforms.batch.scheduler import WAITING, Commands, QueueEntry, Scheduler
from cloudtrain.platforms.batch.submitting import (
    Submitter,
    find_by_folder,
    find_unrecorded,
    is_same,
    never_queued,
    recorded,
)
from cloudtrain.platforms.common.platform_options import check_own_options
from cloudtrain.platforms.supervised.root import JobFiles
from cloudtrain.runtime.supervisor.submissions import Submission
from cloudtrain.spec import TrainingJob, convert

if TYPE_CHECKING:
    from cloudtrain.platforms.checks import Check


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


LINUX_SIGTERM = 15
RESUBMIT = "Submit the job again: it resumes from its last checkpoint."


class ScheduledJobs(ClusterJobs):
    """The jobs of one platform on one cluster, in one folder."""

    def __init__(self, platform: ScheduledPlatform, cluster: Cluster) -> None:
        self.name = platform.name
        self._platform = platform
        self.batch = BatchLauncher(platform.scheduler, cluster)
        super().__init__(cluster, self.batch)

    def render(self, job: TrainingJob) -> Request:
        return render(self._platform.scheduler, job, self._platform.options_of(job), self.cluster)

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
            return never_queued(self._platform.scheduler.product)
        try:
            entry = self.batch.ended(job)
        except PlatformError:
            entry = None
        return (entry and self._platform.scheduler.explain(entry)) or super().lost(job)

    def _why_waiting(self, job: JobFiles, status: JobStatus) -> str:
        if status.is_final:
            return ""
        entry = self.batch.standing(job)[0].row
        return entry.why if entry and entry.state == WAITING else ""


def over_limit(platform: str, limit: str, *, is_memory: bool = False) -> FailureReport:
    """The report of a job that its scheduler has ended because it was over a limit."""
    message = f"{platform} ended the job: it used more {limit} than it had asked for"
    if is_memory:
        hint, signal = "Ask for more with platform_options.mem.", SIGKILL
        return FailureReport(
            FailureClass.OUT_OF_MEMORY, message, hint, exit_code=128 + signal, time=time.time()
        )
    hint = f"Raise max_run, or choose a queue with a longer limit. {RESUBMIT}"
    return FailureReport(FailureClass.KILLED, message, hint, exit_code=128 + LINUX_SIGTERM, time=time.time())


class ScheduledPlatform(ClusterPlatform[ScheduledJobs]):
    """The base of the platforms of such schedulers."""

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
        from cloudtrain.platforms.checks import CheckStatus, Finding

        def answers() -> Finding:
            self._jobs(_ticket(options)).batch.commands.queue.check()
            where = options.login or "this machine"
            return Finding(CheckStatus.OK, f"{self.scheduler.product} answers on {where}")

        options = self.options_of(job)
        return {"cluster": answers}

    def _open(self, ticket: Ticket) -> ScheduledJobs:
        cluster = open_cluster(self.name, ticket.login, ticket.folder or None, self.scheduler.program)
        return ScheduledJobs(self, cluster)


def _ticket(options: BatchOptions) -> Ticket:
    return Ticket(options.login or "", options.folder or "")
