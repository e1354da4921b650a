"""The ``#SBATCH`` lines of a job."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from cloudtrain.errors import InvalidJob
from cloudtrain.platforms.batch.request import ranks_on_node
from cloudtrain.platforms.slurm.options import SlurmOptions
from cloudtrain.platforms.slurm.time_limits import Directive, limit_directives
from cloudtrain.spec import TrainingJob

SBATCH_FLAGS = (
    "account",
    "qos",
    "reservation",
    "constraint",
    "nodelist",
    "exclude",
    "exclusive",
    "comment",
    "wckey",
    "nice",
    "licenses",
    "switches",
    "segment",
    "begin",
    "deadline",
    "mail_user",
    "mail_type",
)
"""The options that are flags of sbatch with the same names."""
MEMORY = ("mem", "mem_per_gpu", "mem_per_cpu")

PROTECTED = {
    "job-name": "the job's name is how cloudtrain finds it: set job_name",
    "output": "cloudtrain shows this file: the output of the ranks is in cloudtrain logs",
    "error": "cloudtrain shows the output: the output of the ranks is in cloudtrain logs",
    "open-mode": "the output of an earlier attempt is kept",
    "nodes": "set instance_count",
    "ntasks": "cloudtrain starts one runtime on each node, which starts the ranks: set processes_per_host",
    "ntasks-per-node": "cloudtrain starts one runtime on each node, which starts the ranks: set processes_per_host",
    "ntasks-per-gpu": "cloudtrain starts one runtime on each node, which starts the ranks: set processes_per_host",
    "gpus-per-task": "a node has one task, the runtime, whatever the number of ranks: set gpus, those of a node",
    "signal": "cloudtrain uses it for the notice before the end: set stop_grace",
    "export": "cloudtrain passes secrets on in a file that only you can read",
    "export-file": "cloudtrain passes secrets on in a file that only you can read",
    "chdir": "the working folder of the script is its source",
    "wrap": "cloudtrain writes the script itself",
    "parsable": "cloudtrain reads the answer of sbatch",
    "wait": "cloudtrain wait JOB does this",
    "test-only": "cloudtrain submit --dry-run does this",
    "array": "each element is a separate job: cloudtrain submit --array",
    "tasks-per-node": "cloudtrain starts one runtime on each node, which starts the ranks: set processes_per_host",
    "hint": "it changes how many processors a rank may use; set cpus_per_task",
}
"""Flags of sbatch that cloudtrain sets itself, with the reason. sbatch also takes the beginning of a name."""
SHORT = {
    "J": "job-name",
    "o": "output",
    "e": "error",
    "N": "nodes",
    "n": "ntasks",
    "D": "chdir",
    "W": "wait",
    "a": "array",
}
"""The short forms of protected flags."""

SRUN_PROTECTED = (
    *("nodes", "ntasks", "ntasks-per-node", "tasks-per-node", "output", "error", "input", "export", "label"),
    *("kill-on-bad-exit", "wait", "multi-prog", "pty", "help", "usage", "version", "test-only", "chdir"),
)
"""Flags of srun that cloudtrain sets itself, or that change what it reads from the nodes."""
SRUN_SHORT = ("-N", "-n", "-o", "-e", "-i", "-l", "-K", "-W", "-D", "-h", "-V")
"""The short forms."""


def directives(job: TrainingJob, options: SlurmOptions, output: str) -> list[Directive]:
    """All directives, in order; those of ``platform_options.sbatch`` go last.

    Args:
        output: the file for what Slurm and the lines of the script print.

    Raises InvalidJob for a flag that cloudtrain sets itself.
    """
    own = [
        *_identity(job, output),
        *_shape(job, options),
        *_resources(job, options),
        *limit_directives(job, options),
    ]
    raw = list(_raw(options.sbatch))
    check_srun_flags(options.srun)
    given = {directive.flag for directive in raw}
    return [*(directive for directive in own if directive.flag not in given), *raw]


def _identity(job: TrainingJob, output: str) -> Iterator[Directive]:
    assert job.job_name
    yield Directive("job-name", job.job_name)
    note = "what Slurm and this script print; the output of the ranks is in job.log, next to it"
    if "\\" in output:
        raise InvalidJob(
            f"platform_options.folder: Slurm cannot write to a path with a backslash: {output}",
            hint="Choose another folder.",
        )
    yield Directive("output", output.replace("%", "%%"), note)
    yield Directive("open-mode", "append")


def _shape(job: TrainingJob, options: SlurmOptions) -> Iterator[Directive]:
    yield Directive("nodes", str(job.host_count))
    yield Directive("ntasks-per-node", "1", "one runtime on each node, which starts the ranks")
    if options.clusters is not None:
        yield Directive("clusters", joined(options.clusters))
    if options.partition is not None:
        yield Directive("partition", joined(options.partition))
    for name in SBATCH_FLAGS:
        value = getattr(options, name)
        if value is None or value is False:
            continue
        yield Directive(name.replace("_", "-"), None if value is True else joined(value))


def _resources(job: TrainingJob, options: SlurmOptions) -> Iterator[Directive]:
    if options.gres is not None:
        yield Directive("gres", joined(options.gres))
    elif options.gpus is not None:
        count = f"{options.gpu_type}:{options.gpus}" if options.gpu_type else str(options.gpus)
        if options.gpu_style == "gpus-per-node":
            yield Directive("gpus-per-node", count)
        else:
            yield Directive("gres", f"gpu:{count}")
    if options.cpus_per_task is not None:
        yield Directive("cpus-per-task", str(options.cpus_per_task), "all ranks of a node share them")
    elif (ranks := ranks_on_node(job, _gpus(options))) > 1:
        # unlike cpus-per-task, this takes nothing from whole nodes, and from what a partition adds for each GPU
        yield Directive("mincpus", str(ranks), "one for each rank of a node, at least")
    for name in MEMORY:
        value = getattr(options, name)
        if value is not None:
            yield Directive(name.replace("_", "-"), str(value))
    if options.tmp is not None:
        yield Directive("tmp", str(options.tmp))


def _gpus(options: SlurmOptions) -> int | None:
    """The GPUs of each node."""
    found = re.search(r"\bgpu(?::[^:,]+)?:(\d+)", joined(options.gres)) if options.gres else None
    return int(found[1]) if found else options.gpus


def _raw(flags: Mapping[str, Any]) -> Iterator[Directive]:
    for name, value in flags.items():
        flag = name.lstrip("-").replace("_", "-")
        flag = SHORT.get(flag, flag)
        meant = next((full for full in PROTECTED if flag[1:] and full.startswith(flag)), "")
        if meant:
            raise InvalidJob(
                f"platform_options.sbatch.{name}: cloudtrain sets this flag itself",
                hint=f"Leave it out: {PROTECTED[meant]}.",
            )
        if not flag[1:] or not flag.replace("-", "").isalnum() or not flag.isascii():
            raise InvalidJob(
                f"platform_options.sbatch: {name!r} is not a flag of sbatch",
                hint="Write its long form without the dashes, for example: mail-type",
            )
        if value is False or value is None:
            continue
        text = None if value is True else joined(value)
        if text is not None and any(character < " " for character in text):
            raise InvalidJob(
                f"platform_options.sbatch.{name}: a value is one line", hint="Remove the line end."
            )
        yield Directive(flag, text)


def check_srun_flags(flags: Sequence[str]) -> None:
    """Raises InvalidJob for flags that would start other than one runtime on each node, or hide what it says."""
    for number, text in enumerate(flags):
        flag = text.partition("=")[0]
        is_long = flag.startswith("--")
        meant = next(
            (full for full in SRUN_PROTECTED if is_long and flag[3:] and full.startswith(flag[2:])), ""
        )
        if meant or (not is_long and flag[:2] in SRUN_SHORT) or (number == 0 and not flag.startswith("-")):
            raise InvalidJob(
                f"platform_options.srun: {text!r}: cloudtrain sets this itself",
                hint="srun starts one runtime on each node, and cloudtrain reads its output. Leave it out.",
            )


def joined(value: str | int | float | Sequence[Any]) -> str:
    """Several values as sbatch takes them."""
    return ",".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)
