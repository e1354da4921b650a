"""A rank that mpirun started: determines its position, and has a parent process that reports its exit code.

mpirun does not report how a rank ended until it has ended the other ranks. Therefore each rank is the child of a small
process that writes the exit code to the run folder and then keeps running: for mpirun, the rank is still alive. The
runtime decides about the consequences of a failure and the grace period of the other ranks.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time

from cloudtrain.runtime.run_folder import RankRecord, read_command, write_code

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import MutableMapping

assert sys.platform != "win32", "jobs run on Linux and macOS"

_RANK = ("OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK")
_SIZE = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE")
_LOCAL_RANK = ("OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID")

_FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


def attach(folder: str, environ: MutableMapping[str, str]) -> list[str]:
    """Fork, and return the arguments of `cloudtrain.runtime.rank` in the child, with RANK and LOCAL_RANK set.

    Exits if MPI's world differs from the job's: several worlds of one rank would each train alone.
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
        _refuse(
            folder,
            local,
            f"mpirun started a world of {size} ranks, but the job has {world}: check the mpirun on the PATH",
        )
    if rank != first + local:
        _refuse(
            folder,
            local,
            f"mpirun placed rank {rank} on host {host_rank}, which should run ranks {first} to"
            f" {first + local_size - 1}: remove --map-by and --rank-by from custom_mpi_options",
        )
    _fork(folder, local)
    cwd, arguments = read_command(folder)
    os.chdir(cwd)
    return arguments


def _number(environ: MutableMapping[str, str], names: tuple[str, ...]) -> int:
    """The value of the first variable that is set; -1 if none is."""
    return next((int(environ[name]) for name in names if name in environ), -1)


def _refuse(folder: str, local: int, why: str) -> None:
    """Exit, and record the reason."""
    record = RankRecord(os.getpid(), int(os.environ["RANK"]), 1, "SystemExit", why, time=time.time())
    record.write(folder, local)
    write_code(folder, local, 1)
    sys.exit(f"cloudtrain: {why}")


def _fork(folder: str, local: int) -> None:
    """Continue in a child; the parent watches it and never returns."""
    child = 0

    def forward(number: int, _frame: object) -> None:
        if child:
            os.kill(child, number)

    handlers = {number: signal.signal(number, forward) for number in _FORWARDED}
    parent = os.getpid()
    child = os.fork()
    if child == 0:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        from cloudtrain.runtime.parent_death import die_with_parent

        die_with_parent(parent=parent)
        os.setpgid(0, 0)  # processes that the rank starts are signalled and killed with it
        return
    _, status = os.waitpid(child, 0)
    for number in _FORWARDED:
        signal.signal(number, signal.SIG_DFL)
    code = os.waitstatus_to_exitcode(status)
    with contextlib.suppress(OSError):  # the folder may be removed with the job
        write_code(folder, local, code)
    if code == 0:
        os._exit(0)
    while True:
        signal.pause()
