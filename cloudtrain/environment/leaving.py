"""Which ranks leave when the job is about to be stopped."""

from __future__ import annotations

from collections.abc import Callable

from cloudtrain.environment._job import rank

_decided: Callable[[], bool] | None = None


def leave_when(decided: Callable[[], bool] | None) -> None:
    """Let ranks that save together leave together.

    Args:
        decided: becomes true on all ranks at the same step; from then on `exit_if_preempted` leaves. None goes
            back to what is usual: rank 0 leaves at its own notice, and takes the others with it.
    """
    global _decided
    _decided = decided


def may_leave(notice: bool) -> bool:
    """Whether this rank leaves now; ``notice`` is whether it has heard of the end itself."""
    return _decided() if _decided is not None else notice and rank() == 0
