"""Horovod's variables that tune its engine, where they have a meaning here.

https://github.com/horovod/horovod/blob/v0.28.1/horovod/common/common.h and ``docs/tensor-fusion.rst`` beside it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from cloudtrain.distributed.errors import InvalidArgument

FUSION_THRESHOLD = "HOROVOD_FUSION_THRESHOLD"
CYCLE_TIME = "HOROVOD_CYCLE_TIME"
AUTOTUNE = "HOROVOD_AUTOTUNE"
AUTOTUNE_LOG = "HOROVOD_AUTOTUNE_LOG"

BUCKET_BYTES = 25 << 20
"""As in DistributedDataParallel."""
CYCLE_SECONDS = 0.001
"""Horovod's."""


def fusion_threshold(environ: Mapping[str, str] = os.environ) -> int:
    """Bytes of gradients that travel together; 0: each one by itself. Raises InvalidArgument."""
    return int(_number(environ, FUSION_THRESHOLD, BUCKET_BYTES))


def cycle_seconds(environ: Mapping[str, str] = os.environ) -> float:
    """For how long no operation counts as done. `CYCLE_TIME` is in milliseconds. Raises InvalidArgument."""
    return _number(environ, CYCLE_TIME, CYCLE_SECONDS * 1000) / 1000


def autotunes(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether the size of buckets is to be found out. One that is set is kept, as in Horovod."""
    return flag(environ, AUTOTUNE) and FUSION_THRESHOLD not in environ


def flag(environ: Mapping[str, str], variable: str) -> bool:
    """Set to something that is neither empty nor 0. Raises InvalidArgument for what is no number."""
    return _number(environ, variable, 0) > 0


def _number(environ: Mapping[str, str], variable: str, default: float) -> float:
    text = environ.get(variable) or str(default)
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 <= number < float("inf"):
        raise InvalidArgument(f"{variable}={text!r} is not a number that is not negative")
    return number
