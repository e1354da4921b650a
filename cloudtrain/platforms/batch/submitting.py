"""How a job gets into a scheduler's queue: its folder is written, then it is submitted, then its number is recorded.

A submission may succeed although its answer is lost: the command times out, the connection breaks, or the client is
killed. Therefore the folder is kept, and the queue is searched for the job by its folder and its name.
"""

from __future__ import annotations

import contextlib
import os
import posixpath
import shlex
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

from cloudtrain.contract import FailureClass, FailureReport, JobStatus
from cloudtrain.errors import PlatformError
from cloudtrain.packaging import pack_runtime
from cloudtrain.packaging.cache import cached_archive
from cloudtrain.platforms.base import Request
from cloudtrain.platforms.batch.cluster import Cluster
from cloudtrain.platforms.batch.queue import SKEW_SECONDS, AnyQueued, Named
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
    parse_submissions,
    secrets_to_json,
    submissions_to_json,
)
from cloudtrain.storage import state_home

SCRIPT = "job.sh"
SHOWN = 5
"""How many variables the log names."""


def place_job(cluster: Cluster, draft: JobFiles, request: Request) -> None:
    """Write all files of a job into its folder, and put the files that it shares with other jobs onto the cluster."""
    _provide(cluster, request)
    draft.write(SCRIPT, request.body["script"].encode())
    if request.secrets:
        cluster.root.write_private(f"{draft.name}/{SECRETS}", secrets_to_json(request.secrets))
    draft.write(LOG, _left_out(cluster.left_out).encode())
    draft.write(SUPERVISOR_LOG, b"")
    draft.write_record(JobRecord(JobStatus.PENDING, submitted_at=time.time()))


def forget_secrets(cluster: Cluster, job: JobFiles) -> None:
    """Empty the secrets file of a job that ended without its batch step, which otherwise removes the file."""
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
"""Additional seconds for the transfer of an answer."""
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
    """Run ``command`` once in ``folder``, however often the connection breaks.

    The answer is written into the folder, where the next attempt finds it after a broken connection.

    Args:
        timeout: in seconds.
        program: for messages.

    Raises ConnectionLost if it is unknown whether the command ran, PlatformError if it did not.
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


SUBMIT_SECONDS = 300.0
"""How long a submission may take, including broken connections. A job that is not in the queue by then never gets
there."""


def never_queued(product: str) -> FailureReport:
    """The report of a job that never reached the queue."""
    return FailureReport(
        FailureClass.PLATFORM,
        f"the job was never submitted: it is not in the queue of {product}, and the command that submitted it was "
        "interrupted",
        "Submit the job again, under another name.",
        exit_code=1,
        time=time.time(),
    )


def recorded(job: JobFiles) -> list[Submission]:
    """The submissions of the job that may be in the queue: a running one, and those that may continue it.

    If the client was lost before it recorded a submission, the command's answer in the job's folder has its number.
    """
    known = parse_submissions(job.read(SUBMISSIONS))
    numbers = {one.number for one in known}
    answers = [one for one in parse_answers(job.read(ANSWERS), 0.0) if one.number not in numbers]
    if not answers:
        return known
    return [*known, *(replace(one, time=job.record().submitted_at) for one in answers)]


def record(job: JobFiles, submissions: Sequence[Submission]) -> None:
    """Record the submissions of a job. If the disk is full, only the answers of the command remain."""
    with contextlib.suppress(OSError):
        job.write(SUBMISSIONS, submissions_to_json(submissions))


def is_same(found: Named, names: Sequence[str], folders: Sequence[str]) -> bool:
    """Whether a job with the right number is the right one, by its name, or by its folder if it was renamed.

    Schedulers reuse numbers after the loss of their state, or when a counter overflows. True for a job without a name.
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
        # without a folder, only the name is compared, but an ended job may be an earlier one of that name
        is_it = is_folder if row.folder else not row.is_ended
        if row.name in names and is_it and is_new:
            return number
    return ""
