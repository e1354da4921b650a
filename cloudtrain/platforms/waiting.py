"""Waits for a job: tolerates a platform that does not respond for a while, and prints the states that it reports."""

from __future__ import annotations

import contextlib
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import TypeVar

from cloudtrain._dataclass import dataclass
from cloudtrain.contract.text import escape_line
from cloudtrain.errors import CloudtrainError, JobNotFound, PlatformError, TrainingFailed
from cloudtrain.platforms.base import JobState, Platform, States

T = TypeVar("T")

POLL_SECONDS = 2.0
LONGEST_POLL_SECONDS = 10.0


@dataclass(frozen=True)
class Patience:
    """How long transient errors of a platform are tolerated, in seconds."""

    longest: float = 900.0
    """From the first error to the last request."""
    first_pause: float = 1.0
    longest_pause: float = 30.0


def patiently(request: Callable[[], T], patience: Patience | None = None) -> T:
    """The response to ``request``, which is repeated while it is throttled or the network is down.

    Raises:
        PlatformError: the error is not transient, or lasts too long.
    """
    patience = patience or Patience()
    began, pause, is_known = time.monotonic(), patience.first_pause, False
    while True:
        try:
            return request()
        except PlatformError as error:
            if not error.is_transient or time.monotonic() - began > patience.longest:
                raise
            if pause > patience.first_pause and not is_known:  # the second error
                warnings.warn(
                    f"{error.message}: the job is not affected, and is watched again later", stacklevel=2
                )
                is_known = True
        time.sleep(pause)
        pause = min(2 * pause, patience.longest_pause)


@contextlib.contextmanager
def waiting_for(job_name: str) -> Iterator[None]:
    """Adds a hint to an error that ends the wait for a job: the job continues, and how to attach to it again."""
    try:
        yield
    except (JobNotFound, TrainingFailed):
        raise
    except CloudtrainError as error:
        attach = f"This does not affect the job. Attach to it again: cloudtrain wait {job_name}"
        if attach not in error.hint:
            error.hint = f"{error.hint.removesuffix('.')}. {attach}" if error.hint else attach
        raise


@contextlib.contextmanager
def print_states(
    platform: Platform, job_name: str, show: Callable[[str], object], poll: float = POLL_SECONDS
) -> Iterator[None]:
    """Call ``show`` with a line for each new state of the job, from a thread, until the body ends.

    Does nothing if the platform does not report states.

    Args:
        poll: seconds between the first two polls; the pause grows while there is no new state.
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
