"""The time for which a rank waits for its data, which the runtime reports as a share of each sample of the host.

The iterators of torch's ``DataLoader`` are measured automatically, after `watch_loaders`. Only the main thread counts:
data that another thread fetches in advance delays no step.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import sys
import threading
import time
from collections.abc import Iterator
from types import ModuleType
from typing import Any

from cloudtrain._system.processes import after_fork_in_child
from cloudtrain.observe.heartbeat import note_data

INTERVAL = 1.0
"""Seconds between two reports. A thread writes them, so that the training thread only reads the clock."""

_state = (0.0, 0.0)
"""The seconds of finished waits, and the start of the current wait on the clock of `time.monotonic`, or 0."""
_first = 0.0
"""The start of the first wait; 0 before it."""
_is_fork = False
"""Whether this is a process that the rank has forked."""


@contextlib.contextmanager
def loading_data() -> Iterator[None]:
    """Measure how long the body waits for the next training data, in a rank of a job. Not needed for `DataLoader`.

    ::

        with loading_data():
            batch = next(batches)
    """
    counts = _begin()
    try:
        yield
    finally:
        if counts:
            _end()


def watch_loaders(module: ModuleType) -> None:
    """Count the time in the iterators of ``DataLoader``. ``module`` is ``torch.utils.data.dataloader``."""
    iterator: Any = getattr(module, "_BaseDataLoaderIter", None)
    following = getattr(iterator, "__next__", None)
    if following is None:
        return

    @functools.wraps(following)
    def next_batch(self: Any) -> Any:
        counts = _begin()
        try:
            return following(self)
        finally:
            if counts:
                _end()

    iterator.__next__ = next_batch


def _begin() -> bool:
    """Begin a wait. Returns whether it counts."""
    global _state
    seconds, since = _state
    if since or _is_child() or threading.current_thread() is not threading.main_thread():
        return False
    _state = seconds, time.monotonic()
    if not _first:
        _start_reports()
    return True


def _end() -> None:
    global _state
    seconds, since = _state
    _state = seconds + time.monotonic() - since, 0.0


def _start_reports() -> None:
    global _first
    _first = _state[1]
    atexit.register(_report)
    with contextlib.suppress(RuntimeError):  # there are too many threads
        threading.Thread(target=_keep_reporting, name="cloudtrain-data-wait", daemon=True).start()


def _keep_reporting() -> None:
    while True:
        time.sleep(
            INTERVAL
        )  # the first report too would otherwise cover only the beginning of the first wait
        _report()


def _report() -> None:
    if _first and not _is_child():
        (seconds, since), now = _state, time.monotonic()
        note_data(seconds + (now - since if since else 0.0), _first, now)


def _is_child() -> bool:
    """Whether this is a child process of the rank, such as a worker of a loader, however it was started."""
    processes = sys.modules.get("multiprocessing.process")
    return _is_fork or (processes is not None and processes.parent_process() is not None)


def _in_fork() -> None:
    global _is_fork
    _is_fork = True


after_fork_in_child(_in_fork)
