"""All errors of cloudtrain, as one tree.

    CloudtrainError
    ├── InvalidJob          the description of the job is invalid
    ├── InvalidSource       the source directory cannot be packed
    ├── StorageError        bytes at a URI could not be read or written
    │   ├── NotFound
    │   ├── AccessDenied
    │   └── Unreachable
    ├── PlatformError       a platform refused a request or failed
    │   ├── UnknownPlatform
    │   ├── JobNotFound
    │   ├── JobExists
    │   └── InDoubt         no answer: the platform may have accepted the request
    ├── NotSupported        a feature of the SageMaker SDK that cloudtrain leaves out
    ├── CheckpointError     a checkpoint is missing or damaged
    ├── CollectiveError     a collective failed (defined in cloudtrain.distributed, with three more)
    └── TrainingFailed      the job ran and failed; carries its FailureReport

The message of an error is one line that states what is wrong and where; ``hint`` states what to do about it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING

from cloudtrain._secrets.urls import hide_credentials
from cloudtrain._system.text import escape_text

if TYPE_CHECKING:
    from cloudtrain.contract.failure import FailureReport


class CloudtrainError(Exception):
    """Base of all errors that cloudtrain raises on purpose.

    Errors quote foreign text, so credentials in URLs are hidden, and control characters are escaped.
    """

    is_transient = False
    """Whether the same request may succeed later: it was throttled, or the network or a server failed."""

    def __init__(self, message: str, *, hint: str = "") -> None:
        self.message = hide_credentials(message)
        self.hint = hide_credentials(hint)
        super().__init__(self.message)

    def __str__(self) -> str:
        return escape_text(f"{self.message}\n  {self.hint}" if self.hint else self.message)


class InvalidJob(CloudtrainError, ValueError):
    """The description of the job is invalid: an argument, a field of the YAML, a value."""


class InvalidSource(CloudtrainError):
    """The source directory cannot be packed: no entry point, a secret in it, an unreadable file."""


class StorageError(CloudtrainError, OSError):
    """Bytes at a URI could not be read or written."""


class NotFound(StorageError):
    """The bucket, prefix, object or file does not exist."""


class AccessDenied(StorageError):
    """The credentials do not allow this operation."""


class Unreachable(StorageError):
    """The server does not answer, or the connection was lost."""


class PlatformError(CloudtrainError):
    """A platform refused the request or failed."""


class UnknownPlatform(PlatformError):
    """No platform has this name, or it could not be loaded."""


class JobNotFound(PlatformError):
    """The platform has no job of this name."""


class JobExists(PlatformError):
    """A job of this name already exists."""

    def __init__(self, message: str, *, hint: str = "") -> None:
        other = (
            "Choose another name with --name, in Python with job_name: without it, each job has a new one."
        )
        super().__init__(message, hint=f"{other} {hint}".rstrip())


class InDoubt(PlatformError):
    """The platform may have accepted the request: its answer was lost. A job may be in its queue."""


class NotSupported(CloudtrainError, NotImplementedError):
    """A feature of the SageMaker SDK that cloudtrain leaves out. The hint has the line to write instead."""


class CheckpointError(CloudtrainError):
    """The checkpoint is missing or damaged, or does not fit the state."""


class TrainingFailed(CloudtrainError):
    """The job ran and failed. ``failure`` states which rank failed first, and why."""

    def __init__(self, job_name: str, failure: FailureReport) -> None:
        super().__init__(f"job {job_name} failed: {failure.summary()}", hint=failure.hint)
        self.job_name = job_name
        self.failure = failure


def nearest(word: str, known: Iterable[str], other_names: Mapping[str, Collection[str]] | None = None) -> str:
    """A "did you mean" sentence for a misspelt name, or the list of known names.

    Args:
        other_names: other names, in lower case, for each known name.
    """
    import difflib  # every rank imports this module

    known = sorted(known)
    meant = [name for name in known if word.lower() in (other_names or {}).get(name, ())]
    close = meant or difflib.get_close_matches(word, known, n=1, cutoff=0.6)
    close = close or [name for name in known if name.lower() == word.lower()]
    return f"Did you mean {close[0]!r}?" if close else f"Known: {', '.join(known)}."
