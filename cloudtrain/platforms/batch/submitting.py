"""The way of a job into a scheduler's queue: first its folder, then the submission, then the number of that.

A submission may succeed without an answer: the command times out, the connection breaks, the client is killed. So the
folder stays, and the job is looked for in the queue, by its folder and its name.
"""

from __future__ import annotations

import contextlib
import os
import posixpath
import re
import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Protocol, TypeVar

from cloudtrain.contract import FailureClass, FailureReport, JobStatus
from cloudtrain.contract.request_body import request_settings
from cloudtrain.errors import PlatformError
from cloudtrain.packaging import pack_runtime
from cloudtrain.packaging.cache import cached_archive
from cloudtrain.platforms.base import Request
from cloudtrain.platforms.batch.cluster import Cluster
from cloudtrain.platforms.batch.queue import SKEW_SECONDS
from cloudtrain.platforms.batch.shell import Answer, ConnectionLost, Shell
from cloudtrain.platforms.supervised.root import JobFiles
from cloudtrain.runtime.supervisor.folder import LOG, SUPERVISOR_LOG
from cloudtrain.runtime.supervisor.record import JobRecord
from cloudtrain.runtime.supervisor.submissions import (
    ANSWERS,
    SECRETS,
    SUBMISSIONS,
    Submission,
    parse_answers,
    parse_site,
    parse_submissions,
    secrets_to_json,
    submissions_to_json,
)
from cloudtrain.storage import state_home

SCRIPT = "job.sh"
SHOWN = 5
"""Variables that the log names."""


def place_job(cluster: Cluster, draft: JobFiles, request: Request) -> None:
    """Write all files of a job into its folder, and what it shares with others next to it."""
    _provide(cluster, request)
    draft.write(SCRIPT, request.body["script"].encode())
    if request.secrets:
        cluster.root.write_private(f"{draft.name}/{SECRETS}", secrets_to_json(request.secrets))
    draft.write(LOG, _left_out(cluster.left_out).encode())
    draft.write(SUPERVISOR_LOG, b"")
    draft.write_record(JobRecord(JobStatus.PENDING, submitted_at=time.time()))


def forget_secrets(cluster: Cluster, job: JobFiles) -> None:
    """Empty the file with the secrets of a job that has ended without its batch step, which removes it."""
    if job.exists(SECRETS):
        cluster.root.write_private(f"{job.name}/{SECRETS}", secrets_to_json({}))


def _provide(cluster: Cluster, request: Request) -> None:
    """Put the runtime and the source onto the cluster, once for each hash."""
    body = request.body
    cluster.root.provide(
        body["bundled_runtime"], lambda: pack_runtime(state_home() / "runtime").path.read_bytes()
    )
    sha256 = body["settings"].get("source_sha256")
    if sha256:
        cluster.root.provide(cluster.source_file(sha256), lambda: cached_archive(sha256).read_bytes())


def _left_out(names: Sequence[str]) -> str:
    """The line that names the variables that the job does not get; empty if it gets all of them."""
    if not names:
        return ""
    shown = ", ".join([*names[:SHOWN], *(["..."] if names[SHOWN:] else [])])
    return f"[cloudtrain] submitted from inside another job, whose variables this one does not get: {shown}\n"


ATTEMPTS = 3
ANSWER_GRACE = 10.0
"""Seconds that an answer may take in addition, on its way."""
_UNKNOWN = 75

_SCRIPT = """cd {folder} || exit
d=.once-{token}
if mkdir $d 2>/dev/null; then
    ( trap '' HUP PIPE
    ( {command}
    ) > $d/out 2> $d/err </dev/null
    echo $? > $d/new; mv $d/new $d/code ) </dev/null >/dev/null 2>&1
fi
n=0
until [ -f $d/code ]; do [ $n -lt {seconds} ] || exit {unknown}; n=$((n+1)); sleep 1; done
cat $d/out; cat $d/err >&2
code=$(cat $d/code)
exit $code
"""


def run_once(
    shell: Shell, folder: str, command: str, *, timeout: float = 60, program: str = "the command"
) -> Answer:
    """The answer of ``command``, which runs in ``folder`` once, however often the connection breaks.

    The command leaves its answer in the folder. After a broken connection, the next one finds it there.

    Args:
        timeout: in seconds.
        program: for messages.

    Raises ConnectionLost if it stays unknown whether it was carried out, PlatformError if it was not.
    """
    if not shell.place:  # without a connection that could break
        return shell.run(f"cd {shlex.quote(folder)} || exit\n{command}", timeout=timeout)
    token = os.urandom(8).hex()
    script = _SCRIPT.format(
        folder=shlex.quote(folder), token=token, command=command, seconds=int(timeout), unknown=_UNKNOWN
    )
    broken: ConnectionLost | None = None
    for _ in range(ATTEMPTS):
        try:
            answer = shell.run(script, timeout=timeout + ANSWER_GRACE)
        except PlatformError as error:
            if broken is None and not isinstance(error, ConnectionLost):
                raise  # no attempt has begun
            broken = ConnectionLost(error.message, hint=error.hint)
            continue
        if answer.code == _UNKNOWN and not answer.out:
            broken = ConnectionLost(f"{program} did not answer within {timeout:g} s")
            break
        return answer
    assert broken
    raise broken


ANSWER_SECONDS = 60.0
"""How long the command that submits may take."""
SUBMIT_SECONDS = 300.0
"""How long a submission may take, with a connection that breaks. After that, a job that is not in the queue never gets
there."""

_SUBMIT = """said=$({command}); code=$?
answer=$(printf '%s\\n' "$said" | grep -E '^[0-9]+([.;].*)?$') && ( {keep} ) 2>/dev/null
printf '%s\\n' "$said"; [ -z "$answer" ] || {site}
exit $code
"""
"""Submits, and keeps the number in the folder of the job, or of each element: the client may never get the answer."""
KEEP = f"""printf '%s\\n' "$answer" >> {ANSWERS}"""
_UNCERTAIN = re.compile(
    r"timed out on send/recv|Zero Bytes were transmitted|Premature end of message|End of File|Communication failure"
    r"|Failed in sending/receiving a message|Communication time out",
    re.IGNORECASE,
)
"""The complaints of sbatch, qsub and bsub after which the scheduler may have taken the job."""


class Named(Protocol):
    """A job in a queue, with what identifies it."""

    @property
    def name(self) -> str: ...

    @property
    def folder(self) -> str:
        """From which it was submitted, as an absolute path; empty if the scheduler does not report it."""
        ...


class Queued(Named, Protocol):
    @property
    def submitted(self) -> float | None:
        """In seconds since the epoch."""
        ...

    @property
    def is_ended(self) -> bool: ...


AnyQueued = TypeVar("AnyQueued", bound=Queued)


class Scheduler(Protocol):
    """The commands of a scheduler that put jobs into its queue, and find them there."""

    product: str
    """Its name, for messages."""
    program: str
    """The command that submits."""
    site: str
    """The command that prints ``site=`` and the name that the scheduler gives itself."""

    def find(self, job: JobFiles) -> tuple[Submission | None, float]:
        """The submission of a job in the queue, and when the scheduler was queried: 0 if it does not answer."""
        ...

    def refusal(self, complaint: str) -> PlatformError:
        """The error for a job that was not taken."""
        ...


class Submitter:
    """Submits jobs, and finds those whose number was not recorded."""

    def __init__(self, cluster: Cluster, scheduler: Scheduler) -> None:
        self._cluster = cluster
        self._scheduler = scheduler

    def start(self, draft: JobFiles, request: Request, command: str) -> tuple[JobFiles, Submission]:
        """Place the files of a job, and run ``command`` in its folder. See `HostLauncher.start`.

        Raises ConnectionLost if the job may be in the queue: its folder stays.
        """
        place_job(self._cluster, draft, request)
        job = draft.publish(request.job_name)
        try:
            submission = self.submit(job, command)
        except (ConnectionLost, KeyboardInterrupt):
            raise
        except BaseException:
            self._cluster.root.remove(job.name)
            raise
        record(job, [submission])
        return job, submission

    def submit(
        self, job: JobFiles, command: str, *, keep: str = KEEP, known: Sequence[Submission] = ()
    ) -> Submission:
        """Raises ConnectionLost if the job may be in the queue, and PlatformError if it is not.

        Args:
            known: earlier submissions of the job.
        """
        folder = self._cluster.job_folder(job.name)
        line = self._without_secrets(job) + _SUBMIT.format(
            command=command, keep=keep, site=self._scheduler.site
        )
        program = self._scheduler.program
        try:
            answer = run_once(self._cluster.shell, folder, line, timeout=ANSWER_SECONDS, program=program)
        except ConnectionLost as error:
            return self._found(job, known, error.message)
        found = parse_answers(answer.out, time.time())
        if not answer.code and found:
            return replace(found[0], site=parse_site(answer.out))
        if not answer.code:  # a program in front of it may print something else
            return self._found(job, known, f"{program} gave no number")
        complaint = answer.complaint or answer.text
        if uncertain := _UNCERTAIN.search(complaint):
            return self._found(job, known, f"{program}: {uncertain[0]}")
        raise self._scheduler.refusal(complaint)

    def _found(self, job: JobFiles, known: Sequence[Submission], why: str) -> Submission:
        """The new submission of a job, after its answer was lost. Raises ConnectionLost if it is not known."""
        numbers = [one.number for one in known]
        with contextlib.suppress(PlatformError, OSError):  # of a connection that is still lost
            new = [one for one in recorded(job) if one.number not in numbers]
            if not new and not known:
                found, _ = self._scheduler.find(job)
                new = [found] if found else []
            if new:
                return new[-1]
        name = job.name
        raise ConnectionLost(
            f"{why}, while job {name} was submitted: it may be in the queue of {self._scheduler.product}",
            hint=f"Later, this shows whether it is: cloudtrain describe {name}. To take it out: cloudtrain stop {name}",
        )

    def _without_secrets(self, job: JobFiles) -> str:
        """The line that hides the job's secrets from the command: Slurm may store the environment in its accounting."""
        if self._cluster.shell.place:
            return ""  # a login node does not have them
        names = request_settings(job.request()).hidden_variables.split(",")
        hidden = [name for name in names if name.isascii() and name.isidentifier()]
        return f"unset {' '.join(hidden)}\n" if hidden else ""


Find = Callable[[JobFiles], tuple[Submission | None, float]]


def find_unrecorded(job: JobFiles, find: Find) -> tuple[Submission | None, bool]:
    """The submission of a job whose number was not recorded, and whether the job may still get into the queue.

    Records the number.

    Args:
        find: see `Scheduler.find`.
    """
    found, asked = find(job)
    if found:
        record(job, [found])
    if asked and job.is_stopped:
        return found, False  # if it gets there later, it finds the mark of the stop
    return found, asked < job.record().submitted_at + SUBMIT_SECONDS


def never_queued(product: str) -> FailureReport:
    """The report of a job that `find_unrecorded` does not find."""
    return FailureReport(
        FailureClass.PLATFORM,
        f"the job was never submitted: it is not in the queue of {product}, and the command that submitted it was "
        "interrupted",
        "Submit the job again, under another name.",
        exit_code=1,
        time=time.time(),
    )


def recorded(job: JobFiles) -> list[Submission]:
    """The submissions of the job that may be in the queue: one that runs, and those that may continue it.

    Those of a client that was lost before it recorded them are in the answers that the command left there.
    """
    known = parse_submissions(job.read(SUBMISSIONS))
    numbers = {one.number for one in known}
    answers = [one for one in parse_answers(job.read(ANSWERS), 0.0) if one.number not in numbers]
    if not answers:
        return known
    return [*known, *(replace(one, time=job.record().submitted_at) for one in answers)]


def record(job: JobFiles, submissions: Sequence[Submission]) -> None:
    """Write the submissions of a job down. On a full disk, the answers of the command are left."""
    with contextlib.suppress(OSError):
        job.write(SUBMISSIONS, submissions_to_json(submissions))


def is_same(found: Named, names: Sequence[str], folders: Sequence[str]) -> bool:
    """Whether a job with the right number is the right one, by its name, or if someone has changed that, its folder.

    Schedulers give numbers again: after the loss of their state, or when a counter is full. True without a name.
    """
    return not found.name or found.name in names or posixpath.basename(found.folder) in folders


def find_by_folder(
    rows: Mapping[str, AnyQueued], names: Sequence[str], folder: str, since: float, *, is_here: bool
) -> str:
    """The number of the job that was submitted from ``folder``, with one of ``names``, after ``since``; empty if none.

    Args:
        is_here: whether this machine has the folder, to which several paths may lead.
    """
    for number, row in rows.items():
        is_folder = posixpath.basename(row.folder) == posixpath.basename(folder)
        if is_here and is_folder:
            is_folder = os.path.realpath(row.folder) == os.path.realpath(folder)
        is_new = row.submitted is None or row.submitted > since - SKEW_SECONDS
        # without a folder, the name has to do: one that has ended may be an earlier job of that name
        is_it = is_folder if row.folder else not row.is_ended
        if row.name in names and is_it and is_new:
            return number
    return ""
