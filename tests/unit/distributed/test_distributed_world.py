"""The world is read from the environment; errors name the contradicting variables."""

from __future__ import annotations

import subprocess
import sys

import pytest

from cloudtrain.contract import RankSlot
from cloudtrain.distributed import InvalidArgument, World, options

MASTER = {"MASTER_ADDR": "algo-1", "MASTER_PORT": "7777"}


@pytest.mark.parametrize(
    ("environ", "world"),
    [
        ({}, World()),
        ({"MASTER_ADDR": "algo-1"}, World()),
        ({"RANK": "0", "WORLD_SIZE": "1"}, World()),
        ({"RANK": "3", "WORLD_SIZE": "4", **MASTER}, World(3, 4, 0, 1, 3, 4, "algo-1", 7777)),
        (
            {"RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "4", **MASTER},
            World(5, 8, 1, 4, 1, 2, "algo-1", 7777),
        ),
    ],
)
def test_from_environ(environ: dict[str, str], world: World) -> None:
    assert World.from_environ(environ) == world


OPEN_MPI = {
    "OMPI_COMM_WORLD_RANK": "5",
    "OMPI_COMM_WORLD_SIZE": "8",
    "OMPI_COMM_WORLD_LOCAL_RANK": "1",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "4",
}
OPEN_MPI_OF_ONE_HOST = {
    "OMPI_COMM_WORLD_RANK": "1",
    "OMPI_COMM_WORLD_SIZE": "2",
    "OMPI_COMM_WORLD_LOCAL_RANK": "1",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
}
MPICH = {"PMI_RANK": "5", "PMI_SIZE": "8", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "4"}
HOROVODRUN = {
    "HOROVOD_RANK": "5",
    "HOROVOD_SIZE": "8",
    "HOROVOD_LOCAL_RANK": "1",
    "HOROVOD_LOCAL_SIZE": "4",
    "HOROVOD_CROSS_RANK": "1",
    "HOROVOD_CROSS_SIZE": "2",
}
TORCHRUN = {
    "RANK": "5",
    "WORLD_SIZE": "8",
    "LOCAL_RANK": "1",
    "LOCAL_WORLD_SIZE": "4",
    "GROUP_RANK": "1",
    "GROUP_WORLD_SIZE": "2",
}


@pytest.mark.parametrize(
    "environ",
    [OPEN_MPI, MPICH, HOROVODRUN, TORCHRUN, {**TORCHRUN, "OMPI_COMM_WORLD_RANK": "0"}],
    ids=["Open MPI", "MPICH and Intel MPI", "horovodrun", "torchrun", "torchrun within mpirun"],
)
def test_every_launcher_describes_the_same_world(environ: dict[str, str]) -> None:
    assert World.from_environ({**environ, **MASTER}) == World(5, 8, 1, 4, 1, 2, "algo-1", 7777)
    with pytest.raises(
        InvalidArgument, match="=8 on several hosts, with MASTER_ADDR and MASTER_PORT not set"
    ):
        World.from_environ(environ)


def test_hosts_with_different_numbers_of_ranks() -> None:
    hosts = {"OMPI_COMM_WORLD_CROSS_RANK": "2", "OMPI_COMM_WORLD_CROSS_SIZE": "3"}
    assert World.from_environ({**OPEN_MPI, **hosts, **MASTER}).cross_rank == 2
    world = World.from_environ({**OPEN_MPI, "OMPI_COMM_WORLD_SIZE": "7", **MASTER})
    assert (world.cross_rank, world.cross_size) == (1, 2)


@pytest.mark.parametrize("environ", [{}, {"MASTER_ADDR": "algo-1"}, {"MASTER_PORT": "7777"}])
def test_ranks_of_one_host_need_no_master_address(environ: dict[str, str]) -> None:
    world = World.from_environ({**environ, **OPEN_MPI_OF_ONE_HOST})
    assert (world.rank, world.size, world.local_size, world.cross_size) == (1, 2, 2, 1)
    assert (world.master_addr, world.master_port) == (
        environ.get("MASTER_ADDR", ""),
        int(environ.get("MASTER_PORT", 0)),
    )


def test_reads_the_variables_of_our_launchers() -> None:
    for host in range(2):
        for slot in RankSlot.on_host(host, 2, 3):
            world = World.from_environ(slot.environment("algo-1", 7777))
            assert (world.rank, world.size) == (slot.rank, slot.world_size)
            assert (world.local_rank, world.local_size) == (slot.local_rank, slot.local_size)
            assert (world.cross_rank, world.cross_size) == (slot.host_rank, slot.host_count)
            assert (world.master_addr, world.master_port) == ("algo-1", 7777)


@pytest.mark.parametrize(
    ("environ", "words"),
    [
        ({"RANK": "0"}, "WORLD_SIZE is not set"),
        ({"WORLD_SIZE": "2"}, "RANK is not set"),
        ({"RANK": "two", "WORLD_SIZE": "2"}, "RANK='two' is not a whole number"),
        ({"RANK": "2", "WORLD_SIZE": "2"}, "RANK=2 is not below its world's size, 2"),
        ({"RANK": "-1", "WORLD_SIZE": "2"}, "RANK=-1"),
        ({"RANK": "0", "WORLD_SIZE": "0"}, "RANK=0 is not below its world's size, 0"),
        ({"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "1"}, "LOCAL_RANK=1"),
        ({"RANK": "0", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "0"}, "LOCAL_RANK=0"),
        ({"RANK": "0", "WORLD_SIZE": "2", "GROUP_RANK": "2"}, "GROUP_RANK=2"),
        ({"RANK": "0", "WORLD_SIZE": "2"}, "MASTER_ADDR and MASTER_PORT"),
        ({"RANK": "0", "WORLD_SIZE": "2", "MASTER_PORT": "1"}, "MASTER_ADDR not set"),
        ({"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "algo-1"}, "MASTER_PORT not set"),
    ],
)
def test_contradictions(environ: dict[str, str], words: str) -> None:
    with pytest.raises(InvalidArgument, match=words):
        World.from_environ(environ)


OWN = RankSlot.on_host(1, 2, 1)[0].environment_without_launcher("algo-1", 7777)
"""Of the second host of a job without launcher."""
LIGHTNING = {
    "NODE_RANK": "0",
    "LOCAL_RANK": "1",
    "WORLD_SIZE": "2",
    "MASTER_ADDR": "localhost",
    "MASTER_PORT": "1",
}
"""Of the second rank that PyTorch Lightning starts on one host."""


@pytest.mark.parametrize(
    ("environ", "world"),
    [
        (OWN, World(1, 2, 0, 1, 1, 2, "algo-1", 7777)),
        ({**OWN, **LIGHTNING}, World(1, 2, 1, 2, 0, 1, "localhost", 1)),
        ({**OWN, **OPEN_MPI_OF_ONE_HOST}, World(1, 2, 1, 2, 0, 1, "algo-1", 7777)),
        (
            {**OWN, **LIGHTNING, "NODE_RANK": "1", "WORLD_SIZE": "6", "SM_HOST_COUNT": "3"},
            World(3, 6, 1, 2, 1, 3, "localhost", 1),
        ),
        ({**LIGHTNING, "NODE_RANK": "1", "WORLD_SIZE": "4"}, World(3, 4, 1, 2, 1, 2, "localhost", 1)),
    ],
    ids=["our own", "Lightning", "mpirun in a script", "Lightning on three hosts", "Lightning outside a job"],
)
def test_ranks_that_a_script_starts_itself_have_their_own_world(
    environ: dict[str, str], world: World
) -> None:
    """The script has no launcher; its ranks inherit cloudtrain's variables."""
    assert World.from_environ(environ) == world


def test_timeouts() -> None:
    assert options.start_timeout({}) == 300
    assert options.collective_timeout({}) == 1800
    assert options.default_timeout("cpu:gloo,cuda:nccl") == 600
    assert options.default_timeout("gloo") == 1800
    assert options.collective_timeout({"CLOUDTRAIN_COLLECTIVE_TIMEOUT": "7"}, default=600) == 7
    assert options.start_timeout({"CLOUDTRAIN_START_TIMEOUT": "2.5"}) == 2.5
    for text in ("soon", "0", "-1", "inf", "nan", ""):
        with pytest.raises(InvalidArgument, match="CLOUDTRAIN_COLLECTIVE_TIMEOUT"):
            options.collective_timeout({"CLOUDTRAIN_COLLECTIVE_TIMEOUT": text})


@pytest.mark.parametrize(
    ("environ", "seconds"),
    [
        ({}, 60),
        ({"HOROVOD_STALL_CHECK_TIME_SECONDS": "7"}, 7),
        ({"HOROVOD_STALL_CHECK_TIME_SECONDS": "7", "CLOUDTRAIN_STALL_WARNING": "3"}, 3),
    ],
)
def test_stall_warning(environ: dict[str, str], seconds: float) -> None:
    assert options.warn_after(environ) == seconds


def test_the_world_needs_no_framework() -> None:
    program = "import sys, cloudtrain.distributed; sys.exit('torch' in sys.modules or 'numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0
