"""How long ranks wait for each other."""

from __future__ import annotations

import os
from collections.abc import Mapping

from cloudtrain.distributed.errors import InvalidArgument
from cloudtrain.distributed.options import flag

START_TIMEOUT = "CLOUDTRAIN_START_TIMEOUT"
COLLECTIVE_TIMEOUT = "CLOUDTRAIN_COLLECTIVE_TIMEOUT"
STALL_WARNING = "CLOUDTRAIN_STALL_WARNING"
HOROVOD_STALL_WARNING = "HOROVOD_STALL_CHECK_TIME_SECONDS"
HOROVOD_STALL_SHUTDOWN = "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS"
HOROVOD_STALL_DISABLE = "HOROVOD_STALL_CHECK_DISABLE"


def start_timeout(environ: Mapping[str, str] = os.environ) -> float:
    """Seconds that ``init`` waits for the other ranks; 300 if not set."""
    return _seconds(environ, START_TIMEOUT, 300.0)


def collective_timeout(environ: Mapping[str, str] = os.environ) -> float:
    """Seconds that one collective may take; 1800 if not set, as in ``torch.distributed``.

    Horovod's `HOROVOD_STALL_SHUTDOWN` sets it too, unless it is 0, or stalls are not looked for.
    """
    shutdown = environ.get(HOROVOD_STALL_SHUTDOWN, "0")
    if COLLECTIVE_TIMEOUT in environ or shutdown == "0" or flag(environ, HOROVOD_STALL_DISABLE):
        return _seconds(environ, COLLECTIVE_TIMEOUT, 1800.0)
    return _seconds(environ, HOROVOD_STALL_SHUTDOWN, 1800.0)


def warn_after(environ: Mapping[str, str] = os.environ) -> float:
    """Seconds after which a line tells of a collective that waits for ranks; 60 if not set, as in Horovod.

    Infinite where stalls are not looked for.
    """
    if STALL_WARNING in environ:
        return _seconds(environ, STALL_WARNING, 60.0)
    if flag(environ, HOROVOD_STALL_DISABLE):
        return float("inf")
    return _seconds(environ, HOROVOD_STALL_WARNING, 60.0)


def _seconds(environ: Mapping[str, str], variable: str, default: float) -> float:
    text = environ.get(variable)
    if text is None:
        return default
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise InvalidArgument(f"{variable}={text!r} is not a number of seconds")
    return seconds
