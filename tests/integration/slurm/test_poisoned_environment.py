"""A job that is submitted from inside an allocation is a separate job: with all of its CPUs, and its own world."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from slurm_cluster import Configuration
from slurm_fixtures import SlurmOf
from slurm_jobs import number_of, submit, wait_for_end

from cloudtrain import JobStatus

BINDS = Configuration(cpus=2, gpus=0, lines=("TaskPlugin=task/affinity",))
"""Binds tasks to CPUs, as most clusters do."""

POISON = {
    "SLURM_CPU_BIND": "quiet,mask_cpu:0x1",
    "SLURM_CPU_BIND_LIST": "0x1",
    "SLURM_CPU_BIND_TYPE": "mask_cpu:",
    "SLURM_DISTRIBUTION": "arbitrary",
    "SLURM_EXPORT_ENV": "NONE",
    "SLURM_HOSTFILE": "/nonexistent",
    "SLURM_JOB_ID": "999",
    "SLURM_JOB_NODELIST": "far[1-9]",
    "SLURM_KILL_BAD_EXIT": "1",
    "SLURM_LOCALID": "5",
    "SLURM_MPI_TYPE": "pmix",
    "SLURM_NNODES": "9",
    "SLURM_NODEID": "7",
    "SLURM_NTASKS": "16",
    "SLURM_NTASKS_PER_NODE": "8",
    "SLURM_PROCID": "3",
    "SBATCH_ARRAY_INX": "0-3",
    "SBATCH_CLUSTERS": "nosuch",
    "SBATCH_EXPORT": "NONE",
    "SBATCH_PARTITION": "nosuch",
    "SBATCH_TIMELIMIT": "0:01",
    "PMI_RANK": "3",
    "PMIX_RANK": "3",
    "OMPI_COMM_WORLD_RANK": "3",
    "OMPI_COMM_WORLD_SIZE": "16",
}

SEES = """
import json, os
print("seen", json.dumps({"cpus": len(os.sched_getaffinity(0)), "environ": dict(os.environ)}), flush=True)
"""


def test_a_job_from_inside_an_allocation(
    slurm_of: SlurmOf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = slurm_of(BINDS)
    bound = cluster.run("srun", "nproc", env={"SLURM_CPU_BIND": POISON["SLURM_CPU_BIND"]})
    assert bound.stdout.split() == ["1"], bound  # the poison works
    for name, value in POISON.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("SQUEUE_STATES", "FAILED")  # the user's own, which a job may keep
    monkeypatch.setenv("SQUEUE_FORMAT", "%x")
    job = wait_for_end(submit(tmp_path, SEES, "inside", platform_options={"cpus_per_task": 2}))
    log = job.logs()
    assert job.status == JobStatus.COMPLETED, log
    lines = [line.partition("seen ")[2] for line in log.splitlines() if "] seen " in line]
    seen = sorted(map(json.loads, lines), key=lambda rank: rank["environ"]["RANK"])
    assert [rank["cpus"] for rank in seen] == [2, 2]
    assert [rank["environ"]["SM_CURRENT_HOST"] for rank in seen] == cluster.node_names
    for rank in seen:
        assert rank["environ"]["WORLD_SIZE"] == "2"
        assert rank["environ"]["CLOUDTRAIN_SLURM_JOB_ID"] == str(number_of(job))
        assert {name for name in POISON if name in rank["environ"]} == set()
    for name in POISON:
        monkeypatch.delenv(name)
    assert (len(cluster.jobs()), max(cluster.jobs())) == (
        2,
        number_of(job),
    )  # the control's, and one: no array
