"""A process is a rank of a Slurm step only if ``srun`` started it for that: the recorded variables of Slurm 22.05."""

from __future__ import annotations

import os
import pty

import pytest

from cloudtrain.contract.rank import started_by_srun, with_rank
from cloudtrain.contract.slurm_step import OUTER_STEP, SlurmTask, step_key, tasks_per_node
from cloudtrain.distributed import World

ALLOCATION = {
    "SLURM_CLUSTER_NAME": "mini",
    "SLURM_JOB_ID": "5",
    "SLURM_JOB_NUM_NODES": "2",
    "SLURM_NNODES": "2",
    "SLURM_NTASKS": "3",
    "SLURM_NPROCS": "3",
    "SLURM_TASKS_PER_NODE": "2,1",
    "SLURM_JOB_NODELIST": "127.0.0.[2-3]",
}
STEP = {
    "SLURM_STEP_ID": "0",
    "SLURM_STEP_NUM_NODES": "2",
    "SLURM_STEP_NUM_TASKS": "3",
    "SLURM_STEP_TASKS_PER_NODE": "2,1",
    "SLURM_STEP_LAUNCHER_PORT": "39807",
}
TASK = {
    **ALLOCATION,
    **STEP,
    "SLURM_PROCID": "2",
    "SLURM_LOCALID": "0",
    "SLURM_NODEID": "1",
    "SLURM_GTIDS": "2",
}
BATCH = {
    **ALLOCATION,
    "SLURM_PROCID": "0",
    "SLURM_LOCALID": "0",
    "SLURM_NODEID": "0",
    "SLURM_GTIDS": "0",
}


def test_a_task_of_srun_is_a_rank() -> None:
    assert SlurmTask.from_environ(TASK) == SlurmTask(2, 0, 3, 1, 1, 2)
    assert World.from_environ(TASK) == World(2, 3, 0, 1, 1, 2)
    pmi2 = {"PMI_RANK": "2", "PMI_SIZE": "3"}
    assert World.from_environ({**TASK, **pmi2}) == World(2, 3, 0, 1, 1, 2)
    assert World.from_environ({**TASK, "PMIX_RANK": "2"}) == World(2, 3, 0, 1, 1, 2)
    exported = {"WORLD_SIZE": "3", "MASTER_ADDR": "n1", "MASTER_PORT": "29500"}  # by a batch script, as usual
    assert World.from_environ({**TASK, **exported}) == World(2, 3, 0, 1, 1, 2, "n1", 29500)


@pytest.mark.parametrize(
    "environ",
    [
        BATCH,
        ALLOCATION,
        {**BATCH, "SLURM_STEP_ID": "4294967291", "SLURM_STEP_NUM_TASKS": "1"},
        {**TASK, "SLURM_STEP_ID": "4294967290"},
        {**TASK, "SLURM_STEP_ID": "4294967292"},
        {**BATCH, **STEP},
        {**TASK, OUTER_STEP: "5.0", "CLOUDTRAIN_RANK": "0", "CLOUDTRAIN_WORLD_SIZE": "1"},
    ],
    ids=[
        "batch script",
        "salloc",
        "batch script of a newer Slurm",
        "interactive step",
        "extern step",
        "sbatch from inside a step",
        "job without launcher inside a step",
    ],
)
def test_other_processes_of_an_allocation_are_alone(environ: dict[str, str]) -> None:
    assert World.from_environ(environ) == World()
    assert not started_by_srun(environ)


def test_a_shell_of_srun_is_alone() -> None:
    shell = {**TASK, "SLURM_PTY_PORT": "46203"}
    ours, theirs = pty.openpty()
    kept = os.dup(0)
    try:
        os.dup2(theirs, 0)
        assert SlurmTask.from_environ(shell) is None
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)  # a step that srun starts from such a shell
        assert SlurmTask.from_environ(shell) == SlurmTask(2, 0, 3, 1, 1, 2)
    finally:
        os.dup2(kept, 0)
        for descriptor in (ours, theirs, kept):
            os.close(descriptor)


@pytest.mark.parametrize(
    ("variables", "rank"),
    [
        ({"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "4"}, None),
        ({"PMI_RANK": "1", "PMI_SIZE": "4", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "4"}, None),
        ({"RANK": "1", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "4"}, "1"),
    ],
    ids=["mpirun", "hydra", "torchrun"],
)
def test_srun_that_started_another_launcher(variables: dict[str, str], rank: str | None) -> None:
    environ = {**TASK, **variables}
    assert not started_by_srun(environ)
    assert with_rank(environ).get("RANK") == rank


def test_tasks_per_node() -> None:
    assert tasks_per_node("4") == [4]
    assert tasks_per_node("2(x3),1") == [2, 2, 2, 1]
    for text in ("", "x", "2(x)", "2;3", "-1"):
        with pytest.raises(ValueError, match="is not a list of tasks"):
            tasks_per_node(text)


def test_each_start_of_a_step_has_its_own_key() -> None:
    others = {"SLURM_STEP_ID": "1", "SLURM_RESTART_COUNT": "1", "SLURM_STEP_LAUNCHER_PORT": "1"}
    keys = {step_key(TASK), *(step_key({**TASK, name: value}) for name, value in others.items())}
    assert len(keys) == 4
    assert step_key(TASK) == step_key({**TASK, "SLURM_PROCID": "0", "SLURM_NODEID": "0"})


def test_the_components_of_a_heterogeneous_step_have_one_key() -> None:
    ports = ({"SLURM_STEP_LAUNCHER_PORT": port, "SLURM_HET_SIZE": "2"} for port in ("1", "2"))
    assert len({step_key({**TASK, **port}) for port in ports}) == 1
