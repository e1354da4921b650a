"""The host launcher of Slurm: the queue starts the batch step of a job, which starts its hosts."""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Sequence
from dataclasses import replace

from cloudtrain.errors import PlatformError
from cloudtrain.platforms.base import Request
from cloudtrain.platforms.batch.cluster import Cluster
from cloudtrain.platforms.batch.connection import ConnectionLost
from cloudtrain.platforms.batch.once import run_once
from cloudtrain.platforms.batch.placement import SCRIPT, forget_secrets, place_job
from cloudtrain.platforms.batch.remote_root import RemoteRoot
from cloudtrain.platforms.batch.submissions import (
    ANSWERS,
    SUBMISSIONS,
    Submission,
    parse_answers,
    submissions_to_json,
)
from cloudtrain.platforms.common.request_body import request_settings
from cloudtrain.platforms.slurm.chain import chain_dependency
from cloudtrain.platforms.slurm.continuation import INTERRUPTED, WAITS_ALREADY
from cloudtrain.platforms.slurm.identity import own, own_function
from cloudtrain.platforms.slurm.life import JobLife, last_submissions
from cloudtrain.platforms.slurm.squeue import on_cluster
from cloudtrain.platforms.supervised.root import JobFiles

ARRAY_SCRIPT = "array.sh"
"""In the folder of the first element."""

_SBATCH = """said=$(sbatch --parsable {script}); code=$?
answer=$(printf '%s\\n' "$said" | grep -E '^[0-9]+(;.*)?$') && ( {keep} ) 2>/dev/null
printf '%s\\n' "$said"; exit $code
"""
"""Submits, and keeps the number in the folder of the job, or of each element: the client may never get the answer."""
_KEEP = f"""printf '%s\\n' "$answer" >> {ANSWERS}"""
_KEEP_ELEMENTS = f"""n=${{{{answer%%;*}}}}; i=0; while [ $i -lt {{count}} ]; do
printf '%s\\n' "${{{{n}}}}_$i${{{{answer#$n}}}}" > ../{{array}}-$i/{ANSWERS}; i=$((i+1)); done"""


class SlurmLauncher:
    """A `HostLauncher` that hands jobs to ``sbatch``.

    Args:
        life: knows what becomes of them.
    """

    def __init__(self, cluster: Cluster, life: JobLife) -> None:
        self._cluster = cluster
        self._life = life

    def start(self, draft: JobFiles, request: Request) -> None:
        self.place(draft, request)
        job = draft.publish(request.job_name)
        try:
            submission = self._submit(job, SCRIPT)
        except ConnectionLost as error:
            raise _may_be_queued(error, job.name) from error
        except BaseException:
            self._cluster.root.remove(job.name)
            raise
        job.write(SUBMISSIONS, submissions_to_json([submission]))
        if request.body["requeue"] == "chain":
            self._submit_chain(job, submission, request.body["max_preemptions"])
        self._life.queue(submission.cluster).expire()

    def _submit_chain(self, job: JobFiles, first: Submission, count: int) -> None:
        """Submit all that may continue the job. Raises PlatformError; then nothing is left."""
        chain = [first]
        try:
            while len(chain) <= count:
                dependency = chain_dependency([one.number for one in chain])
                chain.append(self._submit(job, f"--dependency={dependency} {SCRIPT}"))
        except BaseException:
            numbers = " ".join(one.number for one in chain)
            self._cluster.shell.run(f"scancel{on_cluster(first.cluster)} {numbers}")
            self._cluster.root.remove(job.name)
            raise
        job.write(SUBMISSIONS, submissions_to_json(chain))

    def start_again(self, job: JobFiles) -> None:
        """Let a job continue that was interrupted, and that nothing on its nodes has put into the queue again.

        Only for a client that waits for the job: see `QueuedJobs.upkeep`.

        If two clients do this at the same moment, Slurm runs one submission after the other.
        """
        known = last_submissions(job)
        last = known[-1]
        answer = self._cluster.shell.run(
            f'say() {{ said=$("$@"); }}\n{own_function()}\n'
            f"{own(last, job.name)} && scontrol requeue{on_cluster(last.cluster)} {shlex.quote(last.number)}"
        )
        if answer.code and WAITS_ALREADY not in answer.complaint:
            known.append(self._submit(job, f"--dependency=singleton {SCRIPT}"))
            job.write(SUBMISSIONS, submissions_to_json(known))
        job.write(INTERRUPTED, b"")  # if this submission is cancelled, the job ends
        self._life.queue(last.cluster).expire()

    def start_array(self, jobs: Sequence[JobFiles], script: str) -> None:
        """Submit jobs whose folders are complete as one array. Raises PlatformError; then none of them is queued."""
        jobs[0].write(ARRAY_SCRIPT, script.encode())
        try:
            found = self._submit(jobs[0], ARRAY_SCRIPT, elements=len(jobs))
        except ConnectionLost as error:
            raise _may_be_queued(error, jobs[0].name) from error
        for number, job in enumerate(jobs):
            element = replace(found, number=f"{found.number}_{number}")
            job.write(SUBMISSIONS, submissions_to_json([element]))
        self._life.queue(found.cluster).expire()

    def place(self, draft: JobFiles, request: Request) -> None:
        place_job(self._cluster, draft, request)

    def forget_secrets(self, job: JobFiles) -> None:
        forget_secrets(self._cluster, job)

    def signal(self, job: JobFiles, name: str) -> None:
        self._life.signal(job, name)

    def is_alive(self, job: JobFiles) -> bool:
        is_alive = self._life.standing(job).is_alive
        if not is_alive and isinstance(self._cluster.root, RemoteRoot):
            self._cluster.root.forget()  # files that were read before may be older than its end
        return is_alive

    def _submit(self, job: JobFiles, script: str, *, elements: int = 0) -> Submission:
        folder = self._cluster.job_folder(job.name)
        keep = _KEEP_ELEMENTS.format(array=shlex.quote(job.name.removesuffix("-0")), count=elements)
        command = _SBATCH.format(script=script, keep=keep if elements else _KEEP)
        command = self._without_secrets(job) + command
        answer = run_once(self._cluster.shell, folder, command, program="sbatch")
        found = parse_answers(answer.out, time.time())
        if answer.code or not found:
            complaint = answer.complaint or answer.text
            if "Invalid job array specification" in complaint:
                raise self._array_too_large()
            raise refused(complaint, self._cluster.login)
        return found[0]

    def _without_secrets(self, job: JobFiles) -> str:
        """The line that hides the job's secrets from sbatch: Slurm may store the environment in its accounting."""
        if self._cluster.shell.place:
            return ""  # a login node does not have them
        names = request_settings(job.request()).hidden_variables.split(",")
        hidden = [name for name in names if name.isascii() and name.isidentifier()]
        return f"unset {' '.join(hidden)}\n" if hidden else ""

    def _array_too_large(self) -> PlatformError:
        shown = self._cluster.shell.run("scontrol show config").text
        found = re.search(r"^MaxArraySize\s*=\s*(\d+)", shown, re.MULTILINE)
        most = f"at most {found[1]} elements (MaxArraySize)" if found else "fewer elements (MaxArraySize)"
        return PlatformError(
            f"Slurm does not take the array: the cluster allows {most}", hint="Submit several arrays."
        )


def _may_be_queued(error: ConnectionLost, job_name: str) -> ConnectionLost:
    return ConnectionLost(
        f"{error.message}, while job {job_name} was submitted: it may be in the queue",
        hint=f"When the connection works again: cloudtrain describe {job_name} --platform slurm",
    )


def refused(complaint: str, login: str) -> PlatformError:
    """The error for a job that sbatch did not take."""
    where = f" on {login}" if login else ""
    if re.search(r"sbatch: (command )?not found", complaint):
        return PlatformError(
            f"there is no sbatch{where or ' on this machine'}",
            hint="Submit from a login node of the cluster, or name one: --set platform_options.login=ALIAS",
        )
    lines = [line.removeprefix("sbatch: ").removeprefix("error: ") for line in complaint.splitlines()]
    return PlatformError(
        f"Slurm does not take the job: {'; '.join(lines) or 'sbatch gave no reason'}",
        hint="Check platform_options against: sinfo, sacctmgr show assoc user=$USER, cloudtrain doctor",
    )
