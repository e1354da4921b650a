"""The rendezvous of ranks started by ``mpirun``. Every step has a timeout."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping

import numpy as np
from mpi4py import MPI

from cloudtrain.contract.rank import LauncherEnv, started_by_srun, with_rank
from cloudtrain.distributed import options
from cloudtrain.distributed.errors import CollectiveError, InvalidArgument
from cloudtrain.distributed.negotiation.client import NegotiationClient
from cloudtrain.distributed.negotiation.matcher import Combine
from cloudtrain.distributed.negotiation.rendezvous import connect
from cloudtrain.distributed.world import World

POLL_SECONDS = 0.002
MESSAGE_BYTES = 512
"""Enough for a host name, or for rank 0's address."""


class Rendezvous:
    """A duplicate of ``comm``, or of ``MPI.COMM_WORLD``. All ranks construct it.

    The methods raise CollectiveError, too.

    Raises:
        InvalidArgument: This is not the MPI library that started the ranks, or it does not support threads.
        CollectiveError: Not all ranks arrived within ``timeout`` seconds.
    """

    def __init__(self, comm: MPI.Intracomm | None, timeout: float) -> None:
        if comm is None:
            comm = MPI.COMM_WORLD
            _check_launcher(comm.size, os.environ)
        elif not isinstance(comm, MPI.Intracomm):
            raise InvalidArgument(f"comm={comm!r} is not an mpi4py communicator")
        if MPI.Query_thread() < MPI.THREAD_MULTIPLE:
            raise InvalidArgument(
                "MPI was initialized without MPI_THREAD_MULTIPLE",
                hint="Leave mpi4py.rc.thread_level as it is.",
            )
        self._timeout = timeout
        self._where = f"rank {comm.rank} of {comm.size}"
        self.comm, request = comm.Idup()
        self._wait(request)
        self.world = self._world()

    def join(self, client: NegotiationClient, combine: Combine, timeout: float) -> None:
        """Connect ``client`` to the coordinator (see `connect`)."""
        connect(
            client,
            self,
            self.world,
            combine,
            start_timeout=self._timeout,
            timeout=timeout,
        )

    def set(self, key: str, value: str) -> None:
        """Broadcast ``value`` from rank 0 (`cloudtrain.distributed.negotiation.rendezvous.Store`)."""
        self._wait(self.comm.Ibcast(_padded(value), 0))

    def get(self, key: str) -> bytes:
        """Receive the value that rank 0 broadcasts."""
        message = _padded("")
        self._wait(self.comm.Ibcast(message, 0))
        return message.tobytes().rstrip(b"\0")

    def _world(self) -> World:
        """Ranks with the same processor name share a host."""
        rank, size = self.comm.rank, self.comm.size
        own, messages = _padded(MPI.Get_processor_name()), np.empty((size, MESSAGE_BYTES), np.uint8)
        self._wait(self.comm.Iallgather(own, messages))
        names = [message.tobytes() for message in messages]
        hosts = list(dict.fromkeys(names))
        local = [other for other, name in enumerate(names) if name == names[rank]]
        return World(rank, size, local.index(rank), len(local), hosts.index(names[rank]), len(hosts))

    def _wait(self, request: MPI.Request) -> None:
        deadline = time.monotonic() + self._timeout
        while not request.Test():
            if time.monotonic() > deadline:
                raise CollectiveError(
                    f"{self._where}: not all ranks called init within {self._timeout:g} s",
                    hint=f"Check their logs, or increase {options.START_TIMEOUT}.",
                )
            time.sleep(POLL_SECONDS)


def _padded(text: str) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    return np.frombuffer(bytearray(text.encode()[:MESSAGE_BYTES].ljust(MESSAGE_BYTES, b"\0")), np.uint8)


_START_WITH_MPI = (
    "Ranks without torch communicate over MPI. Start them with mpirun: cloudtrain run --mpi, or cloudtrain submit "
    "--mpirun. Or install torch, whose Gloo needs no mpirun."
)


def _check_launcher(size: int, environ: Mapping[str, str]) -> None:
    by_srun = started_by_srun(environ)
    environ = with_rank(environ)
    variable = LauncherEnv.detect(environ).size
    started = environ.get(variable, "")
    variable = "SLURM_STEP_NUM_TASKS" if by_srun else variable
    if started.isdigit() and int(started) != size:
        library = MPI.Get_library_version().splitlines()[0].split(",")[0]
        raise InvalidArgument(
            f"the launcher started {started} ranks ({variable}), but mpi4py, with {library}, sees a world of "
            f"{size}: the launcher is not of this MPI",
            hint="Choose the --mpi of srun that fits this MPI: pmix for Open MPI, pmi2 for MPICH (srun --mpi=list)."
            if by_srun
            else _START_WITH_MPI
            if variable == "WORLD_SIZE"
            else "Start the ranks with mpirun, and set MPI4PY_LIBMPI to the libmpi.so of that mpirun.",
        )
