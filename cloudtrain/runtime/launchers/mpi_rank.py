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

from cloudtrain.observe import steady
from cloudtrain.runtime.launchers.srun import LOCAL_RANK, RUNTIME, SIZE
from cloudtrain.runtime.run_folder import RankRecord, read_command, write_code

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import MutableMapping

assert sys.platform != "win32", "jobs run on Linux and macOS"

_RANK = ("OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK")
_SIZE = (SIZE, "OMPI_COMM_WORLD_SIZE", "PMI_SIZE")
_LOCAL_RANK = (LOCAL_RANK, "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID")

LOOK_SECONDS = 0.05
"""With a runtime that is not an ancestor: how often a rank's parent looks for both."""

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
    started_by = "srun" if RUNTIME in environ else "mpirun"
    first = host_rank * local_size
    if size != world:
        _refuse(
            folder,
            local,
            f"{started_by} started a world of {size} ranks, but the job has {world}: check the mpirun on the PATH",
        )
    if rank != first + local:
        _refuse(
            folder,
            local,
            f"{started_by} placed rank {rank} on host {host_rank}, which should run ranks {first} to"
            f" {first + local_size - 1}: remove --map-by and --rank-by from custom_mpi_options",
        )
    runtime = int(environ.pop(RUNTIME, "0"))
    _fork(folder, local, runtime)
    if runtime:
        from cloudtrain.runtime.launchers.mpi_world import check_world

        check_world(world)
    cwd, arguments = read_command(folder, local)
    os.chdir(cwd)
    return arguments


def _number(environ: MutableMapping[str, str], names: tuple[str, ...]) -> int:
    """The value of the first variable that is set; -1 if none is."""
    return next((int(environ[name]) for name in names if name in environ), -1)


def _refuse(folder: str, local: int, why: str) -> None:
    """Exit, and record the reason."""
    record = RankRecord(os.getpid(), int(os.environ["RANK"]), 1, "SystemExit", why, time=steady.now())
    record.write(folder, local)
    write_code(folder, local, 1)
    sys.exit(f"cloudtrain: {why}")


def _fork(folder: str, local: int, runtime: int = 0) -> None:
    """Continue in a child; the parent watches it and never returns.

    Args:
        runtime: the process of the runtime, if this one does not descend from it. The parent ends after it.
    """
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
    _, status = os.waitpid(child, 0) if not runtime else _wait_beside(child, runtime)
    for number in _FORWARDED:
        signal.signal(number, signal.SIG_DFL)
    code = os.waitstatus_to_exitcode(status)
    with contextlib.suppress(OSError):  # the folder may be removed with the job
        write_code(folder, local, code)
    if code == 0:
        os._exit(0)
    while not runtime:
        signal.pause()
    while _lives(runtime):
        time.sleep(LOOK_SECONDS)
    os._exit(1)


def _wait_beside(child: int, runtime: int) -> tuple[int, int]:
    """The result of `os.waitpid` for the child, which is killed when the runtime has ended."""
    while True:
        done = os.waitpid(child, os.WNOHANG)
        if done[0]:
            return done
        if not _lives(runtime):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(child, signal.SIGKILL)
        time.sleep(LOOK_SECONDS)


def _lives(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True
