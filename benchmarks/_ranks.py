"""Two ranks on this machine in which contestants take turns in a fair order.

``scripts/build_horovod`` builds the real Horovod in a separate environment, with mpi4py and the same PyTorch. If it
exists, all contestants run in its Python, started with ``mpirun``; otherwise in this Python, without Horovod and
mpi4py.
"""

from __future__ import annotations

import argparse
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from _common import PEERS

RANKS = 2
REPOSITORY = Path(__file__).parents[1]
HOROVOD = PEERS / "horovod" / "bin" / "python"
MPIRUN = "/usr/bin/mpirun"
"""Debian's, with which `HOROVOD` was built."""


def has_horovod() -> bool:
    """Whether the ranks run in the Python with the real Horovod and mpi4py."""
    return HOROVOD.exists() and os.path.exists(MPIRUN)


def is_rank() -> bool:
    return "RANK" in os.environ or "OMPI_COMM_WORLD_RANK" in os.environ


def start_ranks(description: str | None) -> int:
    """Run the script in all ranks, each of them with one thread and initialised, and return the number of rounds there.

    Args:
        description: the docstring of the script, for ``--help``.
    """
    parser = argparse.ArgumentParser(description=(description or "").split("\n", 1)[0])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--quick", action="store_true", help="two rounds, as a smoke test")
    arguments = parser.parse_args()
    rounds: int = 2 if arguments.quick else arguments.rounds
    if not is_rank():
        sys.exit(run_in_ranks("--rounds", str(rounds)))
    import torch

    import cloudtrain.distributed.torch as hvd

    torch.set_num_threads(1)
    hvd.init()
    return rounds


def run_in_ranks(*arguments: str) -> int:
    """Run this script in all ranks; returns the first exit code other than 0, or 0."""
    script = [str(Path(sys.argv[0]).resolve()), *arguments]
    if has_horovod():
        return subprocess.run([*_mpirun(), str(HOROVOD), *script], env=_environment()).returncode
    print("Horovod and mpi4py do not take part: scripts/build_horovod builds them", file=sys.stderr)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    world = {
        "WORLD_SIZE": str(RANKS),
        "LOCAL_WORLD_SIZE": str(RANKS),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }
    ranks = [
        subprocess.Popen(
            [sys.executable, *script],
            env={**_environment(), **world, "RANK": str(rank), "LOCAL_RANK": str(rank)},
        )
        for rank in range(RANKS)
    ]
    codes = [rank.wait() for rank in ranks]
    return next((code for code in codes if code), 0)


def _mpirun() -> list[str]:
    # Waiting ranks yield their core to working ones: without this, Horovod's two threads per rank take 20 times as
    # long as soon as the machine does anything else.
    yields = ["--mca", "mpi_yield_when_idle", "1"]
    return [MPIRUN, "--allow-run-as-root", "-np", str(RANKS), "--bind-to", "none", *yields]


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(REPOSITORY), "OMP_NUM_THREADS": "1"}


@contextmanager
def running(name: str) -> Iterator[None]:
    """Horovod's threads communicate over MPI every millisecond, so they run only in the turn of this contestant."""
    if name != "Horovod":
        yield
        return
    import horovod.torch as horovod
    from mpi4py import MPI

    assert MPI.Is_initialized()  # by mpi4py, which keeps it; Horovod alone would finalize MPI
    horovod.init()
    yield
    horovod.shutdown()


def take_turns(
    contestants: Mapping[str, Callable[[], object]], calls: int, rounds: int
) -> dict[str, list[float]]:
    """Seconds per call of each contestant, by round.

    The first contestant changes from round to round. Each turn starts with some uncounted calls, and the benchmark with
    an uncounted round.
    """
    import cloudtrain.distributed.torch as hvd

    names = list(contestants)
    seconds: dict[str, list[float]] = {name: [] for name in names}
    for turn in range(rounds + 1):
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            with running(name):
                contestants[name]()
                contestants[name]()
                hvd.barrier()
                start = time.perf_counter()
                for _ in range(calls):
                    contestants[name]()
                took = (time.perf_counter() - start) / calls
            if turn:
                seconds[name].append(took)
    return seconds
