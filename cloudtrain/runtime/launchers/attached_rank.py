"""Checks the place of a rank that mpirun, srun or another project's launcher started, and runs it as a child.

mpirun does not report how a rank ended until it has ended the other ranks; another launcher may report nothing at all.
Therefore each rank is the child of a small process that writes the exit code to the run folder. Under mpirun, this
process then keeps running, so that mpirun considers the rank alive, and the runtime decides about the consequences of a
failure and the grace period of the other ranks. Under another launcher, this process ends with the exit code or signal
of the rank. It also ends the rank if the runtime ends, because the launcher may put other processes between them.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time

from cloudtrain.observe import steady
from cloudtrain.runtime.launchers.srun_rank import LOCAL_RANK, RUNTIME, SIZE
from cloudtrain.runtime.run_folder import RankRecord, pipe_path, read_command, read_variables, write_code

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import MutableMapping
    from typing import NoReturn

assert sys.platform != "win32", "jobs run on Linux and macOS"

_RANK = ("OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK")
_SIZE = (SIZE, "OMPI_COMM_WORLD_SIZE", "PMI_SIZE")
_LOCAL_RANK = (LOCAL_RANK, "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID")

LOOK_SECONDS = 0.05
"""The interval at which a rank's parent polls the rank and a runtime that is not its ancestor."""

_MISFIT = "the command of distribution.agent does not fit the job"

_FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


def attach_to_mpi(folder: str, environ: MutableMapping[str, str]) -> list[str]:
    """Fork. In the child, set RANK and LOCAL_RANK, and return the arguments of `cloudtrain.runtime.rank`.

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
            rank,
            f"{started_by} started a world of {size} ranks, but the job has {world}: check the mpirun on the PATH",
        )
    if rank != first + local:
        _refuse(
            folder,
            local,
            rank,
            f"{started_by} placed rank {rank} on host {host_rank}, which should run ranks {first} to"
            f" {first + local_size - 1}: remove --map-by and --rank-by from custom_mpi_options",
        )
    runtime = int(environ.pop(RUNTIME, "0"))
    child = _fork()
    if child:
        _stay_for_mpi(folder, local, child, runtime)
    if runtime:
        from cloudtrain.runtime.launchers.world_checks import check_world

        check_world(world)
    cwd, arguments = read_command(folder, local)
    os.chdir(cwd)
    return arguments


def _number(environ: MutableMapping[str, str], names: tuple[str, ...]) -> int:
    """The value of the first variable that is set; -1 if none is."""
    return next((int(environ[name]) for name in names if name in environ), -1)


def attach_to_agent(folder: str, environ: MutableMapping[str, str], added: list[str]) -> list[str]:
    """Fork. In the child, set the variables of the rank, and return the arguments of `cloudtrain.runtime.rank`.

    Exits if the launcher gave this process a different place than the job did.

    Args:
        added: arguments that the launcher has added, such as DeepSpeed's ``--local_rank``. They precede the script's.
    """
    local = int(environ.get("LOCAL_RANK", "0"))
    own = read_variables(folder, local)
    if not own:
        count = read_variables(folder, 0).get("LOCAL_WORLD_SIZE", "1")
        sys.exit(f"{_MISFIT}: it started a process with LOCAL_RANK={local}; ranks on a host: {count}")
    for name in ("RANK", "WORLD_SIZE"):
        if name in own and environ.get(name, own[name]) != own[name]:
            why = f"it set {name}={environ[name]} for the rank whose {name} is {own[name]} in this job"
            _refuse(folder, local, int(own.get("RANK", local)), f"{_MISFIT}: {why}")
    for name, value in own.items():
        environ.setdefault(name, value)
    child = _fork()
    if child:
        _end_as_child(folder, local, child)
    cwd, arguments = read_command(folder)
    os.chdir(cwd)
    script = 2 if arguments[0] in ("-m", "--") else 1
    return [*arguments[:script], *added, *arguments[script:]]


def _refuse(folder: str, local: int, rank: int, why: str) -> NoReturn:
    """Record the reason, and exit."""
    RankRecord(os.getpid(), rank, 1, "SystemExit", why, time=steady.now()).write(folder, local)
    write_code(folder, local, 1)
    sys.exit(f"cloudtrain: {why}")


def _fork() -> int:
    """Continue in a child, which ends with its parent and gets its signals. Returns 0 there, else the child's pid."""
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
    return child


def _report(folder: str, local: int, status: int) -> int:
    """Report the exit code of a child that has ended."""
    code = os.waitstatus_to_exitcode(status)
    with contextlib.suppress(OSError):  # the folder may be removed with the job
        write_code(folder, local, code)
    return code


def _stay_for_mpi(folder: str, local: int, child: int, runtime: int) -> NoReturn:
    """Report the exit code of the rank. After a failure, wait until mpirun ends this process.

    Args:
        runtime: the process id of the runtime if this process does not descend from it, and has to end after it;
            otherwise 0.
    """
    _, status = os.waitpid(child, 0) if not runtime else _wait_beside(child, runtime)
    for number in _FORWARDED:
        signal.signal(number, signal.SIG_DFL)
    if _report(folder, local, status) == 0:
        os._exit(0)
    while not runtime:
        signal.pause()
    while _lives(runtime):
        time.sleep(LOOK_SECONDS)
    os._exit(1)


def _wait_beside(child: int, runtime: int) -> tuple[int, int]:
    """The result of `os.waitpid` for the child. Kills the child if the runtime has ended."""
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


def _end_as_child(folder: str, local: int, child: int) -> NoReturn:
    """Report the exit code of the rank, and end with the same exit code or signal."""
    import threading

    pipe = os.open(pipe_path(folder, local), os.O_WRONLY | os.O_NONBLOCK)
    threading.Thread(target=_end_with_runtime, args=(pipe, child), daemon=True).start()
    _, status = os.waitpid(child, 0)
    code = _report(folder, local, status)
    if code >= 0:
        os._exit(code)
    if -code not in (signal.SIGKILL, signal.SIGSTOP):
        signal.signal(-code, signal.SIG_DFL)
    os.kill(os.getpid(), -code)
    os._exit(128 - code)


def _end_with_runtime(pipe: int, child: int) -> None:
    """Kill the rank when nothing reads its output any longer, because the runtime has ended."""
    import select

    waiter = select.poll()
    waiter.register(pipe, 0)  # errors and hang-ups are always reported
    waiter.poll()
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
