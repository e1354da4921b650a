"""The addresses to which a command connects, and every process that it starts, as strace(1) sees them."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

_CONNECT = re.compile(r'sa_family=AF_INET6?,.*?(?:inet_addr\("|inet_pton\(AF_INET6, ")([^"]+)"')


def traced(calls: Path) -> list[str]:
    """The prefix of a command, by which the connections of all its processes are written to ``calls``.

    strace is its detached grandchild: signals reach the command, and the exit code is its own.
    """
    strace = shutil.which("strace")
    assert strace, "there is no strace: apt-get install strace"
    return [strace, "-D", "-f", "-qq", "--seccomp-bpf", "-e", "trace=connect,sendto", "-o", str(calls)]


def reached(calls: Path) -> set[str]:
    """The IP addresses so far: each is written before its call returns. To look for a name is to ask a server."""
    return set(_CONNECT.findall(calls.read_text()))
