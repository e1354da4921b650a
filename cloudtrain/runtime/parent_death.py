"""Ties the life of a process to that of its parent: by Linux's parent-death signal; elsewhere, by polling.

    python .../cloudtrain/runtime/parent_death.py COMMAND...

executes a command that is killed when the process that started it ends.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn

RUNTIME_PID = "CLOUDTRAIN_RUNTIME_PID"
"""The process ID of the runtime, for the processes that it starts and for their descendants."""

POLL_SECONDS = 0.5
"""Seconds between two looks for the parent on a system without the parent-death signal."""

_commands: list[Any] = []
"""The commands that `execute` runs in other processes."""


def _prctl() -> Any:
    """prctl(2) of Linux; None on other systems."""
    if sys.platform == "linux":
        import ctypes

        return ctypes.CDLL(None).prctl
    else:  # noqa: RET505
        return None


def die_with_parent(number: int = 9, parent: int = 0) -> None:
    """Have this process receive a signal, by default SIGKILL, when its parent ends, or now if it has already ended.

    Args:
        parent: the process that started this one. If it is 0, a parent that ends before this call is not noticed.
    """
    parent = parent or os.getppid()
    prctl = _prctl()
    if prctl is None:
        import threading

        threading.Thread(target=_watch_parent, args=(parent, number), daemon=True).start()
        return
    prctl(1, number)  # PR_SET_PDEATHSIG
    if os.getppid() != parent:
        os.kill(os.getpid(), number)


def die_with_runtime() -> None:
    """End when the parent ends, or now if the runtime, an ancestor of this process, has already ended.

    There may be other processes between this one and the runtime: mpirun and its daemons, the agent of torchrun. Each
    of them calls this too, so that all of them end with the runtime.
    """
    die_with_parent()
    runtime = os.environ.get(RUNTIME_PID)
    if runtime and not _descends_from(int(runtime)):
        os.kill(os.getpid(), 9)


def be_traceable() -> None:
    """Let the runtime's debuggers read the stacks of this process, and of those that it forks.

    Linux's Yama (``kernel.yama.ptrace_scope=1``) permits that to ancestors only: see PR_SET_PTRACER in prctl(2).
    """
    prctl, runtime = _prctl(), os.environ.get(RUNTIME_PID)
    if prctl is None or not runtime:
        return

    def allow() -> None:
        prctl(0x59616D61, int(runtime), 0, 0, 0)  # fails without Yama

    allow()
    os.register_at_fork(after_in_child=allow)


def _descends_from(ancestor: int) -> bool:
    """Whether ``ancestor`` is the parent of this process, or the parent's parent, and so on."""
    process = os.getppid()
    while process != ancestor:
        if process <= 1:
            return False
        try:
            with open(f"/proc/{process}/stat", "rb") as file:
                process = int(file.read().rpartition(b")")[2].split()[1])
        except OSError:
            # the parent has just ended, or this system has no /proc
            return not os.path.exists("/proc/self/stat")
    return True


def _watch_parent(parent: int, number: int) -> None:
    import time

    while os.getppid() == parent:
        time.sleep(POLL_SECONDS)
    for process in _commands:
        process.kill()
    os.kill(os.getpid(), number)


def execute(command: list[str]) -> NoReturn:
    """Replace this process with ``command``, which ends with this process's parent. Raises OSError if it cannot start.

    On a system without the parent-death signal, a new program would not watch the parent, so this process remains as
    the command's parent.
    """
    import signal

    if _prctl() is None:
        _run(command)
    # Python ignores these two signals, and an executed program would inherit that
    for name in ("SIGPIPE", "SIGXFSZ"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_DFL)
    os.execvp(command[0], command)


def _run(command: list[str]) -> NoReturn:
    """Run ``command``, forward signals to it, and end with its exit code or signal."""
    import signal
    import subprocess

    process = subprocess.Popen(command)
    _commands.append(process)

    def forward(number: int, _frame: object) -> None:
        process.send_signal(number)

    for name in ("SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), forward)
    code = process.wait()
    if code < 0:
        if -code != 9:  # SIGKILL has no handler
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


if __name__ == "__main__":
    die_with_runtime()
    execute(sys.argv[1:])
