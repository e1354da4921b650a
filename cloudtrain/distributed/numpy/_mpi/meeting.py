"""How the ranks that ``mpirun`` started meet. No step waits for longer than it may."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping

import numpy as np
from mpi4py import MPI

from cloudtrain.contract.launcher_env import LauncherEnv
from cloudtrain.distributed import options
from cloudtrain.distributed.errors import CollectiveError, InvalidArgument
from cloudtrain.distributed.negotiation.client import NegotiationClient
from cloudtrain.distributed.negotiation.matcher import Combine
from cloudtrain.distributed.negotiation.rendezvous import connect
from cloudtrain.distributed.world import World

POLL_SECONDS = 0.002
WORD_BYTES = 512
"""Room for a host's name, or for where rank 0 listens."""


class Meeting:
    """The ranks of ``comm``, else of ``MPI.COMM_WORLD``, on a communicator of their own. To be made by all.

    Raises:
        InvalidArgument: this is not the MPI that started the ranks, or it does not allow threads.
        CollectiveError: not all ranks came within ``timeout`` seconds. So do the methods.
    """

    def __init__(self, comm: MPI.Intracomm | None, timeout: float) -> None:
        if comm is None:
            comm = MPI.COMM_WORLD
            _check_launcher(comm.size, os.environ)
        elif not isinstance(comm, MPI.Intracomm):
            raise InvalidArgument(f"comm={comm!r} is not a communicator of mpi4py")
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

    def join(self, engine: NegotiationClient, combine: Combine, timeout: float) -> None:
        """Give ``engine`` its channel (see `connect`)."""
        one_host = self.world.cross_size == 1
        connect(
            engine,
            self,
            self.world.rank,
            self.world.size,
            os.environ.get("MASTER_ADDR") or ("127.0.0.1" if one_host else socket.gethostname()),
            combine,
            start_timeout=self._timeout,
            timeout=timeout,
            warn_after=options.warn_after(),
        )

    def set(self, key: str, value: str) -> None:
        """Rank 0 tells all others; as a store (`cloudtrain.distributed.negotiation.rendezvous.Store`)."""
        self._wait(self.comm.Ibcast(_word(value), 0))

    def get(self, key: str) -> bytes:
        """What rank 0 tells."""
        word = _word("")
        self._wait(self.comm.Ibcast(word, 0))
        return word.tobytes().rstrip(b"\0")

    def _world(self) -> World:
        """Ranks that have the same host's name share a host."""
        rank, size = self.comm.rank, self.comm.size
        own, words = _word(MPI.Get_processor_name()), np.empty((size, WORD_BYTES), np.uint8)
        self._wait(self.comm.Iallgather(own, words))
        names = [word.tobytes() for word in words]
        hosts = list(dict.fromkeys(names))
        local = [other for other, name in enumerate(names) if name == names[rank]]
        return World(rank, size, local.index(rank), len(local), hosts.index(names[rank]), len(hosts))

    def _wait(self, request: MPI.Request) -> None:
        deadline = time.monotonic() + self._timeout
        while not request.Test():
            if time.monotonic() > deadline:
                raise CollectiveError(
                    f"{self._where}: not all ranks came to init within {self._timeout:g} s",
                    hint=f"Look at their logs, or raise {options.START_TIMEOUT}.",
                )
            time.sleep(POLL_SECONDS)


def _word(text: str) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    return np.frombuffer(bytearray(text.encode()[:WORD_BYTES].ljust(WORD_BYTES, b"\0")), np.uint8)


def _check_launcher(size: int, environ: Mapping[str, str]) -> None:
    variable = LauncherEnv.detect(environ).size
    started = environ.get(variable, "")
    if started.isdigit() and int(started) != size:
        library = MPI.Get_library_version().splitlines()[0].split(",")[0]
        raise InvalidArgument(
            f"the launcher started {started} ranks ({variable}), but mpi4py, with {library}, sees a world of "
            f"{size}: the launcher is not of that MPI",
            hint="Start the ranks by mpirun, and set MPI4PY_LIBMPI to the libmpi.so that belongs to it.",
        )
