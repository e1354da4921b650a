"""Which ranks leave when the job is about to be stopped."""

from __future__ import annotations

from collections.abc import Callable

from cloudtrain.environment._job import rank

_decided: Callable[[], bool] | None = None


def set_exit_policy(decided: Callable[[], bool] | None) -> None:
    """Let a rank leave when its state is saved, and ranks that save together leave together.

    Args:
        decided: becomes true on a rank that has saved for the notice; where ranks save together, on all of them
            at the same step. From then on `exit_if_preempted` leaves. None goes back to what is usual: rank 0
            leaves at its own notice. When it has left, the others are ended.
    """
    global _decided
    _decided = decided


def may_exit(notice: bool) -> bool:
    """Whether this rank leaves now; ``notice`` is whether it has heard of the end itself."""
    return _decided() if _decided is not None else notice and rank() == 0
