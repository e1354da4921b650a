"""What a job is waiting for, told to who waits for it."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from datetime import datetime

from cloudtrain.errors import PlatformError
from cloudtrain.platforms.base import JobState, Platform, States

POLL_SECONDS = 2.0
LONGEST_POLL_SECONDS = 10.0


@contextlib.contextmanager
def telling(
    platform: Platform, job_name: str, tell: Callable[[str], object], poll: float = POLL_SECONDS
) -> Iterator[None]:
    """Call ``tell`` with a line for each new state of the job, from a thread, as long as the body lasts.

    Does nothing where the platform does not know such states.

    Args:
        poll: seconds between two looks at first; they grow while nothing happens.
    """
    if not isinstance(platform, States):
        yield
        return
    over = threading.Event()
    thread = threading.Thread(
        target=_tell_all, args=(platform, job_name, tell, over, poll), name="states", daemon=True
    )
    thread.start()
    try:
        yield
    except BaseException:
        over.set()
        raise
    over.set()
    thread.join()  # the last state is told too


def _tell_all(
    platform: States, job_name: str, tell: Callable[[str], object], over: threading.Event, poll: float
) -> None:
    told: set[JobState] = set()
    pause, is_last = poll, False
    while True:
        try:
            states = platform.states(job_name)
        except PlatformError:
            return  # who waits for the job meets it too
        new = [state for state in states if state not in told]
        for state in new:
            tell(state_line(state))
        told.update(new)
        if is_last:
            return
        pause = poll if new else min(1.5 * pause, LONGEST_POLL_SECONDS)
        is_last = over.wait(pause)


def state_line(state: JobState) -> str:
    """``12:05:09 Starting: Preparing the instances for training``, in local time."""
    at = f"{datetime.fromtimestamp(state.time):%H:%M:%S}"
    return f"{at} {state.name}" + (f": {state.message}" if state.message else "")
