"""The variables of an outer job, step or MPI rank, which a job must not inherit as its own."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from cloudtrain.contract.slurm_step import OUTER_STEP, step_id

SCHEDULERS = ("SLURM", "SRUN_", "PBS_", "COBALT_", "LSB_", "LS_JOB")
DEFAULTS = ("SBATCH_", "SALLOC_")
"""Prefixes of a user's defaults. Inside a job, they describe that job."""
MPI = ("PMI_", "PMI2_", "PMIX_", "OMPI_", "ORTE_", "PRTE_", "HYDRA_", "HYDI_", "MPI_LOCAL")
"""Prefixes of the variables of a job and of its steps."""

OF_THE_CLUSTER = ("SLURM_CONF", "SLURM_CONF_SERVER", "SLURM_TMPDIR")
"""Variables that describe the cluster, not a job's allocation."""

_MPI_RANK = ("OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK")
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


def without_outer_allocation(
    environ: Mapping[str, str], keep: Collection[str] = OF_THE_CLUSTER
) -> tuple[dict[str, str], list[str]]:
    """``environ`` without the variables of a scheduler's job and of an MPI rank, and the names of removed variables."""
    prefixes = (*SCHEDULERS, *MPI, *(DEFAULTS if "SLURM_JOB_ID" in environ else ()))
    dropped = sorted(name for name in environ if name.startswith(prefixes) and name not in keep)
    return {name: value for name, value in environ.items() if name not in dropped}, dropped


def without_outer_mpi(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment without the variables of an outer MPI job, if this process runs inside one of its ranks."""
    if not any(name in environ for name in _MPI_RANK):
        return dict(environ)
    return {name: value for name, value in environ.items() if not name.startswith(MPI)}


def without_outer_step(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment without the variables of a task in an outer Slurm step: SLURM_PROCID, SLURM_NTASKS, ...

    Lightning and JAX prefer these variables to RANK, so that inside an allocation, every rank would be rank 0. The
    variables of the allocation itself stay.
    """
    return {
        name: value
        for name, value in environ.items()
        if name not in _PLACE and not name.startswith("SLURM_STEP")
    }


def outer_step(environ: Mapping[str, str]) -> dict[str, str]:
    """The variable with the Slurm step in which the runtime runs, for a script without a launcher.

    The script gets that step's variables, so that it can run Slurm's commands, but is not one of its tasks.
    """
    step = step_id(environ)
    return {OUTER_STEP: step} if step else {}
