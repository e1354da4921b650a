"""The life of a job in Slurm's queue: why it waits, whether it lives, why it ended without an outcome, how to end it.

The job's own record decides how it ended; Slurm only explains. A job whose record is final needs no scheduler.
"""

from __future__ import annotations

import contextlib
import re
import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from cloudtrain.contract import FailureClass, FailureReport, JobStatus
from cloudtrain.contract.preemption import PREEMPT, STOP
from cloudtrain.errors import PlatformError
from cloudtrain.platforms.base import JobDescription, JobState
from cloudtrain.platforms.batch.queue import SKEW_SECONDS, Standing
from cloudtrain.platforms.batch.remote_path import uri_path
from cloudtrain.platforms.batch.shell import Shell
from cloudtrain.platforms.batch.submitting import (
    SCRIPT,
    find_by_folder,
    find_unrecorded,
    is_same,
    never_queued,
    recorded,
)
from cloudtrain.platforms.slurm.pending import why_pending
from cloudtrain.platforms.slurm.queue import UNKNOWN_NUMBER, Queue
from cloudtrain.platforms.slurm.squeue import OWN_SECONDS, QueueRow, on_cluster, own, own_function, signs
from cloudtrain.platforms.slurm.states import CANCELLED, RESUMES, TIMEOUT, Ending, cancelled_by, explain
from cloudtrain.platforms.supervised import JobFiles, JobRecord
from cloudtrain.platforms.supervised.root import LocalRoot
from cloudtrain.runtime.slurm.continuation import INTERRUPTED
from cloudtrain.runtime.supervisor.continuation import TAKEN_BACK
from cloudtrain.runtime.supervisor.folder import SUPERVISOR_LOG
from cloudtrain.runtime.supervisor.record import SIGNAL, STOPPED_BY_USER
from cloudtrain.runtime.supervisor.submissions import Submission

NEWS_SECONDS = 300.0
"""How far an expected start has to move to be announced again: it changes with every pass of the scheduler."""
SOON_SECONDS = 30.0
SIGNAL_SECONDS = 120.0
EXPLAIN_SECONDS = 30.0
"""How long after its end a job that a signal has ended waits for Slurm's reason, and the user who cancelled it."""
AWAY = ("Unable to contact", "timed out")
"""In the messages of Slurm's commands if the controller does not answer."""

_OVER = (UNKNOWN_NUMBER, "already completing or completed")
"""In the messages of ``scancel`` for a job that has ended, or was taken out of the queue just before."""
TAKEN = ("PREEMPTED", "NODE_FAIL", "BOOT_FAIL")
"""States of a job that has lost its nodes, and could use others."""

_SIGNALS = {STOP: "TERM", PREEMPT: "USR1"}


@dataclass(frozen=True)
class _News:
    """The last announcement about a job that waits."""

    why: str
    start: float | None
    state: JobState


class JobLife:
    """Queries Slurm for the jobs of one cluster.

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
        self._news: dict[str, _News] = {}
        self._running: dict[str, dict[float, JobState]] = {}

    def queue(self, cluster: str = "") -> Queue:
        if cluster not in self._queues:
            self._queues[cluster] = self._make_queue(cluster)
        return self._queues[cluster]

    def standing(self, job: JobFiles) -> Standing[QueueRow]:
        """The job in Slurm. One that has no number yet is being submitted.

        Of a job with several submissions, one that runs comes before one that waits for it to end.
        """
        return self._find(job)[0]

    def _find(self, job: JobFiles) -> tuple[Standing[QueueRow], Submission | None]:
        submissions = recorded(job)
        if not submissions:
            lost, may_come = find_unrecorded(job, self.find)
            if lost is None:
                return Standing(may_come), None
            submissions = [lost]
        found = [(self._look(job, one), one) for one in submissions]
        alive = [pair for pair in found if pair[0].is_alive]
        return min(alive, key=lambda pair: _rank(pair[0])) if alive else found[-1]

    def find(self, job: JobFiles) -> tuple[Submission | None, float]:
        """See `submitting.Scheduler.find`."""
        since, first_asked = job.record().submitted_at, float("inf")
        is_here, root = isinstance(job.root, LocalRoot), uri_path(job.root.uri)
        array, _, index = job.name.rpartition("-")
        for cluster in clusters_of(job):
            rows, asked = self.queue(cluster).rows(since)
            first_asked = min(first_asked, asked)
            number = find_by_folder(rows, [job.name], f"{root}/{job.name}", since, is_here=is_here)
            if not number and index.isdigit():
                elements = {number: row for number, row in rows.items() if number.endswith(f"_{index}")}
                number = find_by_folder(elements, [array], f"{root}/{array}-0", since, is_here=is_here)
            if number:
                return Submission(number, cluster, since), asked
        return None, first_asked

    def _look(self, job: JobFiles, one: Submission) -> Standing[QueueRow]:
        found = self.queue(one.cluster).look(one.number, one.time)
        is_other = found.row is not None and not is_same(found.row, *signs(job.name, one.number))
        if (is_other or not found.is_alive) and self.elsewhere(one):
            return Standing(True)
        return Standing(False, taken=found.taken) if is_other else found

    def elsewhere(self, one: Submission) -> str:
        """The sentence about a submission to another cluster than that of this machine; empty if it is here."""
        here = "" if one.cluster or not one.site else self.queue().site
        if here in ("", one.site):
            return ""
        return f"the job is on the cluster {one.site}, and this machine belongs to {here}"

    def _ending(self, job: JobFiles) -> tuple[Ending | None, str]:
        """How the job ended in Slurm, and its number there; None while it lives, and if Slurm does not know."""
        standing, submission = self._find(job)
        if standing.is_alive or submission is None:
            return None, ""
        ending = self.queue(submission.cluster).ending(submission.number)
        return ending if ending and is_same(
            ending, *signs(job.name, submission.number)
        ) else None, submission.number

    def lost(self, job: JobFiles) -> FailureReport:
        """Why a job ended without a final record: see `SupervisedPlatform.lost`."""
        ending, number = self._ending(job)
        record = job.record()
        if not recorded(job):
            return never_queued("Slurm")
        if ending is None and record.status == JobStatus.PENDING:
            return FailureReport(
                FailureClass.PLATFORM,
                "the job waited in Slurm's queue, and has left it: it was cancelled there, or Slurm has lost it",
                RESUMES if record.started_at else "Submit the job again, under another name.",
                time=time.time(),
            )
        said = ""
        with contextlib.suppress(PlatformError):
            for line in job.lines(self._log):
                said = line.strip() or said
        return explain(ending or Ending(""), number, said)

    def is_to_continue(self, job: JobFiles, record: JobRecord, request: Mapping[str, Any]) -> bool:
        """Whether a job that has left the queue without a final record was interrupted, and has attempts left."""
        if request.get("requeue", "never") == "never" or job.is_stopped:
            return False
        ending, number = self._ending(job)
        state = ending.state if ending else ""
        if record.status == JobStatus.PENDING:
            return number != "" and job.read(INTERRUPTED) == number.encode() and state != CANCELLED
        return state in TAKEN and record.preemptions < request["max_preemptions"]

    def closed(self, record: JobRecord, job: JobFiles) -> JobRecord:
        """A record that was closed with `lost`; a job that someone cancelled has stopped, and not failed.

        One that lost its nodes is interrupted, as if its batch step had lived to record it.
        """
        failure = record.failure
        if record.status not in (JobStatus.FAILED, JobStatus.INTERRUPTED) or failure is None:
            return record
        ending, _ = self._ending(job)
        if ending and ending.state == CANCELLED:
            return replace(record, status=JobStatus.STOPPED, reason=cancelled_by(ending))
        if ending and ending.state in (*TAKEN, TIMEOUT):
            reason = TAKEN_BACK.get(failure.failure_class, failure.message)
            return replace(record, status=JobStatus.INTERRUPTED, reason=reason)
        return record

    def explained(self, record: JobRecord, job: JobFiles) -> JobRecord:
        """The final record of a job that a signal from outside ended, with Slurm's reason.

        The same record if Slurm has no more, or does not answer.
        """
        if record.status != JobStatus.INTERRUPTED or record.reason != SIGNAL or record.failure:
            return record
        if (
            job.is_stopped
        ):  # the mark of the stop had not reached the node: shared file systems may take a minute
            return replace(record, status=JobStatus.STOPPED, reason=STOPPED_BY_USER)
        ending, number = self._ending(job)
        is_unnamed = ending is not None and ending.state == CANCELLED and not ending.by
        if time.time() - (record.ended_at or 0.0) < EXPLAIN_SECONDS and (
            self.standing(job).is_alive or (is_unnamed and self._has_accounting(job))
        ):
            return replace(record, status=JobStatus.STOPPING)  # Slurm is about to report why
        if ending is None or ending.state in ("COMPLETED", "FAILED"):  # the signal was not Slurm's
            return record
        if ending.state == CANCELLED:
            return replace(record, status=JobStatus.STOPPED, reason=cancelled_by(ending))
        failure = replace(explain(ending, number), time=record.ended_at)
        reason = TAKEN_BACK.get(failure.failure_class, failure.message)
        return replace(record, reason=reason, failure=failure)

    def _has_accounting(self, job: JobFiles) -> bool:
        return any(self.queue(one.cluster).has_accounting for one in recorded(job))

    def signal(self, job: JobFiles, name: str) -> None:
        """Send a signal to the batch step; a stop also takes a waiting job out of the queue.

        Raises PlatformError if Slurm does not answer.
        """
        submissions = recorded(job)
        if not submissions:
            return  # the batch step looks for the mark of a stop when it starts
        if away := self.elsewhere(submissions[-1]):
            raise PlatformError(
                f"{away}: it was not taken out of the queue there",
                hint="The job is marked to stop: if it runs, it stops now; if it waits, it stops when it starts. To "
                f"take it out of the queue, run this on that cluster: cloudtrain stop {job.name}",
            )
        command = signal_command(job.name, submissions, _SIGNALS[name], unqueue=name == STOP)
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

    def described(self, description: JobDescription, record: JobRecord, job: JobFiles) -> JobDescription:
        """The description of a job that has not ended, with what Slurm reports of it."""
        submissions = recorded(job)
        if not submissions or description.status.is_final:
            return description
        standing = self.standing(job)
        row, queue = standing.row, self.queue(submissions[-1].cluster)
        details = {"slurm job": row.number if row else submissions[-1].number}
        unsure = queue.silence and f"{queue.silence}: what follows from the queue may be out of date"
        away = "" if row else self.elsewhere(submissions[-1])
        unsure = f"{away}: its place in the queue is not known here" if away else unsure
        if unsure:
            description = replace(description, warnings=[*description.warnings, unsure])
        if row is None:
            return replace(description, details={**details, **description.details})
        waits = _waits(standing, record)
        if waits:
            place = queue.place(row.number)
            if place:
                details["place"] = f"{place[0]} of {place[1]} waiting in partition {row.partition}"
            if row.start and row.start > time.time():
                details["starts"] = f"{_moment(row.start)}, as Slurm plans now"
        elif row.nodes:
            details["nodes"] = row.nodes
        return replace(
            description,
            status=JobStatus.PENDING if waits else description.status,
            phase=None if waits else description.phase,
            reason=description.reason or (_reason(row, record.status) if waits or not row.is_waiting else ""),
            details={**details, **description.details},
        )

    def states(self, record: JobRecord, job: JobFiles) -> list[JobState]:
        """The states of the job so far: see `cloudtrain.platforms.States`."""
        submissions = recorded(job)
        standing: Standing[QueueRow] = Standing(True)
        silence = ""
        if submissions and not record.status.is_final:
            standing = self.standing(job)
            silence = self.queue(submissions[-1].cluster).silence
        news = [self._news[one.number].state for one in submissions if one.number in self._news]
        states = news or [JobState(record.submitted_at, "Pending")]
        row = standing.row
        if row and _waits(standing, record):
            again = record.started_at is not None
            states = [self._pending(row, (row.submitted if again else None) or record.submitted_at)]
        elif (began := record.resumed_at or record.started_at) is not None:
            nodes = f"on {row.nodes}" if row and row.nodes else ""
            states.append(
                self._running.setdefault(job.name, {}).setdefault(began, JobState(began, "Running", nodes))
            )
        elif row and (reason := _reason(row, record.status)):
            states.append(JobState(row.start or record.submitted_at, "Starting", reason))
        if record.status.is_final:
            states.append(JobState(record.ended_at or record.submitted_at, str(record.status), record.reason))
        elif silence:
            more = "the job is not affected, and is watched again when Slurm answers"
            states.append(JobState(record.submitted_at, "Unknown", f"{silence}: {more}"))
        return states

    def _pending(self, row: QueueRow, since: float) -> JobState:
        """Why the job waits, and when it should start. Changes only if that is worth a line."""
        why = _reason(row, JobStatus.PENDING)
        last = self._news.get(row.number)
        if last is None or last.why != why or _has_moved(last.start, row.start):
            message = why
            if row.start and row.start > time.time() + SOON_SECONDS:
                message += f" Slurm plans to start it {_moment(row.start)}."
            state = JobState(time.time() if last else since, "Pending", message)
            last = self._news[row.number] = _News(why, row.start, state)
        return last.state


def clusters_of(job: JobFiles) -> list[str]:
    """The clusters that Slurm may have chosen for a job; one empty name for the default one."""
    asked = re.search(rb"^#SBATCH --clusters=([\w,.-]+)$", job.read(SCRIPT), re.MULTILINE)
    return asked[1].decode().split(",") if asked else [""]


def signal_command(job_name: str, submissions: Sequence[Submission], name: str, *, unqueue: bool) -> str:
    """The line of commands that signals the batch step of a job, which passes the signal on to its hosts.

    A controller that is away keeps each command waiting, so the line ends with the first that fails to reach it.
    Another job that has got the number of this one is left alone.

    Args:
        unqueue: also take the job out of the queue, if it waits there.
    """
    lines = [f"{own(one, job_name)}; own{index}=$?" for index, one in enumerate(submissions)]
    if unqueue:
        lines += [f"[ $own{index} = 0 ] && {{ {_unqueue(one)}; }}" for index, one in enumerate(submissions)]
    running = (
        "" if unqueue else " --state=RUNNING"
    )  # scancel would wait until a job that waits runs, and signal it then
    lines += [
        f"[ $own{index} = 0 ] && say scancel --batch{running} --signal={name}{_names(one)}"
        for index, one in enumerate(submissions)
    ]
    away = "|".join(f'*"{message}"*' for message in AWAY)
    say = f'say() {{ said=$("$@" 2>&1) && return; echo "$said" >&2; case $said in {away}) exit 1;; esac; }}'
    return "\n".join([say, own_function(), *lines])


def _waits(standing: Standing[QueueRow], record: JobRecord) -> bool:
    """Whether the job waits in the queue. One that has started since Slurm was queried does not."""
    if not standing.row or not standing.row.is_waiting:
        return False
    began = record.resumed_at or record.started_at
    return record.status == JobStatus.PENDING or began is None or standing.taken > began + SKEW_SECONDS


def _names(one: Submission) -> str:
    return f"{on_cluster(one.cluster)} {shlex.quote(one.number)}"


def _unqueue(one: Submission) -> str:
    """The command that takes a submission out of the queue, if it waits there.

    Elements of an array that wait are one entry of the queue. Of that, ``scancel --state=PENDING`` cancels all.
    """
    if "_" not in one.number:
        return f"say scancel --state=PENDING{_names(one)}"
    state = f"squeue --noheader --format=%t{on_cluster(one.cluster)} --jobs={shlex.quote(one.number)}"
    return f'[ "$(timeout {OWN_SECONDS:g} {state} 2>/dev/null)" = PD ] && say scancel{_names(one)}'


def _rank(standing: Standing[QueueRow]) -> int:
    """Which submission of a job counts: the one that runs, else the one that starts next."""
    if not standing.row or not standing.row.is_waiting:
        return 0
    return 2 if standing.row.reason.startswith("Dependency") else 1


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
