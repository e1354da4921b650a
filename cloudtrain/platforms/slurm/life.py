"""The life of a job in Slurm's queue: why it waits, whether it lives, why it ended without an outcome, how to end it.

The job's own record decides how it ended; Slurm only explains. A job whose record is final needs no scheduler.
"""

from __future__ import annotations

import contextlib
import shlex
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from cloudtrain.contract import FailureClass, FailureReport, JobStatus
from cloudtrain.errors import PlatformError
from cloudtrain.platforms.base import JobDescription, JobState
from cloudtrain.platforms.batch.shell import Shell
from cloudtrain.platforms.batch.submissions import SUBMISSIONS, Submission, parse_submissions
from cloudtrain.platforms.slurm.pending import why_pending
from cloudtrain.platforms.slurm.queue import UNKNOWN_NUMBER, Queue, Standing
from cloudtrain.platforms.slurm.squeue import QueueRow, on_cluster
from cloudtrain.platforms.slurm.states import CANCELLED, Ending, cancelled_by, explain
from cloudtrain.platforms.supervised import JobFiles, JobRecord
from cloudtrain.platforms.supervised.folder import SUPERVISOR_LOG
from cloudtrain.platforms.supervised.launcher import PREEMPT, STOP
from cloudtrain.platforms.supervised.record import SIGNAL

SUBMIT_SECONDS = 300.0
"""How long a submission may take, until a job without a number in the queue counts as not submitted."""
NEWS_SECONDS = 300.0
"""How far an expected start has to move to be announced again: it changes with every pass of the scheduler."""
SOON_SECONDS = 30.0
SIGNAL_SECONDS = 120.0
AWAY = ("Unable to contact", "timed out")
"""In the messages of Slurm's commands if the controller does not answer."""

_OVER = (UNKNOWN_NUMBER, "already completing or completed")
"""In the messages of ``scancel`` for a job that has ended, or was taken out of the queue just before."""
_SIGNALS = {STOP: "TERM", PREEMPT: "USR1"}


@dataclass
class _Announced:
    why: str
    start: float | None


class JobLife:
    """Asks Slurm about the jobs of one cluster.

    Args:
        shell: runs Slurm's commands.
        make_queue: creates the queue of a cluster, by its name; empty for the default one.
        log: the file in a job's folder that has the output of the batch step.
    """

    def __init__(self, shell: Shell, make_queue: Callable[[str], Queue], log: str = SUPERVISOR_LOG) -> None:
        self._shell = shell
        self._make_queue = make_queue
        self._log = log
        self._queues: dict[str, Queue] = {}
        self._announced: dict[str, _Announced] = {}

    def queue(self, cluster: str = "") -> Queue:
        if cluster not in self._queues:
            self._queues[cluster] = self._make_queue(cluster)
        return self._queues[cluster]

    def standing(self, job: JobFiles) -> Standing:
        """The job in Slurm. One that has no number yet is being submitted.

        Of a job with several submissions, one that runs comes before one that waits for it to end.
        """
        submissions = last_submissions(job)
        if not submissions:
            return Standing(time.time() - job.record().submitted_at < SUBMIT_SECONDS)
        found = [self.queue(one.cluster).look(one.number, one.time) for one in submissions]
        return min(reversed(found), key=_rank)

    def lost(self, job: JobFiles) -> FailureReport:
        """Why a job ended without a final record: see `SupervisedPlatform.lost`."""
        submissions = last_submissions(job)
        if not submissions:
            return FailureReport(
                FailureClass.PLATFORM,
                "the job did not get into Slurm's queue: the command that submitted it was killed",
                "Submit the job again, under another name.",
                time=time.time(),
            )
        standing = self.standing(job)
        said = ""
        with contextlib.suppress(PlatformError):
            for line in job.lines(self._log):
                said = line.strip() or said
        return explain(standing.ending or Ending(""), submissions[-1].number, said)

    def closed(self, record: JobRecord, job: JobFiles) -> JobRecord:
        """A record that was closed with `lost`; a job that someone cancelled has stopped, and not failed."""
        ending = self.standing(job).ending
        if record.status == JobStatus.FAILED and ending and ending.state == CANCELLED:
            return replace(record, status=JobStatus.STOPPED, reason=cancelled_by(ending))
        return record

    def explained(self, record: JobRecord, job: JobFiles) -> JobRecord:
        """The final record of a job that a signal from outside ended, with what Slurm says about it.

        The same record if Slurm does not say more, or does not answer.
        """
        if record.status != JobStatus.INTERRUPTED or record.reason != SIGNAL or record.failure:
            return record
        ending = self.standing(job).ending
        if ending is None:
            return record
        if ending.state == CANCELLED:
            return replace(record, status=JobStatus.STOPPED, reason=cancelled_by(ending))
        if ending.state in ("COMPLETED", "FAILED"):  # the signal was not Slurm's
            return record
        failure = replace(explain(ending, last_submissions(job)[-1].number), time=record.ended_at)
        return replace(record, reason=failure.message, failure=failure)

    def signal(self, job: JobFiles, name: str) -> None:
        """Send a signal to the batch step; a stop also takes a waiting job out of the queue.

        Raises PlatformError if Slurm does not answer.
        """
        submissions = last_submissions(job)
        if not submissions:
            return  # the batch step looks for the mark of a stop when it starts
        command = signal_command(submissions, _SIGNALS[name], unqueue=name == STOP)
        try:
            answer = self._shell.run(command, timeout=SIGNAL_SECONDS)
            said = [line for line in answer.complaint.splitlines() if not any(word in line for word in _OVER)]
            error = said[-1].removeprefix("scancel: error: ") if said else ""
        except PlatformError as failed:
            error = failed.message
        for one in submissions:
            self.queue(one.cluster).expire()
        if error and name == STOP:
            raise PlatformError(
                f"Slurm did not take the stop of job {job.name}: {error}",
                hint="The job is marked to stop: if it runs, it stops now; if it waits, it stops when it starts. To "
                f"take it out of the queue, run the command again later: cloudtrain stop {job.name}",
            )
        if error:
            raise PlatformError(f"Slurm did not send the signal to job {job.name}: {error}")

    def described(self, description: JobDescription, job: JobFiles) -> JobDescription:
        """The description of a job that has not ended, with what Slurm says of it."""
        submissions = last_submissions(job)
        if not submissions or description.status.is_final:
            return description
        row = self.standing(job).row
        queue = self.queue(submissions[-1].cluster)
        details = {"slurm job": row.number if row else submissions[-1].number}
        if queue.silence:
            warnings = [
                *description.warnings,
                f"{queue.silence}: what follows from the queue may be out of date",
            ]
            description = replace(description, warnings=warnings)
        if row is None:
            return replace(description, details={**details, **description.details})
        if row.is_waiting:
            place = queue.place(row.number)
            if place:
                details["place"] = f"{place[0]} of {place[1]} waiting in partition {row.partition}"
            if row.start and row.start > time.time():
                details["starts"] = f"{_moment(row.start)}, as Slurm plans now"
        elif row.nodes:
            details["nodes"] = row.nodes
        return replace(
            description,
            status=JobStatus.PENDING if row.is_waiting else description.status,
            phase=None if row.is_waiting else description.phase,
            reason=description.reason or _reason(row, description.status),
            details={**details, **description.details},
        )

    def states(self, record: JobRecord, job: JobFiles) -> list[JobState]:
        """The states of the job so far: see `cloudtrain.platforms.States`."""
        states = [JobState(record.submitted_at, "Pending")]
        submissions = [] if record.status.is_final else last_submissions(job)
        row = self.standing(job).row if submissions else None
        silence = self.queue(submissions[-1].cluster).silence if submissions else ""
        if row and row.is_waiting:
            again = record.started_at is not None
            since = record.submitted_at if not again else row.submitted or record.submitted_at
            states = [JobState(since, "Pending", self._news(row))]
        elif record.started_at is not None:
            states.append(
                JobState(record.started_at, "Running", f"on {row.nodes}" if row and row.nodes else "")
            )
        elif row and (reason := _reason(row, record.status)):
            states.append(JobState(row.start or record.submitted_at, "Starting", reason))
        if record.status.is_final:
            states.append(JobState(record.ended_at or record.submitted_at, str(record.status), record.reason))
        elif silence:
            more = "the job is not affected, and is watched again when Slurm answers"
            states.append(JobState(record.submitted_at, "Unknown", f"{silence}: {more}"))
        return states

    def _news(self, row: QueueRow) -> str:
        """Why the job waits and when it should start. Changes only if that is worth a line."""
        why = _reason(row, JobStatus.PENDING)
        last = self._announced.get(row.number)
        if last is None or last.why != why or _has_moved(last.start, row.start):
            last = self._announced[row.number] = _Announced(why, row.start)
        if last.start and last.start > time.time() + SOON_SECONDS:
            return f"{last.why} Slurm plans to start it {_moment(last.start)}."
        return last.why


def last_submissions(job: JobFiles) -> list[Submission]:
    """The submissions of the job that may be in the queue: one that runs, and one that continues it."""
    return parse_submissions(job.read(SUBMISSIONS))[-2:]


def signal_command(submissions: Sequence[Submission], name: str, *, unqueue: bool) -> str:
    """The line of commands that signals the batch step of a job, which passes the signal on to its hosts.

    A controller that is away keeps each command waiting, so the line ends with the first that says so.

    Args:
        unqueue: also take the job out of the queue, if it waits there.
    """
    options = [f"--batch --signal={name}"]
    if unqueue:
        options.insert(0, "--state=PENDING")
    lines = [
        f"say scancel {option}{on_cluster(one.cluster)} {shlex.quote(one.number)}"
        for option in options
        for one in submissions
    ]
    away = "|".join(f'*"{message}"*' for message in AWAY)
    say = f'say() {{ said=$("$@" 2>&1) && return; echo "$said" >&2; case $said in {away}) exit 1;; esac; }}'
    return "\n".join(["export LC_ALL=C", say, *lines])


def _rank(standing: Standing) -> int:
    if not standing.is_alive:
        return 2
    return 1 if standing.row and standing.row.is_waiting else 0


def _reason(row: QueueRow, status: JobStatus) -> str:
    """The sentence why a job in Slurm's queue does not run; empty if it does."""
    if row.is_waiting:
        why = why_pending(row.reason, number=row.number, partition=row.partition)
        return f"back in the queue: {why}" if status != JobStatus.PENDING else str(why)
    if row.state == "SUSPENDED":
        return "suspended by Slurm: another job uses its nodes now"
    if row.state == "STOPPED":
        return "stopped by a signal, with its nodes kept"
    if row.state in ("CONFIGURING", "POWER_UP_NODE"):
        return f"its nodes are booting: {row.nodes}"
    if row.state == "COMPLETING":
        return "it is ending"
    return f"it starts on {row.nodes}" if status == JobStatus.PENDING and row.nodes else ""


def _has_moved(announced: float | None, start: float | None) -> bool:
    if announced is None or start is None:
        return announced is not start
    left = max(announced - time.time(), 0.0)
    return abs(start - announced) > max(NEWS_SECONDS, left / 10)


def _moment(seconds: float) -> str:
    """``at 14:30``, with the date if that is another day, and how long it takes: ``(in 2.5 h)``."""
    then, now = datetime.fromtimestamp(seconds), datetime.now()
    at = f"{then:%H:%M}" if then.date() == now.date() else f"{then:%Y-%m-%d %H:%M}"
    return f"at {at} (in {_span(seconds - time.time())})"


def _span(seconds: float) -> str:
    """A rough duration: ``40 min``, ``2.5 h``, ``3 days``."""
    hours = seconds / 3600
    if hours < 1.5:
        return f"{seconds / 60:.0f} min"
    return f"{hours:.1f} h" if hours < 48 else f"{hours / 24:.0f} days"
