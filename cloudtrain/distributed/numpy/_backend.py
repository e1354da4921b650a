"""The base class of the backends, the handle of a running collective, and the arrays that backends take.

Backends take contiguous arrays of numbers in native byte order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Callable, Generic, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from cloudtrain.distributed._objects import Objects
from cloudtrain.distributed.errors import InvalidArgument
from cloudtrain.distributed.process_set import ProcessSet
from cloudtrain.distributed.reduce_op import Adasum, Max, Min, Product, ReduceOp, ScaledOp, known_op
from cloudtrain.distributed.world import World
from cloudtrain.observe.heartbeat import enter_collective, leave_collective

Array = npt.NDArray[Any]

_ACCUMULATORS = {"bool": "uint8", "float16": "float32", "bfloat16": "float32"}
"""Types that neither MPI nor C can reduce, and the types used instead."""


def as_array(value: Any) -> Array:
    """Return ``value`` as an array of numbers, without a copy where possible (NumPy, JAX on CPU).

    Raises:
        InvalidArgument: ``value`` is not an array, or holds objects, text or dates.
    """
    try:
        array = np.asarray(value)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InvalidArgument(f"{type(value).__name__} is not an array: {error}") from error
    if array.dtype.kind not in "biufc" and not is_extension(array.dtype):
        raise InvalidArgument(
            f"arrays of type {array.dtype} cannot be sent",
            hint="Use broadcast_object or allgather_object, which pickle.",
        )
    return array


def as_arrays(values: Sequence[Any]) -> list[Array]:
    """Apply `as_array` to every value. Raises InvalidArgument unless ``values`` is a non-empty list or tuple."""
    if not isinstance(values, (list, tuple)) or not values:
        raise InvalidArgument("a grouped operation takes a list of at least one array")
    return [as_array(value) for value in values]


def writable(value: Any) -> Array:
    """Return ``value``. Raises InvalidArgument if a result cannot be written into it."""
    if not isinstance(value, np.ndarray) or not value.flags.writeable:
        what = "a read-only array" if isinstance(value, np.ndarray) else f"a {type(value).__name__}"
        raise InvalidArgument(
            f"the result cannot be written into {what}", hint="Use the form without the trailing underscore."
        )
    as_array(value)
    return value


def is_extension(dtype: np.dtype[Any]) -> bool:
    """Whether ``dtype`` is a number type from outside NumPy, such as bfloat16 from ``ml_dtypes``."""
    return dtype.kind == "V" and dtype.names is None and dtype.type is not np.void


def to_wire(array: Array) -> Array:
    """Return ``array`` itself if it is contiguous and in native byte order, else a copy that is."""
    dtype = array.dtype if array.dtype.isnative else array.dtype.newbyteorder("=")
    return array.astype(dtype, order="C", copy=False)


def from_wire(wire: Array, array: Array) -> Array:
    """Convert a result to the type of ``array``, the caller's input."""
    return wire.astype(array.dtype, copy=False)


def copy_back(array: Array, wire: Array) -> Array:
    """Copy ``wire`` into ``array``, and return ``array``."""
    if wire is not array:
        array[...] = wire
    return array


def checked_op(op: ReduceOp | int, arrays: Sequence[Array]) -> ReduceOp:
    """Return ``op``. Raises InvalidArgument if it is unknown or undefined for one of the types."""
    op = known_op(op)
    for dtype in {array.dtype for array in arrays}:
        if is_extension(dtype) and dtype.name != "bfloat16":
            raise InvalidArgument(
                f"arrays of type {dtype} cannot be reduced", hint="Convert them to bfloat16."
            )
        if dtype.kind == "b" and op not in (Min, Max, Product):
            raise InvalidArgument(
                f"{op.name} is not defined for bool",
                hint="Use Max for any, Min for all, or convert the array to an integer type.",
            )
        if dtype.kind == "c" and op in (Min, Max, Adasum):
            raise InvalidArgument(f"{op.name} is not defined for complex numbers")
        if dtype.kind in "biu" and op == Adasum:
            raise InvalidArgument("Adasum takes floating-point arrays only")
    return op


def accumulator_type(name: str) -> np.dtype[Any]:
    """Return the type in which arrays of type ``name`` are reduced."""
    return np.dtype(_ACCUMULATORS.get(name, name))


def scale(array: Array, factor: float, divisor: int = 1) -> None:
    """Multiply ``array`` in place by ``factor / divisor``. Integers are rounded towards zero, once."""
    if array.dtype.kind in "fc":
        if factor != divisor:
            array *= factor / divisor
    elif factor != 1.0:
        array[...] = (array.astype(np.float64) * factor / divisor).astype(array.dtype)
    elif divisor != 1:
        wide = array.astype(np.result_type(array, np.min_scalar_type(divisor)), copy=False)
        array[...] = (wide - np.fmod(wide, divisor)) // divisor  # fmod keeps the sign of the array, as in C


def reduce_in_order(op: ReduceOp, arrays: Sequence[Array]) -> Array:
    """Reduce ``arrays`` in the given order: the result is the same, bit for bit, on every rank."""
    function = {Min: np.minimum, Max: np.maximum, Product: np.multiply}.get(op, np.add)
    total = arrays[0].copy()
    for array in arrays[1:]:
        function(total, array, out=total)
    return total


class Work(Protocol):
    """A running operation of a backend."""

    def done(self) -> bool:
        """Whether `wait` would return immediately."""

    def wait(self) -> Any:
        """Raises CollectiveError, which names the operation and the ranks."""


T = TypeVar("T")
U = TypeVar("U")


class Handle(Generic[T]):
    """A running collective. Pass it to `synchronize` or `poll`, or call it to wait for the result.

    Args:
        work: None if there is nothing to wait for.
        finish: Computes the result from what ``work`` returned.
    """

    def __init__(self, work: Work | None, finish: Callable[[Any], T]) -> None:
        self._work = work
        self._finish: Callable[[Any], T] | None = finish
        self._output: Any = None

    def done(self) -> bool:
        """Whether `wait` would return immediately."""
        return self._work is None or self._work.done()

    def wait(self) -> T:
        """Return the result. Later calls return the same object. Raises CollectiveError."""
        if self._finish is not None:
            if isinstance(self._work, Handle):  # it reports its own wait
                given = self._work.wait()
            else:
                enter_collective()
                try:
                    given = None if self._work is None else self._work.wait()
                finally:
                    leave_collective()
            self._output = self._finish(given)
            self._finish = self._work = None
        output: T = self._output
        return output

    __call__ = wait

    def then(self, change: Callable[[T], U]) -> Handle[U]:
        """Return a handle for the same work whose result is ``change(result)``."""
        return Handle(self, change)


Arrays = Sequence[Array]
Results = Handle[list[Array]]
Exchanged = Handle[tuple[Array, list[int]]]
"""The rows received, and their counts by source rank."""


class SingleRank:
    """The collectives of a process set with one rank. Backends override them for sets of several ranks.

    Arrays arrive validated: contiguous, numeric, in native byte order, and of a type that the operation is defined for.
    Results have the same types. Methods that return a handle return immediately. An error between ranks is raised as
    CollectiveError when the handle is waited for, or by a method that waits itself. Ranks are matched by ``name``.
    """

    def barrier(self, process_set: ProcessSet) -> None:
        """Wait for all ranks of the set."""

    def allreduce(
        self,
        arrays: Arrays,
        how: ScaledOp,
        name: str | None,
        process_set: ProcessSet,
        *,
        in_place: bool,
        must_match: Mapping[str, Any] | None = None,
    ) -> Results:
        """The result is a list of arrays: with ``in_place`` the inputs, which are then writable.

        Args:
            must_match: What else must be the same on all ranks.
        """
        results = list(arrays) if in_place else [array.copy() for array in arrays]
        _, prescale, postscale = how
        if prescale != 1.0 or postscale != 1.0:
            for result in results:
                accumulator = result.astype(accumulator_type(result.dtype.name))
                scale(accumulator, prescale)
                scale(accumulator, postscale)
                result[...] = accumulator.astype(result.dtype)
        return Handle(None, lambda _: results)

    def allgather(self, arrays: Arrays, name: str | None, process_set: ProcessSet) -> Results:
        """The result is a list of arrays. Inputs have a first dimension, which may differ between ranks."""
        results = [array.copy() for array in arrays]
        return Handle(None, lambda _: results)

    def broadcast(
        self, array: Array, root_rank: int, name: str | None, process_set: ProcessSet
    ) -> Handle[Array]:
        """The result is ``array``, overwritten. ``root_rank`` is a global rank of the set."""
        return Handle(None, lambda _: array)

    def alltoall(
        self, array: Array, splits: Sequence[int], name: str | None, process_set: ProcessSet
    ) -> Exchanged:
        received = array.copy()
        return Handle(None, lambda _: (received, list(splits)))

    def reducescatter(
        self, arrays: Arrays, how: ScaledOp, name: str | None, process_set: ProcessSet
    ) -> Results:
        """The result is the list of this rank's shares (see `share`). ``how.op`` is Average or Sum."""
        return self.allreduce(arrays, how, name, process_set, in_place=False)


class Backend(SingleRank):
    """All ranks of a job, from ``init`` to ``shutdown``."""

    name: str
    """The value of ``init(backend=...)``."""

    def __init__(self, world: World, objects: Objects) -> None:
        self.world = world
        self.objects = objects
        """Packs objects for other ranks, and unpacks what other ranks packed."""
        self.sets: list[ProcessSet] = []
        """The process sets added and not removed."""

    def add_process_set(self, process_set: ProcessSet) -> None:
        """Register the set with all ranks, and attach it. Raises InvalidArgument, CollectiveError."""
        self._register(process_set)
        self.sets.append(process_set)

    def remove_process_set(self, process_set: ProcessSet) -> bool:
        """Unregister the set with all ranks, and detach it. Return False if it is unknown."""
        if process_set not in self.sets or process_set.process_set_id is None:
            return False
        self._unregister(process_set, process_set.process_set_id)
        self.sets.remove(process_set)
        return True

    def join(self) -> int:
        """See `cloudtrain.distributed.numpy.join`."""
        raise NotImplementedError

    def close(self) -> None:
        """Leave the job, notify the other ranks, and detach all process sets."""
        raise NotImplementedError

    def _register(self, process_set: ProcessSet) -> None:
        raise NotImplementedError

    def _unregister(self, process_set: ProcessSet, set_id: int) -> None:
        raise NotImplementedError
