"""Hides from a Python process what its system lacks, as far as that is possible on Linux.

What the systems have in addition cannot be played: their file systems, consoles and kernels.
"""

from __future__ import annotations

import builtins
import os
import signal
import socket
import sys
import types
from typing import Any

LINUX_ONLY = {
    os: ("memfd_create", "posix_fallocate", "sched_getaffinity", "pidfd_open", "setns", "unshare"),
    socket: ("SO_PEERCRED",),
}
POSIX_ONLY = {
    os: (
        *(
            "O_NOFOLLOW",
            "O_NONBLOCK",
            "O_CLOEXEC",
            "fork",
            "getegid",
            "geteuid",
            "getgid",
            "getpgid",
            "getuid",
        ),
        *(
            "killpg",
            "mkfifo",
            "nice",
            "pread",
            "pwrite",
            "register_at_fork",
            "set_blocking",
            "setsid",
            "statvfs",
        ),
        *("sysconf", "uname", "wait3", "wait4"),
    ),
    socket: ("AF_UNIX", "recv_fds", "send_fds"),
    signal: (
        *(
            "SIGBUS",
            "SIGHUP",
            "SIGKILL",
            "SIGPIPE",
            "SIGQUIT",
            "SIGUSR1",
            "SIGUSR2",
            "SIGXFSZ",
            "alarm",
            "pause",
        ),
        *("pthread_sigmask",),
    ),
}
POSIX_MODULES = ("fcntl", "grp", "pty", "pwd", "readline", "resource", "syslog", "termios", "tty")


def hide_linux() -> None:
    """Hide the parts of Linux that macOS lacks."""
    _hide(LINUX_ONLY)
    _hide_proc()
    proxies = types.ModuleType("_scproxy")  # urllib asks macOS for proxies
    vars(proxies).update(_get_proxies=dict, _get_proxy_settings=dict)
    sys.modules["_scproxy"] = proxies
    sys.platform = "darwin"


def hide_posix() -> None:
    """Hide the parts of Linux that Windows lacks. Packages that adapt to the system must be imported before."""
    _hide(LINUX_ONLY)
    _hide(POSIX_ONLY)
    _hide_proc()
    for name in POSIX_MODULES:
        sys.modules[name] = None  # type: ignore[assignment]
    sys.platform = "win32"


def _hide(names: dict[types.ModuleType, tuple[str, ...]]) -> None:
    for module, hidden in names.items():
        for name in hidden:
            vars(module).pop(name, None)


def _hide_proc() -> None:
    for module, name in ((builtins, "open"), (os, "open"), (os, "stat"), (os, "scandir"), (os, "listdir")):
        setattr(module, name, _without_proc(getattr(module, name)))


def _without_proc(function: Any) -> Any:
    def call(path: Any = ".", *arguments: Any, **options: Any) -> Any:
        if isinstance(path, (str, os.PathLike)) and os.fspath(path).startswith("/proc"):
            raise FileNotFoundError(2, "No such file or directory", os.fspath(path))
        return function(path, *arguments, **options)

    return call
