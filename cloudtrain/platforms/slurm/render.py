"""Renders a job, or an array of jobs, as a request to Slurm, with its batch script."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import msgspec

from cloudtrain.errors import InvalidJob
from cloudtrain.platforms.base import Request
from cloudtrain.platforms.batch.cluster import Cluster
from cloudtrain.platforms.batch.render import Script, batch_request, check as check_job, setup, step_command
from cloudtrain.platforms.common.hyperparameters import launcher_of
from cloudtrain.platforms.slurm.directives import Directive, SlurmOptions, directives
from cloudtrain.runtime.supervisor.folder import SUPERVISOR_LOG
from cloudtrain.spec import TrainingJob

STEP = "cloudtrain.runtime.slurm.step"


def render(job: TrainingJob, options: SlurmOptions, cluster: Cluster) -> Request:
    """The request for ``job``, which is resolved, and has a name and a packed source.

    Raises InvalidJob if the Slurm platform cannot run the job.
    """
    check(job)
    if options.launcher_srun and launcher_of(job).name != "mpirun":
        raise InvalidJob(
            "platform_options.launcher_srun: srun starts ranks in place of mpirun, but the distribution is not mpi",
            hint="Add distribution: {mpi: {enabled: true}} (--mpirun), or leave the option out.",
        )
    return batch_request(
        "slurm",
        job,
        options,
        options.container,
        cluster,
        {
            "cpus_per_task": options.cpus_per_task,
            "srun": options.srun,
            "requeue": options.requeue,
            "launcher_srun": "pmix" if options.launcher_srun is True else options.launcher_srun,
        },
        job_script(job, options, cluster),
        profile=options.profile,
        poll_seconds=options.poll_seconds,
    )


def job_script(job: TrainingJob, options: SlurmOptions, cluster: Cluster) -> Script:
    """The batch script of ``job``. Raises InvalidJob."""
    assert job.job_name
    folder = cluster.job_folder(job.job_name)
    own = directives(job, options, f"{folder}/{SUPERVISOR_LOG}")
    lines = [line for directive in own for line in directive.lines()]
    command = step_command(options, cluster, STEP, folder)
    return Script(job.job_name, lines, list(setup(options)), command, options.epilogue)


def check(job: TrainingJob) -> None:
    """Raises InvalidJob for a job that Slurm cannot run, with any options."""
    check_job("slurm", job, "a job on slurm has no container")


ELEMENT = "--element"
"""With this argument, the batch step adds the number of the element to the folder in the argument before it."""


def render_array(name: str, jobs: Sequence[TrainingJob], cluster: Cluster) -> str:
    """The script of an array called ``name``, whose elements are ``jobs``: ``NAME-0``, ``NAME-1``, ...

    Raises InvalidJob if Slurm cannot start them as one array, because they need different hosts, for example.
    """
    if SlurmOptions.of(jobs[0]).requeue == "chain":
        raise InvalidJob(
            "platform_options.requeue: an array has no chain of submissions",
            hint="Set requeue to auto, or submit the jobs one by one.",
        )
    first = _script(name, jobs[0], cluster, len(jobs))
    for number, job in enumerate(jobs[1:], 1):
        other = _script(name, job, cluster, len(jobs))
        if other.to_text() != first.to_text():
            raise InvalidJob(
                f"element {number} asks Slurm for something else than element 0: {_difference(first, other)}",
                hint="Elements of one array have the same hosts, time and options: submit the others as another array.",
            )
    return first.to_text()


def _script(name: str, job: TrainingJob, cluster: Cluster, count: int) -> Script:
    options = SlurmOptions.of(job)
    script = job_script(msgspec.structs.replace(job, job_name=name), options, cluster)
    folder = cluster.job_folder(name).replace("%", "%%")
    output = Directive("output", f"{folder}-%a/{SUPERVISOR_LOG}").to_line()
    parallel = f"%{options.array_parallelism}" if options.array_parallelism else ""
    return replace(
        script,
        directives=[
            *(output if line.startswith("#SBATCH --output=") else line for line in script.directives),
            Directive("array", f"0-{count - 1}{parallel}").to_line(),
        ],
        command=[*script.command, ELEMENT],
        title=f"# The jobs {name}-0 to {name}-{count - 1} of cloudtrain. Each has its own job.sh, too.",
    )


def _difference(first: Script, other: Script) -> str:
    lines = set(first.to_text().splitlines())
    new = [line for line in other.to_text().splitlines() if line not in lines]
    return next((line for line in new if not line.startswith("# ")), "a line less")
