"""Environment variables that configure collectives: Horovod's where they apply here, and CLOUDTRAIN_*.

Horovod's are listed in https://github.com/horovod/horovod/blob/v0.28.1/horovod/common/common.h and explained in its
``docs/tensor-fusion.rst``.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping

from cloudtrain.contract.processors import cpu_count
from cloudtrain.distributed.errors import InvalidArgument

FUSION_THRESHOLD = "HOROVOD_FUSION_THRESHOLD"
CYCLE_TIME = "HOROVOD_CYCLE_TIME"
AUTOTUNE = "HOROVOD_AUTOTUNE"
AUTOTUNE_LOG = "HOROVOD_AUTOTUNE_LOG"
START_TIMEOUT = "CLOUDTRAIN_START_TIMEOUT"
COLLECTIVE_TIMEOUT = "CLOUDTRAIN_COLLECTIVE_TIMEOUT"
STALL_WARNING = "CLOUDTRAIN_STALL_WARNING"
HOROVOD_STALL_WARNING = "HOROVOD_STALL_CHECK_TIME_SECONDS"
HOROVOD_STALL_SHUTDOWN = "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS"
HOROVOD_STALL_DISABLE = "HOROVOD_STALL_CHECK_DISABLE"
LOG_LEVEL = "HOROVOD_LOG_LEVEL"

BUCKET_BYTES = 25 << 20
"""The default of DistributedDataParallel."""
COLLECTIVE_SECONDS = 1800.0
NCCL_SECONDS = 600.0
CYCLE_SECONDS = 0.001
"""Horovod's default."""
LEVELS = {
    "trace": logging.DEBUG,
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
    "fatal": logging.CRITICAL,
}

SPIN_SECONDS = 0.0001
"""Seconds for which a rank polls for input before it sleeps: going to sleep and waking up takes about as long."""

logger = logging.getLogger("cloudtrain.distributed")


def fusion_threshold(environ: Mapping[str, str] = os.environ) -> int:
    """Bytes of gradients that are reduced together; 0 reduces each gradient separately. Raises InvalidArgument."""
    return int(_number(environ, FUSION_THRESHOLD, BUCKET_BYTES))


def cycle_seconds(environ: Mapping[str, str] = os.environ) -> float:
    """Seconds before any operation counts as done. `CYCLE_TIME` is in milliseconds. Raises InvalidArgument."""
    return _number(environ, CYCLE_TIME, CYCLE_SECONDS * 1000) / 1000


def autotunes(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether to tune the bucket size. As in Horovod, a size that is set is kept."""
    return flag(environ, AUTOTUNE) and FUSION_THRESHOLD not in environ


def flag(environ: Mapping[str, str], variable: str) -> bool:
    """Whether the variable is set, not empty and not 0. Raises InvalidArgument if it is not a number."""
    return _number(environ, variable, 0) > 0


def _number(environ: Mapping[str, str], variable: str, default: float) -> float:
    text = environ.get(variable) or str(default)
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 <= number < float("inf"):
        raise InvalidArgument(f"{variable}={text!r} is not a number of at least 0")
    return number


def start_timeout(environ: Mapping[str, str] = os.environ) -> float:
    """Seconds that ``init`` waits for the other ranks; 300 if not set."""
    return _seconds(environ, START_TIMEOUT, 300.0)


def default_timeout(backend: str) -> float:
    """Seconds that a collective may take if nothing is set, as in ``torch.distributed``: less for a GPU's kernels."""
    return NCCL_SECONDS if "nccl" in backend else COLLECTIVE_SECONDS


def collective_timeout(
    environ: Mapping[str, str] = os.environ, *, default: float = COLLECTIVE_SECONDS
) -> float:
    """Seconds that one collective may take; ``default`` if not set.

    Horovod's `HOROVOD_STALL_SHUTDOWN` sets it too, unless it is 0 or the stall check is disabled.
    """
    shutdown = environ.get(HOROVOD_STALL_SHUTDOWN, "0")
    if COLLECTIVE_TIMEOUT in environ or shutdown == "0" or flag(environ, HOROVOD_STALL_DISABLE):
        return _seconds(environ, COLLECTIVE_TIMEOUT, default)
    return _seconds(environ, HOROVOD_STALL_SHUTDOWN, default)


def spin_seconds(ranks_on_host: int) -> float:
    """Seconds to poll for input before sleeping; 0 if the ranks of this host would take processors from each other."""
    return SPIN_SECONDS if ranks_on_host <= cpu_count() else 0.0


def warn_after(environ: Mapping[str, str] = os.environ) -> float:
    """Seconds after which a waiting collective is logged; 60 if not set, as in Horovod.

    Infinite if the stall check is disabled.
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


def set_up_logging(environ: Mapping[str, str] = os.environ) -> None:
    """Log to stderr at Horovod's `LOG_LEVEL` and above; "warning" if it is not set.

    Does nothing if the script has added a handler to the logger. Raises InvalidArgument.
    """
    level = environ.get(LOG_LEVEL) or "warning"
    if level.lower() not in LEVELS:
        raise InvalidArgument(f"{LOG_LEVEL}={level!r} is not known", hint=f"Known: {', '.join(LEVELS)}.")
    if not logger.handlers:
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("[cloudtrain] %(message)s"))
        logger.addHandler(handler)
        logger.propagate = False
        logger.setLevel(LEVELS[level.lower()])
