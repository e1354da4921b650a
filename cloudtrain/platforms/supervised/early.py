"""Starts supervisors that wait for their job. Does not import `idle`, because a command does this first of all."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Mapping

_RUN_MODULE = (
    "import sys; del sys.path[0]; from cloudtrain._lazy import start_program; start_program();"
    " import runpy; runpy.run_module(sys.argv[1], run_name='__main__')"
)
"""Like ``python -m``, but without the working folder on the path, where any file could shadow a module."""

LOCAL_SUPERVISOR = "cloudtrain.platforms.local.supervisor"
"""The module of a supervisor whose hosts are processes of this machine."""
CONTAINER_SUPERVISOR = "cloudtrain.platforms.container.supervisor"
"""The module of a supervisor whose hosts are containers."""

Started = tuple[socket.socket, "subprocess.Popen[bytes]"]
"""The client's end of the socket, and the process."""

_early: dict[str, Started | None] = {}
"""The processes that no platform has taken yet, by their module."""


def start_process(
    module: str, environ: Mapping[str, str], errors: int = subprocess.DEVNULL
) -> Started | None:
    """Start ``module`` as a program whose standard input is a socket. None if that fails.

    Args:
        errors: the descriptor for its error output if it does not start.
    """
    client, supervisor = socket.socketpair()
    with supervisor:
        try:
            process = subprocess.Popen(
                [sys.executable, "-c", _RUN_MODULE, module],
                env=environ,
                cwd="/",
                stdin=supervisor.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=errors,
                start_new_session=True,
            )
        except OSError:
            client.close()
            return None
    return client, process


def start_early(module: str) -> None:
    """Start the supervisor that this process will probably need. Not for use in a job: it inherits the environment."""
    _early[module] = start_process(module, os.environ)


def started_early(module: str) -> Started | None:
    """Take the process that `start_early` started; None if there is none."""
    return _early.pop(module, None)
