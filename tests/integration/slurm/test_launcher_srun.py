"""srun starts the ranks of a job with MPI: one world over both nodes, or a report that says why not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from slurm_cluster import SlurmCluster

from cloudtrain import Estimator, Job
from cloudtrain.errors import InvalidJob, TrainingFailed

SCRIPT = """
import json, os
from mpi4py import MPI

world = MPI.COMM_WORLD
total = world.allreduce(world.Get_rank() + 1)
names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "SM_CURRENT_HOST", "A_TOKEN")
step = [name for name in os.environ if name in ("SLURM_PROCID", "SLURM_NTASKS", "SLURM_JOB_ID")]
print("seen", json.dumps([world.Get_rank(), total, step, *(os.environ[name] for name in names)]), flush=True)
"""


MPICH = Path("/usr/lib/x86_64-linux-gnu/libmpich.so.12")


def submit(folder: Path, mpi: object, **fields: Any) -> Job:
    (folder / "train.py").write_text(SCRIPT)
    fields = {"distribution": {"mpi": {"enabled": True, "processes_per_host": 2}}, **fields}
    fields["environment"] = {"A_TOKEN": "s3cret", **fields.get("environment", {})}
    return Estimator(
        str(folder / "train.py"),
        platform="slurm",
        instance_count=2,
        platform_options={"launcher_srun": mpi},
        **fields,
    ).fit(wait=False)


@pytest.mark.parametrize("mpi", ["openmpi", pytest.param("mpich", marks=pytest.mark.soak)])
def test_one_world_over_both_nodes(mpi: str, slurm: SlurmCluster, tmp_path: Path) -> None:
    if mpi == "openmpi":
        job = submit(tmp_path, True)
    else:
        (tmp_path / "libmpi.so.12").symlink_to(MPICH)  # the name that the ABI of MPICH prescribes
        environment = {"MPI4PY_MPIABI": "mpich", "LD_LIBRARY_PATH": str(tmp_path)}
        job = submit(tmp_path, "pmi2", environment=environment)
    job.wait()
    lines = [line.partition("seen ")[2] for line in job.logs().splitlines() if "] seen " in line]
    assert sorted(json.loads(line) for line in lines) == [
        [rank, 10, [], str(rank), str(rank % 2), "4", f"127.0.0.{2 + rank // 2}", "s3cret"]
        for rank in range(4)
    ]


def test_a_kind_of_mpi_that_does_not_fit_fails_the_job(slurm: SlurmCluster, tmp_path: Path) -> None:
    with pytest.raises(TrainingFailed, match="MPI has a world of 1 ranks, but the job has 4: Open MPI"):
        submit(tmp_path, "pmi2").wait()


def test_without_mpi_it_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidJob, match="launcher_srun: srun starts ranks in place of mpirun"):
        submit(tmp_path, True, distribution={"processes": {}})
