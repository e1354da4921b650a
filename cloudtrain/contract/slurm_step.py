"""The position of a process in a Slurm job step, with which ranks that ``srun`` started find one another."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

from cloudtrain._dataclass import dataclass

FIRST_RESERVED_STEP = 0xFFFFFFF0
"""Steps with this number or a higher one were not started by ``srun``: a batch script, ``extern``, a shell of
``salloc``."""

OUTER_STEP = "CLOUDTRAIN_OUTER_STEP"
"""The step that the runtime of a job without a launcher runs in. Its script is not a task of that step."""

_IDENTITY = (
    "SLURM_CLUSTER_NAME",
    "SLURM_JOB_ID",
    "SLURM_STEP_ID",
    "SLURM_RESTART_COUNT",
    "SLURM_JOB_START_TIME",
    "SLURM_STEP_LAUNCHER_PORT",  # chosen by srun at random
)


@dataclass(frozen=True)
class SlurmTask:
    """One task of a step, with the fields of `cloudtrain.contract.RankSlot`."""

    rank: int
    local_rank: int
    size: int
    local_size: int
    host_rank: int
    host_count: int

    @classmethod
    def from_environ(cls, environ: Mapping[str, str]) -> SlurmTask | None:
        """The task that this process is; None outside a step of ``srun``.

        A batch script, and a shell that ``salloc`` or ``srun --pty`` opened, have many of the same variables, including
        ``SLURM_PROCID=0`` and ``SLURM_NTASKS``, but are a single process. They have no step, a step with a reserved
        number, or a terminal. A job submitted from inside a step may have inherited the variables of that step:
        SLURM_GTIDS, which is new for every task, then contradicts them.
        """
        step = step_id(environ)
        if not step or (step == environ.get(OUTER_STEP) and "CLOUDTRAIN_RANK" in environ):
            return None
        if "SLURM_PTY_PORT" in environ and os.isatty(0):
            return None
        try:
            rank, local_rank, host_rank, size = (
                int(environ[f"SLURM_{name}"]) for name in ("PROCID", "LOCALID", "NODEID", "STEP_NUM_TASKS")
            )
            tasks = tasks_per_node(environ["SLURM_STEP_TASKS_PER_NODE"])
            local_size = tasks[host_rank]
        except (KeyError, ValueError, IndexError):
            return None
        ids = environ.get("SLURM_GTIDS", "").split(",")
        if ids != [""] and (len(ids) != local_size or str(rank) not in ids):
            return None
        return cls(rank, local_rank, size, local_size, host_rank, len(tasks))


def step_id(environ: Mapping[str, str]) -> str:
    """``JOB.STEP`` of the step of ``srun`` that this process belongs to; empty outside one."""
    try:
        job, step = int(environ["SLURM_JOB_ID"]), int(environ["SLURM_STEP_ID"])
    except (KeyError, ValueError):
        return ""
    return f"{job}.{step}" if step < FIRST_RESERVED_STEP else ""


def step_key(environ: Mapping[str, str]) -> str:
    """A name for the start of this step, which all of its tasks can compute and no other step has. Not a secret."""
    names = _IDENTITY[:-1] if "SLURM_HET_SIZE" in environ else _IDENTITY  # each component has its own port
    parts = [environ.get(name, "") for name in names]
    import hashlib  # with OpenSSL, which few ranks need

    return hashlib.sha256("\0".join(parts).encode(errors="surrogateescape")).hexdigest()[:32]


def tasks_per_node(text: str) -> list[int]:
    """The tasks of each node, from Slurm's notation: ``2(x3),1`` is 2, 2, 2, 1. Raises ValueError."""
    counts: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"(\d{1,9})(?:\(x(\d{1,7})\))?", part)
        if match is None:
            raise ValueError(f"{text!r} is not a list of tasks per node")
        counts += [int(match[1])] * int(match[2] or 1)
    return counts
