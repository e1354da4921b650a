"""Failed saves: the reason, the warning, and when the error is raised.

A failure of the storage service is temporary: the training continues without that checkpoint, with a warning, and a
later save replaces it. Any other failure, such as a full disk or a wrong key, is permanent: the next save raises it.
"""

from __future__ import annotations

import logging
import time

from cloudtrain import environment
from cloudtrain.errors import CheckpointError, CloudtrainError, Unreachable
from cloudtrain.observe.events import record_warning
from cloudtrain.storage.retry_policy import Patience

LEAVE_SECONDS = 2.0
"""How long before the end of the grace a save is given up, so that the process can end by itself."""

_log = logging.getLogger("cloudtrain.checkpoint")


def save_patience(*, whole: bool = False) -> Patience:
    """The patience of one save. After a notice, it lasts until the grace ends.

    Args:
        whole: the limit is for the whole save, not for each of its requests.
    """
    patience = Patience(warn=warn)
    end = time.monotonic() + patience.seconds if whole else None
    patience.until = lambda: _end_of_grace() or end
    return patience


def warn(message: str) -> None:
    """Log a warning, and add it to the events of the job."""
    _log.warning("%s", message)
    record_warning(message)


def _end_of_grace() -> float | None:
    """The monotonic time at which a process with a notice has to end."""
    notice = environment.preemption()
    if notice is None:
        return None
    return time.monotonic() + notice.deadline - time.time() - LEAVE_SECONDS


class FailedSaves:
    """The saves of one `Checkpointer` that failed."""

    def __init__(self, uri: str) -> None:
        self._uri = uri
        self._count = 0
        """Failed saves since the last one that was committed."""
        self._committed: int | None = None
        self._error: CheckpointError | None = None
        self._passes = False
        """Whether the error is temporary, so that a later save makes up for it."""

    def committed(self, step: int) -> None:
        """Record that ``step`` was saved or restored."""
        self._count, self._committed = 0, step
        if self._passes:
            self._error = None

    def failed(self, step: int, error: BaseException) -> None:
        reason, hint = (
            (error.message, error.hint) if isinstance(error, CloudtrainError) else (repr(error), "")
        )
        failure = CheckpointError(f"checkpoint {step} was not saved: {reason}", hint=hint)
        failure.__cause__ = error
        self._count += 1
        passes = isinstance(error, Unreachable)
        if passes:
            last = (
                "nothing is committed yet"
                if self._committed is None
                else f"the last is step {self._committed}"
            )
            warn(f"{failure.message}; failed saves in a row: {self._count}, {last}")
        else:
            _log.error("%s", failure)
            record_warning(failure.message)
        # Last, because the training thread may raise the error, and end, as soon as it is set.
        self._error, self._passes = failure, passes

    def take(self, *, lasting: bool) -> CheckpointError | None:
        """Return the error that has not been raised yet, and forget it.

        Args:
            lasting: only an error that no later save makes up for.
        """
        if lasting and self._passes:
            return None
        error, self._error = self._error, None
        return error
