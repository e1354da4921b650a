"""``platform_options`` of PBS Professional, Torque and Cobalt, and the ``#PBS`` and ``#COBALT`` lines of a job."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Literal

from msgspec import field

from cloudtrain.platforms.batch.render import WORD, BatchOptions, ranks_on_node
from cloudtrain.platforms.batch.scheduler import SCHEDULER_LOG, limit_minutes
from cloudtrain.spec import TrainingJob

ONLY = {"select": "pbs", "place": "pbs", "project": "pbs", "nodes": "torque", "attrs": "cobalt"}
"""The options that only one of the three has."""

LACKS = {"cobalt": ("cpus", "gpus", "gpu_type", "mem")}
"""The options that a scheduler lacks: Cobalt allocates whole nodes."""


class PbsOptions(BatchOptions, frozen=True, forbid_unknown_fields=True):
    """The options of a job on PBS Professional, OpenPBS, Torque or Cobalt.

    The defaults of the queue apply to everything that is not given here.
    """

    account: WORD | None = None
    select: WORD | None = None
    place: WORD | None = None
    nodes: WORD | None = None
    attrs: dict[WORD, str | int] = field(default_factory=dict)
    start: Literal["auto", "srun", "pbsdsh", "ssh", "aprun"] = "auto"


LONGEST_NAME = 15
"""In characters: the most that Torque and older versions of PBS Professional accept for ``-N``."""

OWN = {
    "N": "set job_name",
    **dict.fromkeys(("o", "e", "j"), "cloudtrain logs shows the output"),
    **dict.fromkeys(("J", "t"), "each element is a separate job: cloudtrain submit --array"),
    "v": "set environment, or secrets",
    "V": "the variables of this terminal are not those of the job: set environment, or secrets",
    "I": "cloudtrain runs no interactive jobs",
    "r": "cloudtrain starts the job again itself: set max_retry_attempts",
    "S": "the script is for bash",
}
"""Flags of ``qsub`` that cloudtrain sets itself, with what to do instead."""

OWN_OF_COBALT = {
    **{name: OWN[name] for name in ("o", "e", "I")},
    "n": "set instance_count",
    "t": "set max_run",
    "mode": "cloudtrain writes a script",
    "jobname": OWN["N"],
    "env": OWN["v"],
    "output": OWN["o"],
    "error": OWN["e"],
}


def pbs_lines(job: TrainingJob, options: PbsOptions) -> Iterator[str]:
    yield from _common(job, options)
    if options.project:
        yield f"-P {options.project}"
    yield f"-l select={options.select or f'{job.host_count}{_chunk(job, options)}'}"
    yield f"-l place={options.place or 'scatter'}"
    yield from _walltime(job)


def _chunk(job: TrainingJob, options: PbsOptions) -> str:
    """The chunk of one host, with one line in PBS_NODEFILE, as the runtime starts the ranks. Each rank has a CPU."""
    ranks = ranks_on_node(job, options.gpus)
    asked = {
        "ncpus": options.cpus or (ranks if ranks > 1 else None),
        "ngpus": options.gpus,
        "gpu_type": options.gpu_type,
        "mem": options.mem,
        "mpiprocs": 1,
    }
    return "".join(f":{name}={value}" for name, value in asked.items() if value is not None)


def torque_lines(job: TrainingJob, options: PbsOptions) -> Iterator[str]:
    yield from _common(job, options)
    asked = f"{job.host_count}:ppn={options.cpus or ranks_on_node(job, options.gpus)}"
    if options.gpus:
        asked += f":gpus={options.gpus}"
    if options.gpu_type:
        asked += f":{options.gpu_type}"
    yield f"-l nodes={options.nodes or asked}"
    if options.mem:
        yield f"-l mem={options.mem}"
    yield from _walltime(job)


def _common(job: TrainingJob, options: PbsOptions) -> Iterator[str]:
    assert job.job_name
    yield f"-N {short_name(job.job_name)}"
    yield "-j oe"
    yield f"-o {SCHEDULER_LOG}"
    yield "-r n"
    if options.queue:
        yield f"-q {options.queue}"
    if options.account:
        yield f"-A {options.account}"


def cobalt_lines(job: TrainingJob, options: PbsOptions) -> Iterator[str]:
    yield f"--jobname {job.job_name}"
    yield f"-o {SCHEDULER_LOG} -e {SCHEDULER_LOG}"
    yield f"-n {job.host_count}"
    yield f"-t {limit_minutes(job) or 0}"  # 0: as long as the queue allows
    if options.queue:
        yield f"-q {options.queue}"
    if options.account:
        yield f"-A {options.account}"
    if options.attrs:
        yield f"--attrs {':'.join(f'{name}={value}' for name, value in options.attrs.items())}"


def short_name(job_name: str) -> str:
    """A job's name in the form that ``-N`` accepts: at most 15 characters, of which the first is a letter.

    A part of its hash distinguishes jobs whose names begin with the same letters.
    """
    name = job_name if job_name[0].isalpha() else f"j{job_name}"
    if len(name) <= LONGEST_NAME:
        return name
    digest = hashlib.sha256(job_name.encode()).hexdigest()[:4]
    return f"{name[: LONGEST_NAME - 5].rstrip('-')}-{digest}"


def _walltime(job: TrainingJob) -> Iterator[str]:
    """The time limit, if the job has its own. Otherwise, the queue's applies."""
    minutes = limit_minutes(job)
    if minutes:
        yield f"-l walltime={minutes // 60:02}:{minutes % 60:02}:00"
