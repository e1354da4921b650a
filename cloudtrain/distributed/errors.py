"""What can go wrong between ranks.

Each class is also the built-in exception that Horovod raises in its place, so that scripts which catch
that one keep working.
"""

from __future__ import annotations

from cloudtrain.errors import CloudtrainError


class CollectiveError(CloudtrainError, RuntimeError):
    """A collective, or the meeting of the ranks before the first one, failed or ran out of time."""


class NotInitialized(CloudtrainError, ValueError):
    """The call needs ``init()`` first."""

    def __init__(self) -> None:
        super().__init__("cloudtrain.distributed has not been initialized; use hvd.init().")


class InvalidArgument(CloudtrainError, ValueError):
    """An argument, or a variable of the environment, does not hold what it should."""


class GradientOrderError(CloudtrainError, AssertionError):
    """``backward``, ``step`` and ``zero_grad`` were called in an order that loses gradients."""


class HostsUpdatedInterrupt(CloudtrainError, RuntimeError):
    """Raised by a script, on all ranks: leave the function, call the reset callbacks, and enter it again.

    Args:
        skip_sync: the state is equal on all ranks as it is.
    """

    def __init__(self, skip_sync: bool = False) -> None:
        super().__init__("the ranks are to meet again")
        self.skip_sync = skip_sync
