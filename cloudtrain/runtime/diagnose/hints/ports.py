"""Ports that another process listens on."""

from __future__ import annotations

from cloudtrain.runtime.diagnose.hints.table import Hint

_FREE_PORT = (
    "Do not fix the number in the script: several ranks and jobs share a host. In a job with a distribution, PyTorch "
    "finds a free one in MASTER_PORT (init_method='env://'). For a server of your own, use port 0."
)

HINTS = (
    Hint(
        "DistNetworkError: The server socket has failed to listen on any local network address. port: 29500, ...",
        r"The server socket has failed to listen on any local network address\. port: (?P<port>\d+)"
        r".*(?:EADDRINUSE|address already in use)",
        f"Another process listens on port {{port}} of this host. {_FREE_PORT}",
    ),
    Hint(
        "OSError: [Errno 98] Address already in use",
        r"^OSError: \[Errno \d+\] Address already in use",
        f"Another process listens on the same port of this host. {_FREE_PORT}",
    ),
)
