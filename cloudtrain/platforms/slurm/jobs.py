"""The jobs on one cluster with Slurm: how they are submitted, watched in the queue, ended, and continued.

The job's own record determines how it ended; Slurm only explains it. A job whose record is final does not depend on
the scheduler.
"""

from __future__ import annotations

import builtins
import contextlib
import os
import re
import shlex
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Any

from cloudtrain._dataclass import dataclass
from cloudtrain.contract import FailureClass, FailureReport, JobStatus
from cloudtrain.contract.preemption import PREEMPT, STOP
from cloudtrain.errors import PlatformError
from cloudtrain.observe import Summary
from cloudtrain.platforms.base import JobDescription, JobState, Request
from cloudtrain.platforms.batch.cluster import Cluster
from cloudtrain.platforms.batch.cluster_jobs import ClusterJobs
from cloudtrain.platforms.batch.queue import SKEW_SECONDS, Standing, queue_file
from cloudtrain.platforms.batch.shell import ConnectionLost
from cloudtrain.platforms.batch.submitting import (
    SCRIPT,
    find_by_folder,
    is_same,
    never_queued,
    place_job,
    record,
    recorded,
)
from cloudtrain.platforms.slurm.directives import SlurmOptions
from cloudtrain.platforms.slurm.pending import has_moved, moment, reason_of
from cloudtrain.platforms.slurm.queue import UNKNOWN_NUMBER, Queue
from cloudtrain.platforms.slurm.render import render
from cloudtrain.platforms.slurm.squeue import (
    SITE,
    QueueRow,
    on_cluster,
    own,
    own_function,
    signal_command,
    signs,
)
from cloudtrain.platforms.slurm.states import CANCELLED, RESUMES, TIMEOUT, Ending, cancelled_by, explain
from cloudtrain.platforms.slurm.time_limits import limit_of_cluster
from cloudtrain.platforms.supervised import JobFiles, JobRecord
from cloudtrain.runtime.slurm.continuation import INTERRUPTED, WAITS_ALREADY
from cloudtrain.runtime.supervisor.continuation import TAKEN_BACK
from cloudtrain.runtime.supervisor.record import SIGNAL, STOPPED_BY_USER
from cloudtrain.runtime.supervisor.submissions import ANSWERS, Submission
from cloudtrain.spec import TrainingJob

SOON_SECONDS = 30.0
SIGNAL_SECONDS = 120.0
EXPLAIN_SECONDS = 30.0
"""How long after a signal ended a job Slurm may take to report the reason, and the user who cancelled it."""

_OVER = (UNKNOWN_NUMBER, "already completing or completed")
"""Parts of the messages of ``scancel`` for a job that has ended, or was just taken out of the queue."""
TAKEN = ("PREEMPTED", "NODE_FAIL", "BOOT_FAIL")
"""States of a job that has lost its nodes, and can continue on others."""

_SIGNALS = {STOP: "TERM", PREEMPT: "USR1"}

PARSABLE = "sbatch --parsable"
SBATCH = f"{PARSABLE} {SCRIPT}"
ARRAY_SCRIPT = "array.sh"
"""The script of an array, in the folder of its first element."""

_KEEP_ELEMENTS = f"""n=${{{{answer%%;*}}}}; i=0; while [ $i -lt {{count}} ]; do
printf '%s\\n' "${{{{n}}}}_$i${{{{answer#$n}}}}" > ../{{array}}-$i/{ANSWERS}; i=$((i+1)); done"""


@dataclass(frozen=True)
class _News:
    """The last announcement about a waiting job."""

    why: str
    start: float | None
    state: JobState


class SlurmJobs(ClusterJobs[QueueRow]):
    """The jobs on one cluster, in one folder."""

    name = "slurm"
    product = "Slurm"
    program = "sbatch"
    site = SITE

    def __init__(self, cluster: Cluster, poll_seconds: float) -> None:
        super().__init__(cluster)
        self._poll_seconds = poll_seconds
        self._queues: dict[str, Queue] = {}
        self._news: dict[str, _News] = {}
        self._running: dict[str, dict[float, JobState]] = {}
        self.limit_of = cache(partial(limit_of_cluster, cluster.shell))  # once for all elements of an array
        self._waited_for: Counter[str] = Counter()
        """How many callers in this process wait for each job."""

    def render(self, job: TrainingJob) -> Request:
        return render(job, SlurmOptions.of(job), self.cluster)

    # -- into the queue

    def start(self, draft: JobFiles, request: Request) -> None:
        job, submission = self._submit_new(draft, request, SBATCH)
        if request.body["requeue"] == "chain":
            self._submit_chain(job, submission, request.body["max_preemptions"])
        self.queue(submission.cluster).expire()

    def _submit_chain(self, job: JobFiles, first: Submission, count: int) -> None:
        """Submit the chain that may continue the job. Raises PlatformError; then nothing of the job remains."""
        chain = [first]
        try:
            while len(chain) <= count:
                dependency = chain_dependency([one.number for one in chain])
                chain.append(self._submit(job, f"{PARSABLE} --dependency={dependency} {SCRIPT}", known=chain))
        except ConnectionLost:
            raise  # all may be in the queue
        except BaseException:
            numbers = " ".join(one.number for one in chain)
            self.cluster.shell.run(f"scancel{on_cluster(first.cluster)} {numbers}")
            self._root.remove(job.name)
            raise
        record(job, chain)

    def start_again(self, job: JobFiles) -> None:
        """Requeue a job that was interrupted, and was not requeued from its own nodes.

        Only for a client that waits for the job: see `upkeep`. If two of them do this at the same time, Slurm runs
        one submission after the other.
        """
        known = recorded(job)
        last = known[-1]
        answer = self.cluster.shell.run(
            f'say() {{ said=$("$@"); }}\n{own_function()}\n'
            f"{own(last, job.name)} && scontrol requeue{on_cluster(last.cluster)} {shlex.quote(last.number)}"
        )
        if answer.code and WAITS_ALREADY not in answer.complaint:
            known.append(self._submit(job, f"{PARSABLE} --dependency=singleton {SCRIPT}", known=known))
            record(job, known)
        job.write(INTERRUPTED, b"")  # if this submission is cancelled, the job ends
        self.queue(last.cluster).expire()

    def _start_array(self, jobs: Sequence[JobFiles], script: str) -> None:
        """Submit jobs whose folders are complete as one array. Raises PlatformError; then none of them is queued."""
        jobs[0].write(ARRAY_SCRIPT, script.encode())
        keep = _KEEP_ELEMENTS.format(array=shlex.quote(jobs[0].name.removesuffix("-0")), count=len(jobs))
        found = self._submit(jobs[0], f"{PARSABLE} {ARRAY_SCRIPT}", keep=keep)
        array = found.number.partition("_")[0]
        for number, job in enumerate(jobs):
            record(job, [replace(found, number=f"{array}_{number}")])
        self.queue(found.cluster).expire()

    def submit_array(self, script: str, requests: Sequence[Request]) -> None:
        """Submit the elements of an array, in order. Raises PlatformError; then nothing of them remains."""
        made: list[str] = []
        may_be_queued = False
        with self._refusing(requests[0].job_name):
            try:
                drafts = []
                for request in requests:
                    with self._refusing(request.job_name):
                        drafts.append(self._draft(request))
                        made.append(drafts[-1].name)
                        place_job(self.cluster, drafts[-1], request)
                jobs = []
                for draft, request in zip(drafts, requests, strict=True):
                    with self._refusing(request.job_name):
                        jobs.append(draft.publish(request.job_name))
                        made.append(request.job_name)
                may_be_queued = True
                self._start_array(jobs, script)
            except BaseException as error:
                if not (may_be_queued and isinstance(error, (ConnectionLost, KeyboardInterrupt))):
                    for name in made:
                        self._root.remove(name)
                raise

    def refusal(self, complaint: str) -> PlatformError:
        if "Invalid job array specification" in complaint:
            return self._array_too_large()
        return refused(complaint, self.cluster.login)

    def _array_too_large(self) -> PlatformError:
        shown = self.cluster.shell.run("scontrol show config").text
        if re.search(r"^MaxArraySize\s*=\s*0$", shown, re.MULTILINE):
            return PlatformError(
                "Slurm does not take the array: the cluster has job arrays disabled (MaxArraySize=0)",
                hint="Submit the jobs one by one.",
            )
        found = re.search(r"^MaxArraySize\s*=\s*(\d+)", shown, re.MULTILINE)
        most = f"at most {found[1]} elements (MaxArraySize)" if found else "fewer elements (MaxArraySize)"
        return PlatformError(
            f"Slurm does not take the array: the cluster allows {most}", hint="Submit several arrays."
        )

    # -- in the queue

    def queue(self, cluster: str = "") -> Queue:
        if cluster not in self._queues:
            file = queue_file(self.name, self.cluster.login, cluster, os.environ.get("SLURM_CONF", ""))
            self._queues[cluster] = Queue(
                self.cluster.shell, file, cluster=cluster, poll_seconds=self._poll_seconds
            )
        return self._queues[cluster]

    def signs(self, job_name: str, number: str) -> tuple[list[str], list[str]]:
        return signs(job_name, number)

    def _rank(self, standing: Standing[QueueRow]) -> int:
        """The running submission is used, else the one that starts next."""
        if not standing.row or not standing.row.is_waiting:
            return 0
        return 2 if standing.row.reason.startswith("Dependency") else 1

    def _clusters_of(self, job: JobFiles) -> list[str]:
        asked = re.search(rb"^#SBATCH --clusters=([\w,.-]+)$", job.read(SCRIPT), re.MULTILINE)
        return asked[1].decode().split(",") if asked else [""]

    def _find_in(self, rows: Mapping[str, QueueRow], job: JobFiles, since: float) -> str:
        """Also finds an element of an array, which has the name and the folder of the array."""
        array, _, index = job.name.rpartition("-")
        found = super()._find_in(rows, job, since)
        if found or not index.isdigit():
            return found
        elements = {number: row for number, row in rows.items() if number.endswith(f"_{index}")}
        folder = self.cluster.job_folder(f"{array}-0")
        return find_by_folder(elements, [array], folder, since, is_here=not self.cluster.login)

    def _look(self, job: JobFiles, one: Submission) -> Standing[QueueRow]:
        found = super()._look(job, one)
        return Standing(True) if not found.is_alive and self.elsewhere(one) else found

    def elsewhere(self, one: Submission) -> str:
        """A message if the submission is on another cluster than this machine's; else empty."""
        here = "" if one.cluster or not one.site else self.queue().site
        if here in ("", one.site):
            return ""
        return f"the job is on the cluster {one.site}, and this machine belongs to {here}"

    def signal(self, job: JobFiles, name: str) -> None:
        """Send a signal to the batch step; a stop also takes a waiting job out of the queue.

        Raises PlatformError if Slurm does not answer.
        """
        submissions = recorded(job)
        if not submissions:
            return  # the batch step finds the stop mark when it starts
        if away := self.elsewhere(submissions[-1]):
            why = f"{away}: it was not taken out of the queue there"
            raise self._not_unqueued(job, why, how="run this on that cluster")
        command = signal_command(job.name, submissions, _SIGNALS[name], unqueue=name == STOP)
        try:
            answer = self.cluster.shell.run(command, timeout=SIGNAL_SECONDS)
            said = [line for line in answer.complaint.splitlines() if not any(word in line for word in _OVER)]
            error = said[-1].removeprefix("scancel: error: ") if said else ""
        except PlatformError as failed:
            error = failed.message
        for one in submissions:
            self.queue(one.cluster).expire()
        if error and name == STOP:
            raise self._not_unqueued(job, f"Slurm did not take the stop of job {job.name}: {error}")
        if error:
            raise PlatformError(f"Slurm did not send the signal to job {job.name}: {error}")

    def _description(
        self, job: JobFiles, record: JobRecord, summary: Summary, request: Mapping[str, Any]
    ) -> JobDescription:
        """Adds the facts that Slurm reports about a job that has not ended."""
        description = super()._description(job, record, summary, request)
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
                details["starts"] = f"{moment(row.start)}, as Slurm plans now"
        elif row.nodes:
            details["nodes"] = row.nodes
        return replace(
            description,
            status=JobStatus.PENDING if waits else description.status,
            phase=None if waits else description.phase,
            reason=description.reason
            or (reason_of(row, record.status) if waits or not row.is_waiting else ""),
            details={**details, **description.details},
        )

    def states_of(self, record: JobRecord, job: JobFiles) -> list[JobState]:
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
            running = self._running.setdefault(job.name, {})
            if began not in running or (
                nodes and not running[began].message
            ):  # a job that left the queue had some
                running[began] = JobState(began, "Running", nodes)
            states.append(running[began])
        elif row and (reason := reason_of(row, record.status)):
            states.append(JobState(row.start or record.submitted_at, "Starting", reason))
        if record.status.is_final:
            states.append(JobState(record.ended_at or record.submitted_at, str(record.status), record.reason))
        elif silence:
            more = "the job is not affected, and is watched again when Slurm answers"
            states.append(JobState(record.submitted_at, "Unknown", f"{silence}: {more}"))
        return states

    def _pending(self, row: QueueRow, since: float) -> JobState:
        """Why the job waits, and when it should start. Changes only if the news is worth a line of output."""
        why = reason_of(row, JobStatus.PENDING)
        last = self._news.get(row.number)
        if last is None or last.why != why or has_moved(last.start, row.start):
            message = why
            if row.start and row.start > time.time() + SOON_SECONDS:
                message += f" Slurm plans to start it {moment(row.start)}."
            state = JobState(time.time() if last else since, "Pending", message)
            last = self._news[row.number] = _News(why, row.start, state)
        return last.state

    def states(self, job_name: str) -> builtins.list[JobState]:
        job = self._existing(job_name)
        return self.states_of(self._settled(job), job)

    # -- after the queue

    def _ending(self, job: JobFiles) -> tuple[Ending | None, str]:
        """How the job ended in Slurm, and its number there; None while it is alive, or if Slurm has no record of it."""
        standing, submission = self._standing(job)
        if standing.is_alive or submission is None:
            return None, ""
        ending = self.queue(submission.cluster).ending(submission.number)
        is_it = ending is not None and is_same(ending, *signs(job.name, submission.number))
        return ending if is_it else None, submission.number

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
        return explain(ending or Ending(""), number, self._last_words(job))

    def is_to_continue(self, job: JobFiles, record: JobRecord, request: Mapping[str, Any]) -> bool:
        """Whether a job that has left the queue without a final record was interrupted, and has attempts left."""
        if request.get("requeue", "never") == "never" or job.is_stopped:
            return False
        ending, number = self._ending(job)
        state = ending.state if ending else ""
        if record.status == JobStatus.PENDING:
            return number != "" and job.read(INTERRUPTED) == number.encode() and state != CANCELLED
        return state in TAKEN and record.preemptions < request["max_preemptions"]

    def _closed(self, job: JobFiles, record: JobRecord) -> JobRecord:
        """A job that someone cancelled is recorded as stopped, not as failed.

        One that lost its nodes is recorded as interrupted, as its batch step would have done.
        """
        record = super()._closed(job, record)
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

        Returns ``record`` itself if Slurm has nothing to add, or does not answer.
        """
        if record.status != JobStatus.INTERRUPTED or record.reason != SIGNAL or record.failure:
            return record
        if job.is_stopped:  # its mark had not reached the node: shared file systems may take a minute
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

    @contextlib.contextmanager
    def upkeep(self, job_name: str) -> Iterator[None]:
        """While the body waits for the job, requeue it if it was interrupted and is not in the queue."""
        self._waited_for[job_name] += 1
        try:
            yield
        finally:
            self._waited_for[job_name] -= 1

    def _waiting(self, job: JobFiles, record: JobRecord) -> JobRecord | None:
        if not self.is_to_continue(job, record, job.request()):
            return None
        reason = f"interrupted, and not in the queue: to submit it again, run: cloudtrain wait {job.name}"
        if self._waited_for[job.name]:
            self.start_again(job)
            reason = "interrupted, and in the queue again"
        return replace(record, status=JobStatus.PENDING, pid=None, reason=reason)

    def _settled(self, job: JobFiles) -> JobRecord:
        record = super()._settled(job)
        explained = self.explained(record, job)
        if explained is not record and explained.status.is_final:
            with contextlib.suppress(OSError):  # a full disk: the next call tries again
                job.write_record(explained)
        return explained


def chain_dependency(numbers: Sequence[str]) -> str:
    """The condition for the next submission of a chain: all before it have failed.

    Once one has succeeded, the remaining ones cannot start, and ``--kill-on-invalid-dep`` removes them all. If the
    condition named only the last one, those after a removed one would start, because a removed one counts as failed.
    """
    return f"afternotok:{':'.join(numbers)}"


def _waits(standing: Standing[QueueRow], record: JobRecord) -> bool:
    """Whether the job waits in the queue. A job that has started since Slurm was queried does not."""
    if not standing.row or not standing.row.is_waiting:
        return False
    began = record.resumed_at or record.started_at
    return record.status == JobStatus.PENDING or began is None or standing.taken > began + SKEW_SECONDS


def is_unconfigured(complaint: str) -> bool:
    """Whether a command of Slurm failed because it found no slurm.conf."""
    return bool(re.search(r"configuration source|process configuration|cannot stat file", complaint))


def refused(complaint: str, login: str) -> PlatformError:
    """The error for a job that sbatch did not accept."""
    where = f" on {login}" if login else ""
    if re.search(r"sbatch: (command )?not found", complaint):
        return PlatformError(
            f"there is no sbatch{where or ' on this machine'}",
            hint="Submit from a login node of the cluster, or name one: --set platform_options.login=ALIAS",
        )
    if is_unconfigured(complaint):
        return PlatformError(
            f"Slurm's commands do not find their configuration{where}: {complaint.splitlines()[-1]}",
            hint="Submit from a login node of the cluster, or set SLURM_CONF to the path of its slurm.conf.",
        )
    lines = [line.removeprefix("sbatch: ").removeprefix("error: ") for line in complaint.splitlines()]
    if "CPU count per node can not be satisfied" in complaint:
        return PlatformError(
            f"Slurm does not take the job: {'; '.join(lines)}",
            hint="Each rank gets a CPU, and no node has that many. Use fewer ranks, or let them share: set "
            "platform_options.cpus_per_task to the CPUs of a node.",
        )
    return PlatformError(
        f"Slurm does not take the job: {'; '.join(lines) or 'sbatch gave no reason'}",
        hint="Check platform_options against: sinfo, sacctmgr show assoc user=$USER, cloudtrain doctor",
    )
