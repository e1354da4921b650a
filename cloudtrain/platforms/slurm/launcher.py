"""The host launcher of Slurm: the queue starts the batch step of a job, which starts its hosts."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import replace

from cloudtrain.errors import PlatformError
from cloudtrain.platforms.base import Request
from cloudtrain.platforms.batch.cluster import Cluster
from cloudtrain.platforms.batch.remote_root import RemoteRoot
from cloudtrain.platforms.batch.shell import ConnectionLost
from cloudtrain.platforms.batch.submitting import SCRIPT, Submitter, place_job, record, recorded
from cloudtrain.platforms.slurm.life import JobLife
from cloudtrain.platforms.slurm.squeue import SITE, on_cluster, own, own_function
from cloudtrain.platforms.supervised.root import JobFiles
from cloudtrain.runtime.slurm.continuation import INTERRUPTED, WAITS_ALREADY
from cloudtrain.runtime.supervisor.submissions import ANSWERS, Submission


def chain_dependency(numbers: Sequence[str]) -> str:
    """The condition for the next submission of a chain: all before it have ended without success.

    If one has succeeded, none of those that are left can start, and ``--kill-on-invalid-dep`` removes them all. With
    only the last one in the condition, those after a removed one would start: a removed one counts as failed.
    """
    return f"afternotok:{':'.join(numbers)}"


PARSABLE = "sbatch --parsable"
SBATCH = f"{PARSABLE} {SCRIPT}"
ARRAY_SCRIPT = "array.sh"
"""In the folder of the first element."""

_KEEP_ELEMENTS = f"""n=${{{{answer%%;*}}}}; i=0; while [ $i -lt {{count}} ]; do
printf '%s\\n' "${{{{n}}}}_$i${{{{answer#$n}}}}" > ../{{array}}-$i/{ANSWERS}; i=$((i+1)); done"""


class SlurmLauncher:
    """A `HostLauncher` that hands jobs to ``sbatch``.

    Args:
        life: knows what becomes of them.
    """

    product = "Slurm"
    program = "sbatch"
    site = SITE

    def __init__(self, cluster: Cluster, life: JobLife) -> None:
        self._cluster = cluster
        self._life = life
        self._submitter = Submitter(cluster, self)

    def start(self, draft: JobFiles, request: Request) -> None:
        job, submission = self._submitter.start(draft, request, SBATCH)
        if request.body["requeue"] == "chain":
            self._submit_chain(job, submission, request.body["max_preemptions"])
        self._life.queue(submission.cluster).expire()

    def find(self, job: JobFiles) -> tuple[Submission | None, float]:
        return self._life.find(job)

    def _submit_chain(self, job: JobFiles, first: Submission, count: int) -> None:
        """Submit all that may continue the job. Raises PlatformError; then nothing is left."""
        chain = [first]
        try:
            while len(chain) <= count:
                dependency = chain_dependency([one.number for one in chain])
                chain.append(
                    self._submitter.submit(job, f"{PARSABLE} --dependency={dependency} {SCRIPT}", known=chain)
                )
        except ConnectionLost:
            raise  # all may be in the queue
        except BaseException:
            numbers = " ".join(one.number for one in chain)
            self._cluster.shell.run(f"scancel{on_cluster(first.cluster)} {numbers}")
            self._cluster.root.remove(job.name)
            raise
        record(job, chain)

    def start_again(self, job: JobFiles) -> None:
        """Let a job continue that was interrupted, and that nothing on its nodes has put into the queue again.

        Only for a client that waits for the job: see `SlurmJobs.upkeep`.

        If two clients do this at the same moment, Slurm runs one submission after the other.
        """
        known = recorded(job)
        last = known[-1]
        answer = self._cluster.shell.run(
            f'say() {{ said=$("$@"); }}\n{own_function()}\n'
            f"{own(last, job.name)} && scontrol requeue{on_cluster(last.cluster)} {shlex.quote(last.number)}"
        )
        if answer.code and WAITS_ALREADY not in answer.complaint:
            known.append(
                self._submitter.submit(job, f"{PARSABLE} --dependency=singleton {SCRIPT}", known=known)
            )
            record(job, known)
        job.write(INTERRUPTED, b"")  # if this submission is cancelled, the job ends
        self._life.queue(last.cluster).expire()

    def start_array(self, jobs: Sequence[JobFiles], script: str) -> None:
        """Submit jobs whose folders are complete as one array. Raises PlatformError; then none of them is queued."""
        jobs[0].write(ARRAY_SCRIPT, script.encode())
        keep = _KEEP_ELEMENTS.format(array=shlex.quote(jobs[0].name.removesuffix("-0")), count=len(jobs))
        found = self._submitter.submit(jobs[0], f"{PARSABLE} {ARRAY_SCRIPT}", keep=keep)
        array = found.number.partition("_")[0]
        for number, job in enumerate(jobs):
            record(job, [replace(found, number=f"{array}_{number}")])
        self._life.queue(found.cluster).expire()

    def place(self, draft: JobFiles, request: Request) -> None:
        place_job(self._cluster, draft, request)

    def signal(self, job: JobFiles, name: str) -> None:
        self._life.signal(job, name)

    def is_alive(self, job: JobFiles) -> bool:
        is_alive = self._life.standing(job).is_alive
        if not is_alive and isinstance(self._cluster.root, RemoteRoot):
            self._cluster.root.forget()  # files that were read before may be older than its end
        return is_alive

    def refusal(self, complaint: str) -> PlatformError:
        if "Invalid job array specification" in complaint:
            return self._array_too_large()
        return refused(complaint, self._cluster.login)

    def _array_too_large(self) -> PlatformError:
        shown = self._cluster.shell.run("scontrol show config").text
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


def refused(complaint: str, login: str) -> PlatformError:
    """The error for a job that sbatch did not take."""
    where = f" on {login}" if login else ""
    if re.search(r"sbatch: (command )?not found", complaint):
        return PlatformError(
            f"there is no sbatch{where or ' on this machine'}",
            hint="Submit from a login node of the cluster, or name one: --set platform_options.login=ALIAS",
        )
    if re.search(r"configuration source|process configuration|cannot stat file", complaint):
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
