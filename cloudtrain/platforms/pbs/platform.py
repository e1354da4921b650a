"""The platforms of PBS Professional and OpenPBS, of Torque, and of Cobalt."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from cloudtrain._system.signals import SIGKILL
from cloudtrain.contract import FailureClass, FailureReport, JobStatus
from cloudtrain.errors import PlatformError
from cloudtrain.platforms.base import JobState, Request
from cloudtrain.platforms.batch.cluster import Cluster, local_cluster
from cloudtrain.platforms.batch.cluster_platform import ClusterJobs, ClusterPlatform, Ticket
from cloudtrain.platforms.batch.placement import forget_secrets
from cloudtrain.platforms.batch.submitting import never_queued, recorded
from cloudtrain.platforms.pbs.launcher import PbsLauncher
from cloudtrain.platforms.pbs.options import PbsOptions
from cloudtrain.platforms.pbs.queue import WAITING, QueueEntry
from cloudtrain.platforms.pbs.render import check, render
from cloudtrain.platforms.supervised import JobFiles, JobRecord
from cloudtrain.spec import TrainingJob

if TYPE_CHECKING:
    from cloudtrain.platforms.checks import Check

LIMITS = {
    # pbs_job.h of Torque 6, job.h of OpenPBS 23
    "torque": {-10: "memory", -11: "walltime", -12: "CPU time"},
    "pbs": {-24: "ncpus", -25: "ncpus", -26: "vmem", -27: "memory", -28: "CPU time", -29: "walltime"},
}
"""The exit statuses for a job that its scheduler has ended because it was over a limit."""

MEMORY = ("memory", "vmem")
RESUBMIT = "Submit the job again: it resumes from its last checkpoint."


class PbsJobs(ClusterJobs):
    """The jobs of one platform on one cluster, in one folder."""

    def __init__(self, name: str, cluster: Cluster) -> None:
        self.name = name
        self.cluster = cluster
        self._pbs = PbsLauncher(name, cluster)
        super().__init__(cluster.root, self._pbs)

    def render(self, job: TrainingJob) -> Request:
        return render(self.name, job, PbsOptions.of(job, self.name), self.cluster)

    def preflight(
        self, job: TrainingJob, request: Request | None, imports: Sequence[str]
    ) -> Mapping[str, Check]:
        return {}

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
            return never_queued(self._pbs.product)
        try:
            entry = self._pbs.ended(job)
        except PlatformError:
            entry = None
        return self._explained(entry) or super().lost(job)

    def _closed(self, job: JobFiles, record: JobRecord) -> JobRecord:
        with contextlib.suppress(OSError):  # a full disk, or a folder that was removed
            forget_secrets(self.cluster, job)
        return super()._closed(job, record)

    def _why_waiting(self, job: JobFiles, status: JobStatus) -> str:
        if status.is_final:
            return ""
        entry = self._pbs.standing(job)[0].row
        return entry.why if entry and entry.state == WAITING else ""

    def _explained(self, entry: QueueEntry | None) -> FailureReport | None:
        if entry is None or entry.exit_status is None:
            return None
        status, now = entry.exit_status, time.time()
        limit = LIMITS.get(self.name, {}).get(status)
        if limit in MEMORY:
            return FailureReport(
                FailureClass.OUT_OF_MEMORY,
                f"{self.name} ended the job: it used more {limit} than it had asked for",
                "Ask for more with platform_options.mem.",
                exit_code=128 + SIGKILL,
                time=now,
            )
        if limit:
            return FailureReport(
                FailureClass.KILLED,
                f"{self.name} ended the job: it used more {limit} than it had asked for",
                f"Raise max_run, or choose a queue with a longer limit. {RESUBMIT}",
                exit_code=128 + signal.SIGTERM,
                time=now,
            )
        if status >= 256:  # PBS Professional and Torque add 256 to the number of a signal
            return FailureReport(
                FailureClass.KILLED,
                f"{self.name} reports that signal {status - 256} ended the job: {entry.why or 'no reason is recorded'}",
                RESUBMIT,
                exit_code=128 + status - 256,
                time=now,
            )
        if status < 0:
            return FailureReport(
                FailureClass.PLATFORM,
                f"{self.name} could not run the job (exit status {status}): {entry.why or 'no reason is recorded'}",
                "See scheduler.log in the folder of the job.",
                time=now,
            )
        return None


class _Platform(ClusterPlatform[PbsJobs]):
    """The base of the three platforms."""

    def resolve(self, job: TrainingJob) -> TrainingJob:
        options = PbsOptions.of(job, self.name)
        check(self.name, job)
        jobs = self._jobs(_ticket(options))
        job = jobs.resolve(job)
        return msgspec.structs.replace(
            job, platform_options={**job.platform_options, "folder": jobs.cluster.folder}
        )

    def render(self, job: TrainingJob) -> Request:
        return self._jobs(_ticket(PbsOptions.of(job, self.name))).render(job)

    def preflight(
        self, job: TrainingJob, request: Request | None, imports: Sequence[str]
    ) -> Mapping[str, Check]:
        return self._jobs(_ticket(PbsOptions.of(job, self.name))).preflight(job, request, imports)

    def _open(self, ticket: Ticket) -> PbsJobs:
        return PbsJobs(self.name, local_cluster(self.name, ticket.folder or None))


def _ticket(options: PbsOptions) -> Ticket:
    return Ticket(folder=options.folder or "")


class PbsPlatform(_Platform):
    """Runs jobs on PBS Professional and OpenPBS."""

    name = "pbs"


class TorquePlatform(_Platform):
    """Runs jobs on Torque, and on a Slurm with Torque's commands."""

    name = "torque"


class CobaltPlatform(_Platform):
    """Runs jobs on Cobalt."""

    name = "cobalt"
