"""Retries of file operations in a folder that may fail temporarily, such as a shared one: one policy.

A network file system may return an error while its server restarts or moves. The error does not show whether a file
exists, and a job whose files cannot be read has not ended.
"""

from __future__ import annotations

import errno
import os
import time
from typing import Callable, TypeVar

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path

T = TypeVar("T")

_NAMES = ("EIO", "ESTALE", "ETIMEDOUT", "EINTR", "EAGAIN", "ENOTCONN", "EHOSTDOWN", "EREMOTEIO")
TRANSIENT = frozenset(getattr(errno, name) for name in _NAMES if hasattr(errno, name))
"""Errors after which the same operation may succeed."""

RETRY_SECONDS = 10.0
"""How long an operation is retried before its error is final. The supervisor of a running job retries without limit."""
_FIRST_PAUSE, _LONGEST_PAUSE = 0.02, 1.0


def is_transient(error: BaseException) -> bool:
    """Whether an error leaves the state of a file unknown."""
    return isinstance(error, OSError) and error.errno in TRANSIENT


def again(operation: Callable[[], T]) -> T:
    """The result of ``operation``, which is retried while it fails with one of `TRANSIENT`. Raises OSError."""
    deadline, pause = time.monotonic() + RETRY_SECONDS, _FIRST_PAUSE
    while True:
        try:
            return operation()
        except OSError as error:
            if error.errno not in TRANSIENT or time.monotonic() + pause > deadline:
                raise
        time.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE)


def exists(path: str | Path) -> bool:
    """Whether there is something at ``path``. Raises OSError if that is unknown."""
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True
