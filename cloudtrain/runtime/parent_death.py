"""Ties the life of a process to that of its parent, by Linux's parent-death signal.

    python .../cloudtrain/runtime/parent_death.py COMMAND...

executes a command that is killed when the process that started it ends.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn


def die_with_parent(number: int = 9) -> None:
    """Have the kernel send this process a signal, SIGKILL by default, when its parent ends. Does nothing elsewhere."""
    if not sys.platform.startswith("linux"):
        return
    import ctypes

    parent = os.getppid()
    ctypes.CDLL(None).prctl(1, number)  # PR_SET_PDEATHSIG, prctl(2)
    if os.getppid() != parent:
        os.kill(os.getpid(), number)


def execute(command: list[str]) -> NoReturn:
    """Replace this process with ``command``. Raises OSError if it cannot be executed."""
    import signal

    # Python ignores these two, and an executed program inherits that
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    os.execvp(command[0], command)


if __name__ == "__main__":
    die_with_parent()
    execute(sys.argv[1:])
