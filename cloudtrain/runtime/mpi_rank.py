"""A rank that mpirun started: finds its place, and is watched by a process that tells how it ended.

mpirun tells nobody how a rank ended before it has ended the others; so each rank is the child of a small process,
which leaves the exit code where the runtime looks, and then stays: to mpirun the rank still runs. What follows
from a failure, and how long ranks may take to stop, is the runtime's to decide.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time

from cloudtrain.runtime.run_folder import RankRecord, command_path, write_code

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import MutableMapping

_RANK = ("OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK")
_SIZE = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE")
_LOCAL_RANK = ("OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID")

_FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


def attach(folder: str, environ: MutableMapping[str, str]) -> list[str]:
    """Return, in a child of this process, what the rank is to run, with RANK and LOCAL_RANK set.

    Exits where MPI's world is not the job's: several worlds of one rank would each train alone.
    """
    rank, size, local = (_number(environ, names) for names in (_RANK, _SIZE, _LOCAL_RANK))
    world, local_size, host_rank = (
        int(environ[name]) for name in ("WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK")
    )
    environ["RANK"], environ["LOCAL_RANK"] = str(rank), str(local)
    if "HOROVOD_SIZE" in environ:  # the job's distribution is horovod
        environ["HOROVOD_RANK"], environ["HOROVOD_LOCAL_RANK"] = str(rank), str(local)
    first = host_rank * local_size
    if size != world:
        _refuse(folder, local, f"mpirun made a world of {size} ranks, and the job has {world}")
    if rank != first + local:
        _refuse(
            folder,
            local,
            f"mpirun put rank {rank} on host {host_rank}, whose ranks are {first} to {first + local_size - 1}:"
            " leave --map-by and --rank-by out of custom_mpi_options",
        )
    _fork(folder, local)
    with open(command_path(folder), encoding="utf-8", errors="surrogateescape") as file:
        cwd, *arguments = file.read().split("\0")
    os.chdir(cwd)
    return arguments


def _number(environ: MutableMapping[str, str], names: tuple[str, ...]) -> int:
    """The first of these variables; -1 where there is none of them."""
    return next((int(environ[name]) for name in names if name in environ), -1)


def _refuse(folder: str, local: int, why: str) -> None:
    """End, and leave word of it."""
    record = RankRecord(os.getpid(), int(os.environ["RANK"]), 1, "SystemExit", why, time=time.time())
    record.write(folder, local)
    write_code(folder, local, 1)
    sys.exit(f"cloudtrain: {why}")


def _fork(folder: str, local: int) -> None:
    """Go on in a child; the parent watches it and never returns."""
    child = 0

    def forward(number: int, _frame: object) -> None:
        if child:
            os.kill(child, number)

    handlers = {number: signal.signal(number, forward) for number in _FORWARDED}
    child = os.fork()
    if child == 0:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        from cloudtrain.runtime.parent_death import die_with_parent

        die_with_parent()
        os.setpgid(0, 0)  # what the rank starts is signalled and ended with it
        return
    _, status = os.waitpid(child, 0)
    for number in _FORWARDED:
        signal.signal(number, signal.SIG_DFL)
    code = os.waitstatus_to_exitcode(status)
    with contextlib.suppress(OSError):  # the folder goes away with the job
        write_code(folder, local, code)
    if code == 0:
        os._exit(0)
    while True:
        signal.pause()
