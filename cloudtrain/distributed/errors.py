"""The errors of collectives.

Each class also derives from the built-in exception that Horovod raises in the same case, so that existing ``except``
clauses keep working.
"""

from __future__ import annotations

from cloudtrain.errors import CloudtrainError


class CollectiveError(CloudtrainError, RuntimeError):
    """A collective or the rendezvous of the ranks failed or timed out."""


class NotInitialized(CloudtrainError, ValueError):
    """The call needs ``init()`` first."""

    def __init__(self) -> None:
        super().__init__("cloudtrain.distributed has not been initialized; use hvd.init().")


class InvalidArgument(CloudtrainError, ValueError):
    """An argument or an environment variable is invalid."""


class GradientOrderError(CloudtrainError, AssertionError):
    """The order of ``backward``, ``step`` and ``zero_grad`` calls would lose gradients."""


class HostsUpdatedInterrupt(CloudtrainError, RuntimeError):
    """Raise it on all ranks to leave the training function, run the reset callbacks, and enter the function again.

    Args:
        skip_sync: the state is already the same on all ranks.
    """

    def __init__(self, skip_sync: bool = False) -> None:
        super().__init__("the ranks are to rendezvous again")
        self.skip_sync = skip_sync
