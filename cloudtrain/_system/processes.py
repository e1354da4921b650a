"""Processes: forks, groups, and the abilities of the system to run jobs."""

from __future__ import annotations

import errno
import os
import sys
from functools import cache

from cloudtrain._system.signals import block, unblock

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

RUNS_JOBS = sys.platform != "win32"
"""Whether jobs and servers can run on this machine, rather than only be submitted from it."""

USE_WSL = "Run cloudtrain in WSL, Windows's own Linux: https://learn.microsoft.com/windows/wsl/install"
"""The advice where `RUNS_JOBS` is false."""

FORKS_SAFELY = sys.platform == "linux" and hasattr(os, "fork")
"""Whether a process that has used the network can fork safely. On macOS, system libraries end such a child."""

SSH_SHARES_CONNECTIONS = sys.platform != "win32"
"""Whether several calls of the system's ``ssh`` can share one connection (its ControlMaster)."""

HAS_MOUNT_NAMESPACES = sys.platform == "linux"
"""Whether a process can have its own mounts, if the kernel permits it."""


def stat_fields(process: int) -> list[str]:
    """The fields of ``/proc/PID/stat`` after the name, such as the state (proc(5)).

    Raises FileNotFoundError or ProcessLookupError without this process or without ``/proc``, and other OSErrors.
    """
    with open(f"/proc/{process}/stat", "rb") as file:
        return file.read().rpartition(b")")[2].decode().split()


@cache
def boot_id() -> str:
    """An id that differs after each boot of this machine; empty without ``/proc``."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            return file.read().strip()
    except OSError:
        return ""


if sys.platform == "win32":

    def after_fork_in_child(function: Callable[[], object]) -> None:
        """Does nothing: Windows has no forks."""

    def fork(held: Iterable[int] = ()) -> int:
        """Windows has no forks. Raises OSError."""
        raise OSError(errno.ENOSYS, "this system cannot fork")

    def identity(process: int) -> str:
        """Windows runs no jobs."""
        return ""

    def exit_code(child: int) -> int | None:
        """Windows has no forks. Raises ChildProcessError."""
        raise ChildProcessError(child)

    def signal_group(group: int, number: int) -> None:
        """Windows has no process groups. Raises ProcessLookupError."""
        raise ProcessLookupError(group)

else:

    def after_fork_in_child(function: Callable[[], object]) -> None:
        """Call ``function`` in every child that this process forks."""
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=function)

    def fork(held: Iterable[int] = ()) -> int:
        """See `os.fork`.

        Args:
            held: signals that stay blocked in the child until it has set its handlers and unblocks them.
        """
        block(held)
        pid = -1
        try:
            pid = os.fork()
        finally:
            if pid:
                unblock(held)
        return pid

    def identity(process: int) -> str:
        """Differs from that of a later process with the same id; empty if it has ended, or without ``/proc``.

        It consists of the boot id of the machine and the start time of the process since then.
        """
        try:
            boot, fields = boot_id(), stat_fields(process)
            return "" if not boot or fields[0] in ("Z", "X") else f"{boot} {int(fields[19])}"
        except (OSError, IndexError, ValueError):
            return ""

    def exit_code(child: int) -> int | None:
        """The exit code of a forked child, negative for a signal; None while it runs. Call it once after its end."""
        pid, status = os.waitpid(child, os.WNOHANG)
        return os.waitstatus_to_exitcode(status) if pid else None

    def signal_group(group: int, number: int) -> None:
        """Send a signal to every process of a group. Raises ProcessLookupError, or PermissionError."""
        os.killpg(group, number)
