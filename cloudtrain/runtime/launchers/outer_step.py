"""Keeps the variables of an outer Slurm step from the ranks of a job."""

from __future__ import annotations

from collections.abc import Mapping

from cloudtrain.contract.slurm_step import OUTER_STEP, step_id

_PLACE = {
    "SLURM_PROCID",
    "SLURM_LOCALID",
    "SLURM_NODEID",
    "SLURM_NTASKS",
    "SLURM_NPROCS",
    "SLURM_GTIDS",
    "SLURM_NTASKS_PER_NODE",
    "SLURM_TASK_PID",
}


def without_outer_step(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment without the place of an outer process in its Slurm step: SLURM_PROCID, SLURM_NTASKS, ...

    Lightning and JAX believe these variables rather than RANK: inside an allocation, every rank would be
    rank 0. The variables of the allocation itself stay.
    """
    return {
        name: value
        for name, value in environ.items()
        if name not in _PLACE and not name.startswith("SLURM_STEP")
    }


def outer_step(environ: Mapping[str, str]) -> dict[str, str]:
    """The variable that shows a script without launcher in which Slurm step its runtime runs.

    The script sees that step's variables, for commands of Slurm that it may run, but is not one of its tasks.
    """
    step = step_id(environ)
    return {OUTER_STEP: step} if step else {}
