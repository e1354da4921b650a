"""Whether a job in Slurm is the one that was submitted, and not another with its number.

A controller that has lost its state gives the same numbers again, and so does one that has reached ``MaxJobId``.
"""

from __future__ import annotations

import shlex

from cloudtrain.platforms.slurm.squeue import CLEAN, on_cluster
from cloudtrain.runtime.supervisor.submissions import Submission

SITE = f"{{ {CLEAN} scontrol show config 2>/dev/null | sed -n 's/^ClusterName *= */site=/p'; }}"
"""The command that prints ``site=`` and the name of the cluster, which differ where clusters share a folder."""


def own_function() -> str:
    """The line of a shell that defines ``own``, for the commands of `own`. It needs ``say``, which sets ``said``."""
    squeue = "squeue --states=all --noheader --array --format='|%j|%Z|'"
    return f'{CLEAN} own() {{ say {squeue} $1; shift; case $said in *"|"*) echo "$said" | grep -qF "$@";; esac; }}'


def own(submission: Submission, job_name: str) -> str:
    """The command that fails if the number of a submission is that of another job, by the name that Slurm gives.

    Where Slurm gives no name, it succeeds: a stop must not depend on that.
    """
    names, folders = signs(job_name, submission.number)
    patterns = [f"|{name}|" for name in names] + [f"/{folder}|" for folder in folders]
    given = " ".join(f"-e {shlex.quote(pattern)}" for pattern in patterns)
    options = f"{on_cluster(submission.cluster)} --jobs={submission.number}".strip()
    return f"own {shlex.quote(options)} {given}"


def signs(job_name: str, number: str) -> tuple[list[str], list[str]]:
    """The names and the folders of the job in Slurm. All elements of an array have those of the array."""
    array, _, index = job_name.rpartition("-")
    if "_" in number and array and index.isdigit():
        return [job_name, array], [job_name, f"{array}-0"]
    return [job_name], [job_name]
