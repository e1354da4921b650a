"""The ``#PBS`` and ``#COBALT`` lines of a job."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from cloudtrain.errors import InvalidJob
from cloudtrain.platforms.batch.request import ranks_on_node
from cloudtrain.platforms.pbs.options import PbsOptions
from cloudtrain.spec import TrainingJob

END_SECONDS = 120
"""How long the end of a job may take after its grace: the last uploads, and the end of all processes."""

SCHEDULER_LOG = "scheduler.log"
"""The file for the output of a job's scheduler. PBS writes it when the job has ended.

Its path is relative to the folder of the job, from which it is submitted: schedulers expand variables in paths.
"""

LONGEST_NAME = 15
"""In characters: the most that Torque and older versions of PBS Professional accept for ``-N``."""

OWN = {
    "N": "set job_name",
    "o": "cloudtrain logs shows the output",
    "e": "cloudtrain logs shows the output",
    "j": "cloudtrain logs shows the output",
    "J": "each element is a separate job: cloudtrain submit --array",
    "t": "each element is a separate job: cloudtrain submit --array",
    "v": "set environment, or secrets",
    "V": "the variables of this terminal are not those of the job: set environment, or secrets",
    "I": "cloudtrain runs no interactive jobs",
    "r": "cloudtrain starts the job again itself: set max_retry_attempts",
    "S": "the script is for bash",
}
"""Flags of ``qsub`` that cloudtrain sets itself, with what to do."""

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


@dataclass(frozen=True)
class PbsLine:
    """One ``#PBS`` or ``#COBALT`` line."""

    text: str
    prefix: str = "#PBS"
    comment: str = ""

    def to_line(self) -> str:
        return f"{self.prefix} {self.text}"


def directives(platform: str, job: TrainingJob, options: PbsOptions) -> list[PbsLine]:
    """All directives, in order; those of ``platform_options.directives`` go last.

    Args:
        platform: ``pbs``, ``torque`` or ``cobalt``.

    Raises InvalidJob for a line that cloudtrain writes itself.
    """
    prefix = "#COBALT" if platform == "cobalt" else "#PBS"
    lines = [*_LINES[platform](job, options), *_raw(options.directives, platform)]
    return [PbsLine(line, prefix) for line in lines]


def _pbs(job: TrainingJob, options: PbsOptions) -> Iterator[str]:
    yield from _common(job, options)
    if options.project:
        yield f"-P {options.project}"
    yield f"-l select={options.select or f'{job.host_count}{_chunk(job, options)}'}"
    yield f"-l place={options.place or 'scatter'}"
    yield from _walltime(job)


def _chunk(job: TrainingJob, options: PbsOptions) -> str:
    """One chunk for each host, with one line of PBS_NODEFILE: the runtime starts the ranks. Each has a CPU."""
    ranks = ranks_on_node(job, options.gpus)
    asked = {
        "ncpus": options.cpus or (ranks if ranks > 1 else None),
        "ngpus": options.gpus,
        "gpu_type": options.gpu_type,
        "mem": options.mem,
        "mpiprocs": 1,
    }
    return "".join(f":{name}={value}" for name, value in asked.items() if value is not None)


def _torque(job: TrainingJob, options: PbsOptions) -> Iterator[str]:
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


def _cobalt(job: TrainingJob, options: PbsOptions) -> Iterator[str]:
    yield f"--jobname {job.job_name}"
    yield f"-o {SCHEDULER_LOG} -e {SCHEDULER_LOG}"
    yield f"-n {job.host_count}"
    yield f"-t {_minutes(job) or 0}"  # 0: as long as the queue allows
    if options.queue:
        yield f"-q {options.queue}"
    if options.account:
        yield f"-A {options.account}"
    if options.attrs:
        yield f"--attrs {':'.join(f'{name}={value}' for name, value in options.attrs.items())}"


_LINES: dict[str, Callable[[TrainingJob, PbsOptions], Iterator[str]]] = {
    "pbs": _pbs,
    "torque": _torque,
    "cobalt": _cobalt,
}


def short_name(job_name: str) -> str:
    """A job's name as ``-N`` takes it: at most 15 characters, of which the first is a letter.

    A part of its hash distinguishes jobs whose names begin with the same letters.
    """
    name = job_name if job_name[0].isalpha() else f"j{job_name}"
    if len(name) <= LONGEST_NAME:
        return name
    digest = hashlib.sha256(job_name.encode()).hexdigest()[:4]
    return f"{name[: LONGEST_NAME - 5].rstrip('-')}-{digest}"


def _walltime(job: TrainingJob) -> Iterator[str]:
    """The time limit, if the job has its own. Otherwise, that of the queue applies."""
    minutes = _minutes(job)
    if minutes:
        yield f"-l walltime={minutes // 60:02}:{minutes % 60:02}:00"


def _minutes(job: TrainingJob) -> int | None:
    return None if job.max_run is None else math.ceil((job.max_run + job.stop_grace + END_SECONDS) / 60)


def _raw(lines: list[str], platform: str) -> Iterator[str]:
    own = OWN_OF_COBALT if platform == "cobalt" else OWN
    for line in lines:
        text = line.removeprefix("#PBS").removeprefix("#COBALT").strip()
        flag = text.split(maxsplit=1)[0] if text else ""
        if not flag.startswith("-"):
            raise InvalidJob(
                f"platform_options.directives: {line!r} is not an option of qsub",
                hint="Write it as on the command line, for example: -l software=matlab",
            )
        name = flag.lstrip("-").partition("=")[0]
        known = name if flag.startswith("--") else name[:1]
        if known in own:
            raise InvalidJob(
                f"platform_options.directives: cloudtrain sets -{known} itself",
                hint=f"Leave it out: {own[known]}.",
            )
        yield text
