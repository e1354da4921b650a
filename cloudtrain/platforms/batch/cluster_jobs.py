"""The jobs on one cluster: submits them to its scheduler, and finds them in its queue."""

from __future__ import annotations

import builtins
import re
import time
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic

from cloudtrain.contract import JobStatus
from cloudtrain.contract.preemption import STOP
from cloudtrain.contract.request_body import request_settings
from cloudtrain.errors import PlatformError
from cloudtrain.observe import Summary
from cloudtrain.platforms.base import JobDescription, JobState, Request
from cloudtrain.platforms.batch.cluster import Cluster
from cloudtrain.platforms.batch.queue import AnyQueued, SharedQueue, Standing
from cloudtrain.platforms.batch.remote_follow import follow_remote
from cloudtrain.platforms.batch.remote_root import RemoteRoot
from cloudtrain.platforms.batch.shell import ConnectionLost
from cloudtrain.platforms.batch.submitting import (
    SUBMIT_SECONDS,
    find_by_folder,
    forget_secrets,
    is_same,
    place_job,
    record,
    recorded,
    run_once,
)
from cloudtrain.platforms.supervised import SupervisedPlatform
from cloudtrain.platforms.supervised.root import JobFiles, LocalRoot
from cloudtrain.runtime.notifications.rules import rules_of
from cloudtrain.runtime.supervisor.claim import is_claimed
from cloudtrain.runtime.supervisor.folder import STOP_MARK
from cloudtrain.runtime.supervisor.record import RECORD, JobRecord
from cloudtrain.runtime.supervisor.submissions import ANSWERS, Submission, parse_answers, parse_site
from cloudtrain.spec import TrainingJob
from cloudtrain.spec.names import clean

if TYPE_CHECKING:
    from cloudtrain.platforms.checks import Check

ANSWER_SECONDS = 60.0
"""The time limit of the command that submits."""
_SUBMIT = """said=$({command}); code=$?
answer=$(printf '%s\\n' "$said" | grep -E '^[0-9]+([.;].*)?$') && ( {keep} ) 2>/dev/null
printf '%s\\n' "$said"; [ -z "$answer" ] || {site}
exit $code
"""
"""Submits the job, and records its number in its folder, or in each element's, because the answer may get lost."""
KEEP = f"""printf '%s\\n' "$answer" >> {ANSWERS}"""
_UNCERTAIN = re.compile(
    r"timed out on send/recv|Zero Bytes were transmitted|Premature end of message|End of File|Communication failure"
    r"|Failed in sending/receiving a message|Communication time out",
    re.IGNORECASE,
)
"""Errors of sbatch, qsub and bsub after which the scheduler may have accepted the job."""


class ClusterJobs(SupervisedPlatform, Generic[AnyQueued]):
    """The jobs on one cluster, in one folder, and the `HostLauncher` that hands them to its scheduler.

    The scheduler reports why jobs wait, and limits their run time.
    """

    default_max_run = None
    product: str
    """The name of the scheduler, for messages."""
    program: str
    """The command that submits."""
    site = ":"
    """The command that prints ``site=`` and the scheduler's own name; does nothing if job numbers contain that name."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster.root, self)
        self.cluster = cluster

    @abstractmethod
    def start(self, draft: JobFiles, request: Request) -> None:
        """See `HostLauncher.start`."""

    @abstractmethod
    def signal(self, job: JobFiles, name: str) -> None:
        """See `HostLauncher.signal`."""

    @abstractmethod
    def refusal(self, complaint: str) -> PlatformError:
        """The error for a job that the scheduler refused."""

    @abstractmethod
    def queue(self, cluster: str = "") -> SharedQueue[AnyQueued, Any]:
        """The queue of ``cluster``, if the scheduler manages several; an empty name is the default one."""

    @abstractmethod
    def signs(self, job_name: str, number: str) -> tuple[list[str], list[str]]:
        """The names and the folders that the queue may show for a job with this number: see `is_same`."""

    def _submit_new(self, draft: JobFiles, request: Request, command: str) -> tuple[JobFiles, Submission]:
        """Place the files of a job, and run ``command`` in its folder. See `HostLauncher.start`.

        Raises ConnectionLost if the job may be in the queue: its folder stays.
        """
        place_job(self.cluster, draft, request)
        job = draft.publish(request.job_name)
        try:
            submission = self._submit(job, command)
        except (ConnectionLost, KeyboardInterrupt):
            raise
        except BaseException:
            self._root.remove(job.name)
            raise
        record(job, [submission])
        return job, submission

    def _submit(
        self, job: JobFiles, command: str, *, keep: str = KEEP, known: Sequence[Submission] = ()
    ) -> Submission:
        """Run ``command``. Raises ConnectionLost if the job may be in the queue, and PlatformError if it is not.

        Args:
            known: earlier submissions of the job.
        """
        folder = self.cluster.job_folder(job.name)
        line = self._without_secrets(job) + _SUBMIT.format(command=command, keep=keep, site=self.site)
        program = self.program
        try:
            answer = run_once(self.cluster.shell, folder, line, timeout=ANSWER_SECONDS, program=program)
        except ConnectionLost as error:
            return self._found(job, known, error.message)
        found = parse_answers(answer.out, time.time())
        if not answer.code and found:
            return replace(found[0], site=parse_site(answer.out))
        if not answer.code:  # a wrapper around it may print something else
            return self._found(job, known, f"{program} gave no number")
        complaint = answer.complaint or answer.text
        if uncertain := _UNCERTAIN.search(complaint):
            return self._found(job, known, f"{program}: {uncertain[0]}")
        raise self.refusal(complaint)

    def _found(self, job: JobFiles, known: Sequence[Submission], why: str) -> Submission:
        """The new submission of a job whose answer was lost. Raises ConnectionLost if it cannot be found."""
        numbers = [one.number for one in known]
        with suppress(PlatformError, OSError):  # the connection may still be lost
            new = [one for one in recorded(job) if one.number not in numbers]
            if not new and not known:
                found, _ = self.find(job)
                new = [found] if found else []
            if new:
                return new[-1]
        name = job.name
        raise ConnectionLost(
            f"{why}, while job {name} was submitted: it may be in the queue of {self.product}",
            hint=f"Later, this shows whether it is: cloudtrain describe {name}. To take it out: cloudtrain stop {name}",
        )

    def _without_secrets(self, job: JobFiles) -> str:
        """The line that hides the job's secrets from the command: Slurm may store the environment in its accounting."""
        if self.cluster.shell.place:
            return ""  # a login node does not have them
        request = job.request()
        names = request_settings(request).hidden_variables.split(",")
        names += [name for rule in rules_of(request) for name in rule.variables]
        hidden = [name for name in names if name.isascii() and name.isidentifier()]
        return f"unset {' '.join(hidden)}\n" if hidden else ""

    def is_alive(self, job: JobFiles) -> bool:
        """See `HostLauncher.is_alive`."""
        is_alive = self.standing(job).is_alive
        if not is_alive and isinstance(self._root, RemoteRoot):
            self._root.forget()  # the files may have been cached before the job ended
        return is_alive

    def standing(self, job: JobFiles) -> Standing[AnyQueued]:
        """Look a job up in the queue. A job without a number is still being submitted.

        If a job has several submissions, a running one is preferred to one that waits for it to end.
        """
        return self._standing(job)[0]

    def _standing(self, job: JobFiles) -> tuple[Standing[AnyQueued], Submission | None]:
        submissions = recorded(job)
        if not submissions:
            lost, may_come = self._find_unrecorded(job)
            if lost is None:
                return Standing(may_come), None
            submissions = [lost]
        found = [(self._look(job, one), one) for one in submissions]
        alive = [pair for pair in found if pair[0].is_alive]
        return min(alive, key=lambda pair: self._rank(pair[0])) if alive else found[-1]

    def _look(self, job: JobFiles, one: Submission) -> Standing[AnyQueued]:
        """Look a submission up in the queue. Another job that has its number does not count."""
        found = self.queue(one.cluster).look(one.number, one.time)
        if found.row and not is_same(found.row, *self.signs(job.name, one.number)):
            return Standing(False, taken=found.taken)
        return found

    def _rank(self, standing: Standing[AnyQueued]) -> int:
        """The sort key among the submissions of a job: the lowest one is used."""
        return 0

    def find(self, job: JobFiles) -> tuple[Submission | None, float]:
        """The submission of a job in the queue, and when the scheduler was queried; 0 if it does not answer."""
        since, first_asked = job.record().submitted_at, float("inf")
        for cluster in self._clusters_of(job):
            rows, asked = self.queue(cluster).rows(since)
            first_asked = min(first_asked, asked)
            number = self._find_in(rows, job, since)
            if number:
                return Submission(number, cluster, since), asked
        return None, first_asked

    def _find_unrecorded(self, job: JobFiles) -> tuple[Submission | None, bool]:
        """The submission of a job whose number was not recorded, and whether the job may still get into the queue.

        Records the number.
        """
        found, asked = self.find(job)
        if found:
            record(job, [found])
        if asked and job.is_stopped:
            return found, False  # if it is queued later, it finds the stop mark
        return found, asked < job.record().submitted_at + SUBMIT_SECONDS

    def _clusters_of(self, job: JobFiles) -> Sequence[str]:
        """The clusters of the scheduler that may have the job; a single empty name for the default one."""
        return [""]

    def _find_in(self, rows: Mapping[str, AnyQueued], job: JobFiles, since: float) -> str:
        """The number of the job in a queue; empty if it is not there."""
        folder = self.cluster.job_folder(job.name)
        return find_by_folder(
            rows, self.signs(job.name, "")[0], folder, since, is_here=not self.cluster.login
        )

    def _not_unqueued(
        self, job: JobFiles, why: str, *, how: str = "run the command again later"
    ) -> PlatformError:
        """The error for a job that may still be in the queue after it was stopped."""
        return PlatformError(
            why,
            hint="The job is marked to stop: if it runs, it stops now; if it waits, it stops when it starts. To "
            f"take it out of the queue, {how}: cloudtrain stop {job.name}",
        )

    def preflight(
        self, job: TrainingJob, request: Request | None, imports: Sequence[str]
    ) -> Mapping[str, Check]:
        return {}  # done by the platform

    @abstractmethod
    def states(self, job_name: str) -> builtins.list[JobState]:
        """See `States.states`."""

    def remembering(self, job_name: str | None) -> AbstractContextManager[None]:
        """Read the files of a job on a cluster with one command."""
        if not isinstance(self._root, RemoteRoot) or (job_name and clean(job_name) != job_name):
            return nullcontext()
        return self._root.remembering(job_name)

    def _lines(self, job: JobFiles, file: str, follow: bool) -> Iterator[str]:
        if follow and isinstance(self._root, RemoteRoot):
            return follow_remote(self._root, job.name, file, lambda: self._settled(job).status.is_final)
        return super()._lines(job, file, follow)

    def _closed(self, job: JobFiles, record: JobRecord) -> JobRecord:
        with suppress(OSError):  # a full disk, or a folder that was removed
            forget_secrets(self.cluster, job)
        return super()._closed(job, record)

    def stop(self, job_name: str) -> None:
        """Also stops a job that is alive although its record is final."""
        job = self._existing(job_name)
        if self._settled(job).status.is_final and not self._is_alive(job):
            return
        job.write(STOP_MARK, b"")
        self.signal(job, STOP)

    def was_interrupted(self, job_name: str) -> bool:
        """See `Withdrawal`: the job failed because it did not reach the queue in time, and it is still not there."""
        job = self._existing(job_name)
        record = self._settled(job)
        is_lost = record.status == JobStatus.FAILED and record.started_at is None and not record.is_damaged
        if not is_lost or recorded(job):
            return False
        found, may_come = self._find_unrecorded(job)
        return found is None and not may_come

    def withdraw(self, job_name: str) -> bool:
        """See `Withdrawal`. If the lost submission arrives after all, its batch step either runs the job instead of
        the next submission's, or ends: both share one folder, with one claim and one record."""
        was_interrupted = self.was_interrupted(job_name)
        if was_interrupted:
            self._root.remove(job_name)
        return was_interrupted

    def has(self, job_name: str) -> bool:
        return self._named(job_name).exists(RECORD)

    def _description(
        self, job: JobFiles, record: JobRecord, summary: Summary, request: Mapping[str, Any]
    ) -> JobDescription:
        found = super()._description(job, record, summary, request)
        if record.status != JobStatus.PENDING or recorded(job):
            return found
        until = datetime.fromtimestamp(record.submitted_at + SUBMIT_SECONDS)
        return replace(
            found,
            reason=f"it is not in the queue: unless it is by {until:%H:%M}, its submission was interrupted",
        )

    def _is_alive(self, job: JobFiles) -> bool:
        """A job is alive as long as its batch step is, even if a scheduler, its own or another, does not list it."""
        if super()._is_alive(job):
            return True
        return isinstance(self._root, LocalRoot) and is_claimed(self._root.path / job.name)
