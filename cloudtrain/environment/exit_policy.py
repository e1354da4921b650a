"""Which ranks exit when the job is about to be stopped."""

from __future__ import annotations

from collections.abc import Callable

from cloudtrain.environment.job import rank

_may_exit: Callable[[], bool] | None = None


def set_exit_policy(may_exit: Callable[[], bool] | None) -> None:
    """Decide when `exit_if_preempted` exits.

    Args:
        may_exit: returns True on a rank that has saved for the notice; if ranks save together, on all of them at the
            same step. None restores the default: rank 0 exits as soon as it has a notice, which ends the others.
    """
    global _may_exit
    _may_exit = may_exit


def may_exit(noticed: bool) -> bool:
    """Whether this rank exits now; ``noticed`` is whether it has a notice."""
    return _may_exit() if _may_exit is not None else noticed and rank() == 0
