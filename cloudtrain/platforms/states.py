"""Prints the states of a job while the caller waits for it."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from datetime import datetime

from cloudtrain.contract.text import escape_line
from cloudtrain.errors import PlatformError
from cloudtrain.platforms.base import JobState, Platform, States

POLL_SECONDS = 2.0
LONGEST_POLL_SECONDS = 10.0


@contextlib.contextmanager
def print_states(
    platform: Platform, job_name: str, show: Callable[[str], object], poll: float = POLL_SECONDS
) -> Iterator[None]:
    """Call ``show`` with a line for each new state of the job, from a thread, until the body ends.

    Does nothing if the platform does not report states.

    Args:
        poll: seconds between the first two polls; the pause grows while nothing happens.
    """
    if not isinstance(platform, States):
        yield
        return
    over = threading.Event()
    thread = threading.Thread(
        target=_show_all, args=(platform, job_name, show, over, poll), name="states", daemon=True
    )
    thread.start()
    try:
        yield
    except BaseException:
        over.set()
        raise
    over.set()
    thread.join()  # shows the last state


def _show_all(
    platform: States, job_name: str, show: Callable[[str], object], over: threading.Event, poll: float
) -> None:
    shown: set[JobState] = set()
    pause, is_last = poll, False
    while True:
        try:
            states = platform.states(job_name)
        except PlatformError as error:
            if not error.is_transient:
                return  # the caller that waits for the job gets the same error
            states = []
        new = [state for state in states if state not in shown]
        for state in new:
            show(state_line(state))
        shown.update(new)
        if is_last:
            return
        pause = poll if new else min(1.5 * pause, LONGEST_POLL_SECONDS)
        is_last = over.wait(pause)


def state_line(state: JobState) -> str:
    """``12:05:09 Starting: Preparing the instances for training``, in local time."""
    at = f"{datetime.fromtimestamp(state.time):%H:%M:%S}"
    return escape_line(f"{at} {state.name}" + (f": {state.message}" if state.message else ""))
