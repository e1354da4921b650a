"""What the ranks' machinery has to say, on stderr: ``logging.getLogger("cloudtrain.distributed")``."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping

from cloudtrain.distributed.errors import InvalidArgument

LOG_LEVEL = "HOROVOD_LOG_LEVEL"
LEVELS = {
    "trace": logging.DEBUG,
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
    "fatal": logging.CRITICAL,
}

logger = logging.getLogger("cloudtrain.distributed")


def set_up(environ: Mapping[str, str] = os.environ) -> None:
    """Say what is at least as urgent as Horovod's `LOG_LEVEL`: warnings, where it is not set.

    Does nothing where the script has given the logger a handler. Raises InvalidArgument.
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
