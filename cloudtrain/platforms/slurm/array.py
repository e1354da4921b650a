"""Renders jobs of one description as an array of Slurm: one script, which starts each of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import msgspec

from cloudtrain.errors import InvalidJob
from cloudtrain.packaging.zipapp import runtime_sha256
from cloudtrain.platforms.batch.cluster import Cluster
from cloudtrain.platforms.batch.script import Script
from cloudtrain.platforms.slurm.options import SlurmOptions
from cloudtrain.platforms.slurm.render import job_script
from cloudtrain.platforms.slurm.script import Directive
from cloudtrain.runtime.supervisor.folder import SUPERVISOR_LOG
from cloudtrain.spec import TrainingJob

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
