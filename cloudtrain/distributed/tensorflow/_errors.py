"""Errors of operations on tensors: of the same class in eager mode, while a graph is built, and while it runs.

An error has cloudtrain's class and TensorFlow's, for scripts that catch either. TensorFlow keeps only the text of an
error that is raised while a graph runs, and raises its own error with that text. Sessions and AutoGraph construct an
error a second time, from its class and a longer text. Therefore this module keeps cloudtrain's latest errors, and
recognises them in the text.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from cloudtrain.distributed.errors import CollectiveError, InvalidArgument, NotInitialized
from cloudtrain.errors import CloudtrainError

_PARENTS: tuple[tuple[type[Exception], type[Any]], ...] = (
    (NotImplementedError, tf.errors.UnimplementedError),
    (CollectiveError, tf.errors.FailedPreconditionError),
    (NotInitialized, tf.errors.FailedPreconditionError),
    (InvalidArgument, tf.errors.InvalidArgumentError),
)
"""The classes of cloudtrain and TensorFlow. The first match counts."""

_OF_GRAPHS: tuple[type[Any], ...] = (tf.errors.UnknownError, tf.errors.InvalidArgumentError)
"""TensorFlow raises these when a Python function fails in a graph: the second for a ValueError."""

_remembered: deque[CloudtrainError] = deque(maxlen=100)
_classes: dict[tuple[type[Any], type[Any] | None], type[Any]] = {}


class UnsupportedSlices(InvalidArgument, NotImplementedError):
    """The operation is not defined for IndexedSlices."""


@contextlib.contextmanager
def tensorflow_errors() -> Iterator[None]:
    """Give errors a class that derives from TensorFlow's, too."""
    try:
        yield
    except CloudtrainError as error:
        if isinstance(error, tf.errors.OpError) or _parent(type(error)) is None:
            raise
        raise _of_tensorflow(error) from error


@contextlib.contextmanager
def remembered_errors() -> Iterator[None]:
    """Remember an error raised while a graph runs, so that the caller of the graph gets one of its class."""
    try:
        yield
    except CloudtrainError as error:
        if _parent(type(error)) is not None:
            _remembered.append(error)
        raise


class _TensorFlowError(CloudtrainError):
    """An error that also has a class of TensorFlow. TensorFlow and AutoGraph recreate it with their arguments."""

    message = ""  # makes it assignable: OpError defines a property
    kind: type[CloudtrainError]

    def __init__(self, node_def: Any, op: Any, message: str, *args: Any) -> None:
        parent: Any = _parent(self.kind)
        tf.errors.OpError.__init__(self, node_def, op, message, parent(None, None, "").error_code, *args)
        same = (error for error in _latest() if type(error) is self.kind and error.message in message)
        known = next(same, None)
        CloudtrainError.__init__(self, known.message if known else message, hint=known.hint if known else "")

    def __reduce__(self) -> Any:
        return _restored, (self.kind, self.message, self.hint)


def _of_tensorflow(error: CloudtrainError) -> CloudtrainError:
    _remembered.append(error)
    made: CloudtrainError = _class_for(type(error))(None, None, error.message)
    return made


def _restored(kind: type[CloudtrainError], message: str, hint: str) -> CloudtrainError:
    """The inverse of pickling."""
    error = kind.__new__(kind)
    CloudtrainError.__init__(error, message, hint=hint)
    return _of_tensorflow(error)


def _latest() -> list[CloudtrainError]:
    """A copy, because other threads add errors."""
    return list(_remembered)[::-1]


def _parent(kind: type[CloudtrainError]) -> type[Any] | None:
    return next((theirs for ours, theirs in _PARENTS if issubclass(kind, ours)), None)


def _class_for(kind: type[CloudtrainError], raised: type[Any] | None = None) -> Any:
    """The class of the same name that derives from ``kind``, from TensorFlow's class for it, and from ``raised``."""
    if (kind, raised) not in _classes:
        bases: dict[Any, None] = dict.fromkeys((_TensorFlowError, kind, _parent(kind), raised))
        bases.pop(None, None)
        members = {"__module__": kind.__module__, "kind": kind}
        _classes[kind, raised] = type(kind.__name__, tuple(bases), members)
    return _classes[kind, raised]


def _recognise(cls: Any, *args: Any, **keywords: Any) -> Any:
    """``__new__`` of `_OF_GRAPHS`: creates an error with the class of the remembered error that has this text."""
    text = str(args[2]) if cls in _OF_GRAPHS and len(args) > 2 else ""
    known = next((one for one in _latest() if f"{type(one).__name__}: {one.message}" in text), None)
    return Exception.__new__(cls if known is None else _class_for(type(known), cls), *args)


for _class in _OF_GRAPHS:
    _class.__new__ = _recognise  # type: ignore[assignment]
