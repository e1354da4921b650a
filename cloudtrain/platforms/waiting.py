"""Waits for a job whose platform does not respond for a while."""

from __future__ import annotations

import contextlib
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from cloudtrain.errors import CloudtrainError, JobNotFound, PlatformError, TrainingFailed

T = TypeVar("T")


@dataclass(frozen=True)
class Patience:
    """How long transient errors of a platform are borne, in seconds."""

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
            if pause > patience.first_pause and not is_known:  # for the second time
                warnings.warn(
                    f"{error.message}: the job is not affected, and is watched again later", stacklevel=2
                )
                is_known = True
        time.sleep(pause)
        pause = min(2 * pause, patience.longest_pause)


@contextlib.contextmanager
def waiting_for(job_name: str) -> Iterator[None]:
    """Adds to an error that ends the wait for a job that the job itself continues, and how to attach to it."""
    try:
        yield
    except (JobNotFound, TrainingFailed):
        raise
    except CloudtrainError as error:
        attach = f"This does not affect the job. Attach to it again: cloudtrain wait {job_name}"
        if attach not in error.hint:
            error.hint = f"{error.hint.removesuffix('.')}. {attach}" if error.hint else attach
        raise
