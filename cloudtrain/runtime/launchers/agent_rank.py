"""A rank that another project's launcher started: finds its position, and has a parent that reports its exit code.

The parent also ends the rank if the runtime ends: the launcher may put other processes between them.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import threading

from cloudtrain.observe import steady
from cloudtrain.runtime.run_folder import RankRecord, pipe_path, read_command, read_variables, write_code

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import MutableMapping

assert sys.platform != "win32", "jobs run on Linux and macOS"

_MISFIT = "the command of distribution.agent does not fit the job"

_FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


def attach(folder: str, environ: MutableMapping[str, str], added: list[str]) -> list[str]:
    """Fork, and return the arguments of `cloudtrain.runtime.rank` in the child, with the variables of the rank set.

    Exits if the launcher gave this process another place than the job did.

    Args:
        added: arguments that the launcher has added, such as DeepSpeed's ``--local_rank``. They come first.
    """
    local = int(environ.get("LOCAL_RANK", "0"))
    own = read_variables(folder, local)
    if not own:
        count = read_variables(folder, 0).get("LOCAL_WORLD_SIZE", "1")
        sys.exit(f"{_MISFIT}: it started a process with LOCAL_RANK={local}; ranks on a host: {count}")
    for name in ("RANK", "WORLD_SIZE"):
        if name in own and environ.get(name, own[name]) != own[name]:
            _refuse(
                folder,
                local,
                f"it set {name}={environ[name]} for the rank whose {name} is {own[name]} in this job",
            )
    for name, value in own.items():
        environ.setdefault(name, value)
    _fork(folder, local)
    cwd, arguments = read_command(folder)
    os.chdir(cwd)
    script = 2 if arguments[0] in ("-m", "--") else 1
    return [*arguments[:script], *added, *arguments[script:]]


def _refuse(folder: str, local: int, why: str) -> None:
    """Exit, and record the reason."""
    why = f"{_MISFIT}: {why}"
    rank = int(read_variables(folder, local).get("RANK", local))
    RankRecord(os.getpid(), rank, 1, "SystemExit", why, time=steady.now()).write(folder, local)
    write_code(folder, local, 1)
    sys.exit(f"cloudtrain: {why}")


def _fork(folder: str, local: int) -> None:
    """Continue in a child; the parent reports how it ends, ends likewise, and never returns."""
    child = 0

    def forward(number: int, _frame: object) -> None:
        if child:
            os.kill(child, number)

    handlers = {number: signal.signal(number, forward) for number in _FORWARDED}
    parent = os.getpid()
    pipe = os.open(pipe_path(folder, local), os.O_WRONLY | os.O_NONBLOCK)
    child = os.fork()
    if child == 0:
        os.close(pipe)
        for number, handler in handlers.items():
            signal.signal(number, handler)
        from cloudtrain.runtime.parent_death import die_with_parent

        die_with_parent(parent=parent)
        os.setpgid(0, 0)  # processes that the rank starts are signalled and killed with it
        return
    threading.Thread(target=_end_with_runtime, args=(pipe, child), daemon=True).start()
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    with contextlib.suppress(OSError):  # the folder may be removed with the job
        write_code(folder, local, code)
    if code >= 0:
        os._exit(code)
    if -code not in (signal.SIGKILL, signal.SIGSTOP):
        signal.signal(-code, signal.SIG_DFL)
    os.kill(parent, -code)
    os._exit(128 - code)


def _end_with_runtime(pipe: int, child: int) -> None:
    """Kill the rank once nothing reads its output: the runtime is gone."""
    waiter = select.poll()
    waiter.register(pipe, 0)  # errors and hang-ups are always reported
    waiter.poll()
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
