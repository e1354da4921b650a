"""What can go wrong, as one tree.

    CloudtrainError
    ├── InvalidJob          the description of the job is wrong
    ├── InvalidSource       the source directory cannot be packed
    ├── StorageError        bytes at a URI could not be read or written
    │   ├── NotFound
    │   ├── AccessDenied
    │   └── Unreachable
    ├── PlatformError       the place where jobs run refused or failed
    │   ├── UnknownPlatform
    │   ├── JobNotFound
    │   └── JobExists
    ├── CheckpointError     no such checkpoint, or one that is damaged
    ├── CollectiveError     a collective failed (in cloudtrain.distributed, with three more of its own)
    └── TrainingFailed      the job ran and failed; carries its FailureReport

Every error says what is wrong and where, in one line, and in ``hint`` what to do about it.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cloudtrain.contract.failure import FailureReport


class CloudtrainError(Exception):
    """Base of all errors that cloudtrain raises on purpose."""

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}\n  {self.hint}" if self.hint else self.message


class InvalidJob(CloudtrainError, ValueError):
    """The description of the job is wrong: an argument, a field of the YAML, a value."""


class InvalidSource(CloudtrainError):
    """The source directory cannot be packed: no entry point, a secret in it, unreadable."""


class StorageError(CloudtrainError, OSError):
    """Bytes at a URI could not be read or written."""


class NotFound(StorageError):
    """There is no such bucket, prefix, object or file."""


class AccessDenied(StorageError):
    """The credentials do not allow this operation."""


class Unreachable(StorageError):
    """The server does not answer, or went away in the middle."""


class PlatformError(CloudtrainError):
    """The place where jobs run refused the request or failed."""


class UnknownPlatform(PlatformError):
    """No platform has this name, or it could not be loaded."""


class JobNotFound(PlatformError):
    """The platform does not know this job."""


class JobExists(PlatformError):
    """A job of this name exists already."""


class CheckpointError(CloudtrainError):
    """There is no such checkpoint, or it is damaged, or it does not fit the state."""


class TrainingFailed(CloudtrainError):
    """The job ran and ended badly. ``failure`` says which rank died first, and why."""

    def __init__(self, job_name: str, failure: FailureReport) -> None:
        super().__init__(f"job {job_name} failed: {failure.summary()}", hint=failure.hint)
        self.job_name = job_name
        self.failure = failure


def nearest(word: str, known: Iterable[str]) -> str:
    """A ``did you mean`` sentence for a misspelt ``word``, or the list of what is known."""
    known = sorted(known)
    close = difflib.get_close_matches(word, known, n=1, cutoff=0.6)
    return f"Did you mean {close[0]!r}?" if close else f"Known: {', '.join(known)}."
