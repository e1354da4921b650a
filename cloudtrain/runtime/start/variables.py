"""The variables of schedulers and MPI, which a job must not take for its own."""

from __future__ import annotations

from collections.abc import Collection, Mapping

SCHEDULERS = ("SLURM", "SRUN_", "PBS_", "COBALT_", "LSB_", "LS_JOB")
DEFAULTS = ("SBATCH_", "SALLOC_")
"""Prefixes of a user's defaults. Inside a job they are those of that job."""
MPI = ("PMI_", "PMI2_", "PMIX_", "OMPI_", "ORTE_", "PRTE_", "HYDRA_", "HYDI_", "MPI_LOCAL")
"""Prefixes of the variables of a job and of its steps."""

OF_THE_CLUSTER = ("SLURM_CONF", "SLURM_CONF_SERVER", "SLURM_TMPDIR")
"""Variables that say where the cluster is, not what a job has of it."""


def without_outer_allocation(
    environ: Mapping[str, str], keep: Collection[str] = OF_THE_CLUSTER
) -> tuple[dict[str, str], list[str]]:
    """``environ`` without the variables of a scheduler's job and of an MPI rank, and the names of those left out."""
    prefixes = (*SCHEDULERS, *MPI, *(DEFAULTS if "SLURM_JOB_ID" in environ else ()))
    dropped = sorted(name for name in environ if name.startswith(prefixes) and name not in keep)
    return {name: value for name, value in environ.items() if name not in dropped}, dropped
