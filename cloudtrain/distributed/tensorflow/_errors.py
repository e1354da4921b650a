"""Errors that are TensorFlow's too, for scripts that catch what Horovod's operations raise there.

Outside of graphs only: TensorFlow turns what Python raises in a graph into errors of its own choice.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import tensorflow as tf

from cloudtrain.distributed.errors import CollectiveError, InvalidArgument


class FailedPrecondition(CollectiveError, tf.errors.FailedPreconditionError):  # type: ignore[misc]
    """`CollectiveError` of an operation on tensors."""

    message = ""  # to be assigned to: OpError has a property
    __reduce__ = Exception.__reduce__  # OpError's is for arguments of its own

    def __init__(self, message: str, *, hint: str = "") -> None:
        tf.errors.FailedPreconditionError.__init__(self, None, None, message)
        CollectiveError.__init__(self, message, hint=hint)


class InvalidTensor(InvalidArgument, tf.errors.InvalidArgumentError):  # type: ignore[misc]
    """`InvalidArgument` of an operation on tensors."""

    message = ""
    __reduce__ = Exception.__reduce__

    def __init__(self, message: str, *, hint: str = "") -> None:
        tf.errors.InvalidArgumentError.__init__(self, None, None, message)
        InvalidArgument.__init__(self, message, hint=hint)


class UnsupportedSlices(InvalidArgument, NotImplementedError):
    """What is asked for cannot be done with IndexedSlices."""


@contextlib.contextmanager
def of_tensorflow() -> Iterator[None]:
    """Raise those of TensorFlow in place of cloudtrain's."""
    try:
        yield
    except (CollectiveError, InvalidArgument) as error:
        for known, own in ((CollectiveError, FailedPrecondition), (InvalidArgument, InvalidTensor)):
            if type(error) is known:
                raise own(error.message, hint=error.hint) from error
        raise
