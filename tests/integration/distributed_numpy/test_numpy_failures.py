"""Start and end, and the errors of ranks when another rank never starts, dies, hangs or leaves."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from numpy_ranks import MPI_WAYS, WAYS, run_ranks

import cloudtrain.distributed.numpy as hvd


@pytest.mark.parametrize("way", WAYS)
def test_init_after_shutdown(way: str) -> None:
    ended = run_ranks(way, 2, "_again.py", warm=True)
    assert ended.returncode == 0, ended.output
    assert ended.output.count("has not been initialized") == 2


@pytest.mark.parametrize("way", WAYS)
def test_a_rank_that_hangs(way: str) -> None:
    ended = run_ranks(way, 3, "_fails.py", "hangs", warm=True)
    assert ended.returncode != 0
    assert "allreduce of large: timed out; ranks [0, 1] have called it, ranks [2] have not" in ended.output


@pytest.mark.parametrize("way", WAYS)
def test_a_rank_that_leaves(way: str) -> None:
    ended = run_ranks(way, 3, "_fails.py", "leaves", warm=True)
    assert ended.returncode != 0
    assert "allreduce of large: rank 2 has shut down" in ended.output


def test_a_rank_that_is_killed() -> None:
    """Only over Gloo: mpirun kills the other ranks itself."""
    ended = run_ranks("gloo", 3, "_fails.py", "killed", warm=True)
    for rank in (0, 1):
        assert f"rank {rank}: allreduce of large" in ended.output
    assert "rank 2 has died" in ended.output


@pytest.mark.parametrize("way", WAYS)
def test_a_rank_that_starts_too_late(way: str) -> None:
    ended = run_ranks(way, 2, "_fails.py", "starts late", warm=True)
    assert ended.returncode != 0
    assert "CollectiveError: rank 0 of 2" in ended.output


def test_ranks_started_without_mpirun() -> None:
    """Otherwise every rank would be alone in its world, and succeed."""
    ended = run_ranks("mpi, no mpirun", 2, "_again.py")
    assert ended.returncode != 0
    assert "the launcher started 2 ranks (WORLD_SIZE), but mpi4py, with Open MPI" in ended.output
    assert "sees a world of 1" in ended.output
    assert "Start them with mpirun: cloudtrain run --mpi" in ended.output


def test_no_mpi_library() -> None:
    program = "import cloudtrain.distributed.numpy as hvd; hvd.init(backend='mpi')"
    ended = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "MPI4PY_LIBMPI": "/nowhere/libmpi.so"},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert "InvalidArgument: backend 'mpi' needs mpi4py, which cannot be imported" in ended.stderr
    assert "set MPI4PY_LIBMPI" in ended.stderr


@pytest.mark.parametrize("way", MPI_WAYS)
def test_a_communicator_of_some_ranks(way: str) -> None:
    ended = run_ranks(way, 3, "_communicator.py")
    assert ended.returncode == 0, ended.output


def test_arguments_of_init() -> None:
    with pytest.raises(hvd.InvalidArgument, match=r"backend='nccl' is not known\n.*gloo, mpi"):
        hvd.init(backend="nccl")
    with pytest.raises(hvd.InvalidArgument, match="comm is for backend 'mpi'"):
        hvd.init([0, 1], backend="gloo")
    with pytest.raises(hvd.InvalidArgument, match="process_sets: 3 is not a ProcessSet"):
        hvd.init(process_sets=[3], backend="gloo")
    with pytest.raises(hvd.InvalidArgument, match="needs some of the 1 ranks"):
        hvd.init(process_sets=[hvd.ProcessSet([1])], backend="gloo")
    assert not hvd.is_initialized()


@pytest.mark.parametrize(
    ("missing", "backend", "answer"),
    [
        (["torch", "mpi4py"], None, "neither torch nor mpi4py is installed"),
        (["torch"], "gloo", "backend 'gloo' needs torch, which is not installed"),
        (["torch"], None, "mpi"),
        ([], None, "gloo"),
    ],
)
def test_default_backend_by_installed_packages(missing: list[str], backend: str | None, answer: str) -> None:
    program = f"""
import importlib.machinery, sys
find = importlib.machinery.PathFinder.find_spec
importlib.machinery.PathFinder.find_spec = staticmethod(
    lambda name, *rest: None if name in {missing} else find(name, *rest))
import cloudtrain.distributed.numpy as hvd
try:
    hvd.init(backend={backend!r})
    print("gloo" if "torch" in sys.modules else "mpi", hvd.allreduce([1.0]))
except hvd.InvalidArgument as error:
    print(error)
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=240)
    assert ended.stdout.startswith(answer), ended.stderr
