"""Ends the wait for an upload that makes no progress, because a file system that hangs raises no error."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Callable

if TYPE_CHECKING:
    from cloudtrain.storage import Progress

UPLOAD_SECONDS = 3600.0
"""The time for which to retry the upload of a completed job's outputs while the storage does not respond."""


def run_within(seconds: float, action: Callable[[Progress], object]) -> bool:
    """Run ``action`` in a daemon thread, and return whether it has ended.

    Args:
        seconds: the time to wait since the last call of the function that ``action`` gets.

    Raises:
        RuntimeError: there are too many threads.
        Exception: the exception that ``action`` raised.
    """
    moved_at, errors = time.monotonic(), list[BaseException]()

    def moved(count: int) -> None:
        nonlocal moved_at
        moved_at = time.monotonic()

    def run() -> None:
        try:
            action(moved)
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run, name="last-uploads", daemon=True)
    thread.start()
    while thread.is_alive() and (left := moved_at + seconds - time.monotonic()) > 0:
        thread.join(left)
    if errors:
        raise errors[0]
    return not thread.is_alive()
