"""Renders a job, or an array of jobs, as a request to Slurm, with its batch script."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import msgspec

from cloudtrain.errors import InvalidJob
from cloudtrain.packaging.zipapp import runtime_sha256
from cloudtrain.platforms.base import Request
from cloudtrain.platforms.batch.cluster import Cluster
from cloudtrain.platforms.batch.render import PYTHON, batch_body, setup
from cloudtrain.platforms.batch.render import check as check_job
from cloudtrain.platforms.batch.script import Script
from cloudtrain.platforms.common.hyperparameters import launcher_of
from cloudtrain.platforms.common.request import new_request
from cloudtrain.platforms.slurm.directives import directives
from cloudtrain.platforms.slurm.options import SlurmOptions
from cloudtrain.platforms.slurm.time_limits import Directive
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
    assert job.job_name
    runtime = cluster.runtime_file(runtime_sha256())
    script = job_script(job, options, cluster, runtime)
    place = {
        "folder": cluster.folder,
        **({"login": cluster.login} if cluster.login else {}),
        **({"profile": options.profile} if options.profile else {}),
        "poll_seconds": options.poll_seconds,
    }
    return new_request(
        "slurm", job, batch_body(job, options, cluster, runtime, place, _given(options), script)
    )


def job_script(job: TrainingJob, options: SlurmOptions, cluster: Cluster, runtime: str) -> Script:
    """The batch script of ``job``, which starts the bundled runtime at the path ``runtime``. Raises InvalidJob."""
    assert job.job_name
    folder = cluster.job_folder(job.job_name)
    return Script(
        job.job_name,
        directives(job, options, f"{folder}/{SUPERVISOR_LOG}"),
        list(setup(options)),
        [options.python or PYTHON, runtime, STEP, folder],
        options.epilogue,
    )


def check(job: TrainingJob) -> None:
    """Raises InvalidJob for a job that no options make a job for Slurm."""
    check_job("slurm", job, "a job on slurm has no container")


def _given(options: SlurmOptions) -> dict[str, Any]:
    """The options that the nodes need."""
    return {
        "cpus_per_task": options.cpus_per_task,
        "srun": options.srun,
        "requeue": options.requeue,
        "launcher_srun": "pmix" if options.launcher_srun is True else options.launcher_srun,
    }


ELEMENT = "--element"
"""The batch step adds the number of the element to the folder that precedes this."""


def render_array(name: str, jobs: Sequence[TrainingJob], cluster: Cluster) -> str:
    """The script of an array called ``name``, whose elements are ``jobs``: ``NAME-0``, ``NAME-1``, ...

    Raises InvalidJob if Slurm cannot start them as one array, because they need different hosts, for example.
    """
    if SlurmOptions.of(jobs[0]).requeue == "chain":
        raise InvalidJob(
            "platform_options.requeue: an array has no chain of submissions",
            hint="Set requeue to auto, or submit the jobs one by one.",
        )
    runtime = cluster.runtime_file(runtime_sha256())
    first = _script(name, jobs[0], cluster, runtime, len(jobs))
    for number, job in enumerate(jobs[1:], 1):
        other = _script(name, job, cluster, runtime, len(jobs))
        if other.to_text() != first.to_text():
            raise InvalidJob(
                f"element {number} asks Slurm for something else than element 0: {_difference(first, other)}",
                hint="Elements of one array have the same hosts, time and options: submit the others as another array.",
            )
    return first.to_text()


def _script(name: str, job: TrainingJob, cluster: Cluster, runtime: str, count: int) -> Script:
    options = SlurmOptions.of(job)
    script = job_script(msgspec.structs.replace(job, job_name=name), options, cluster, runtime)
    folder = cluster.job_folder(name)
    output = Directive("output", f"{folder.replace('%', '%%')}-%a/{SUPERVISOR_LOG}")
    parallel = f"%{options.array_parallelism}" if options.array_parallelism else ""
    return replace(
        script,
        directives=[
            *(
                output if directive.to_line().startswith("#SBATCH --output=") else directive
                for directive in script.directives
            ),
            Directive("array", f"0-{count - 1}{parallel}"),
        ],
        command=[*script.command, ELEMENT],
        title=f"# The jobs {name}-0 to {name}-{count - 1} of cloudtrain. Each has its own job.sh, too.",
    )


def _difference(first: Script, other: Script) -> str:
    lines = set(first.to_text().splitlines())
    new = [line for line in other.to_text().splitlines() if line not in lines]
    return next((line for line in new if not line.startswith("# ")), "a line less")
