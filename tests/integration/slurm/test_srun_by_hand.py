"""Ranks that ``srun`` starts by hand, without a job of cloudtrain, find one another on two nodes."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from slurm_cluster import SlurmCluster

ROOT = str(Path(__file__).parents[3])

TRAIN = """
import os
import torch, cloudtrain.distributed.torch as hvd
from cloudtrain import environment
before = (environment.rank(), environment.world_size())
hvd.init()
place = (hvd.rank(), hvd.size(), hvd.local_rank(), hvd.local_size(), hvd.cross_rank(), hvd.cross_size())
total = hvd.allreduce(torch.ones(1) * (hvd.rank() + 1), op=hvd.Sum).item()
objects = hvd.allgather_object(os.environ["SLURMD_NODENAME"])
print(before == place[:2], *place, total, *objects, os.listdir(os.environ["CLOUDTRAIN_HOME"] + "/steps"))
"""

MEETS = """
import hashlib, os, sys, time
from cloudtrain.distributed.negotiation import rendezvous
from cloudtrain.distributed.negotiation.rendezvous import find_master
from cloudtrain.distributed.world import World
world = find_master(World.from_environ(), 120)
digest = hashlib.sha256(rendezvous.published_secret().encode()).hexdigest()[:8]
print(world.rank, world.size, world.local_size, world.cross_rank, world.master_addr, world.master_port, digest)
open(f"{sys.argv[1]}/met-{world.rank}", "w").close()
while world.rank == 0 and len(os.listdir(sys.argv[1])) < world.size:
    time.sleep(0.05)  # the others may still have to read the file; a real init waits for them
"""

WORLD = (
    "from cloudtrain.distributed import World; world = World.from_environ(); print(world.rank, world.size)"
)


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return {"CLOUDTRAIN_HOME": str(tmp_path / "home"), "PYTHONPATH": ROOT, "CLOUDTRAIN_START_TIMEOUT": "60"}


def test_the_ranks_of_two_nodes_meet(slurm: SlurmCluster, tmp_path: Path, environ: dict[str, str]) -> None:
    (tmp_path / "train.py").write_text(MEETS)
    (tmp_path / "met").mkdir()
    program = [sys.executable, f"{tmp_path}/train.py", f"{tmp_path}/met"]
    done = slurm.run("srun", "-N2", "-n3", "-m", "block", *program, env=environ)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = sorted(line.split() for line in done.stdout.splitlines())
    assert [line[:4] for line in lines] == [["0", "3", "2", "0"], ["1", "3", "2", "0"], ["2", "3", "1", "1"]]
    [met] = {tuple(line[4:]) for line in lines}
    assert met[0] == "127.0.0.2"
    assert os.listdir(tmp_path / "home" / "steps") == []


@pytest.mark.soak
def test_the_ranks_of_two_nodes_train(slurm: SlurmCluster, tmp_path: Path, environ: dict[str, str]) -> None:
    (tmp_path / "train.py").write_text(TRAIN)
    program = f"{sys.executable} {tmp_path}/train.py"
    done = slurm.run("srun", "-N2", "-n3", "-m", "block", "sh", "-c", program, env=environ)
    assert done.returncode == 0, done.stdout + done.stderr
    nodes = "127.0.0.2 127.0.0.2 127.0.0.3"
    assert sorted(done.stdout.splitlines()) == [
        f"True 0 3 0 2 0 2 6.0 {nodes} []",
        f"True 1 3 1 2 0 2 6.0 {nodes} []",
        f"True 2 3 0 1 1 2 6.0 {nodes} []",
    ]
    assert "no common secret" not in done.stderr
    assert os.listdir(tmp_path / "home" / "steps") == []


@pytest.mark.parametrize("mpi", ["none", "pmix", "pmi2"])
def test_tasks_are_ranks_with_every_mpi(slurm: SlurmCluster, mpi: str, environ: dict[str, str]) -> None:
    done = slurm.run("srun", "-N2", "-n2", f"--mpi={mpi}", sys.executable, "-c", WORLD, env=environ)
    assert sorted(done.stdout.splitlines()) == ["0 2", "1 2"], done.stderr


def test_a_wrong_mpi_does_not_train_in_worlds_of_one(slurm: SlurmCluster, environ: dict[str, str]) -> None:
    program = "import cloudtrain.distributed.numpy as hvd; hvd.init(backend='mpi'); print('trains')"
    done = slurm.run("srun", "-N1", "-n2", "--mpi=none", sys.executable, "-c", program, env=environ)
    assert "trains" not in done.stdout
    assert "the launcher started 2 ranks (SLURM_STEP_NUM_TASKS), but mpi4py" in done.stderr, done.stderr
    assert "Choose the --mpi of srun that fits this MPI" in done.stderr


def test_batch_scripts_and_shells_are_single_processes(slurm: SlurmCluster, environ: dict[str, str]) -> None:
    exports = " ".join(f"{name}={value}" for name, value in environ.items())
    script = f"{exports} {sys.executable} -c '{WORLD}'"
    inside_a_step = f'sbatch --wait --parsable -o {slurm.folder}/log/nested -N1 -n1 --wrap "{script}"'
    number = slurm.submit(script, "-N2", "-n3")
    assert slurm.wait(number) == "COMPLETED"
    assert slurm.output(number) == "0 1\n"
    assert slurm.run("salloc", "-n3", sys.executable, "-c", WORLD, env=environ).stdout == "0 1\n"
    # a batch script that inherits the variables of the step that submitted it
    done = slurm.run("srun", "-N1", "-n2", "sh", "-c", f'[ "$SLURM_PROCID" = 0 ] || exit 0; {inside_a_step}')
    assert done.returncode == 0, done.stderr
    assert (slurm.folder / "log" / "nested").read_text() == "0 1\n"
