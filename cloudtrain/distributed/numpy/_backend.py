"""The interface of a backend, the handle of a running collective, and the collectives of a single rank.

Arrays arrive validated: contiguous, numeric, in native byte order, and of a type that the operation is defined for.
Results have the same types. Methods that return a handle return immediately. An error between ranks is raised as
CollectiveError when the handle is waited for, or by a method that waits itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Callable, Generic, Protocol, TypeVar

from cloudtrain.distributed._objects import Objects
from cloudtrain.distributed.numpy._arrays import Array, accumulator_type, scale
from cloudtrain.distributed.process_set import ProcessSet
from cloudtrain.distributed.reduce_op import ScaledOp
from cloudtrain.distributed.world import World
from cloudtrain.observe.heartbeat import enter_collective, leave_collective


class Work(Protocol):
    """A running operation of a backend."""

    def done(self) -> bool:
        """Whether `wait` would return immediately."""
        ...

    def wait(self) -> Any:
        """Raises CollectiveError, which names the operation and the ranks."""
        ...


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


def only(handle: Handle[list[T]]) -> Handle[T]:
    """Unwrap the result of ``handle``, a list of one."""
    return handle.then(lambda results: results[0])


class Collectives(Protocol):
    """Operations among the ranks of ``process_set``, which include this one. Ranks are matched by ``name``."""

    def barrier(self, process_set: ProcessSet) -> None:
        """Wait for all ranks of the set."""
        ...

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
        ...

    def allgather(self, arrays: Arrays, name: str | None, process_set: ProcessSet) -> Results:
        """The result is a list of arrays. Inputs have a first dimension, which may differ between ranks."""
        ...

    def broadcast(
        self, array: Array, root_rank: int, name: str | None, process_set: ProcessSet
    ) -> Handle[Array]:
        """The result is ``array``, overwritten. ``root_rank`` is a global rank of the set."""
        ...

    def alltoall(
        self, array: Array, splits: Sequence[int], name: str | None, process_set: ProcessSet
    ) -> Exchanged:
        """The result is a pair: see `Exchanged`."""
        ...

    def reducescatter(
        self, arrays: Arrays, how: ScaledOp, name: str | None, process_set: ProcessSet
    ) -> Results:
        """The result is the list of this rank's shares (see `share`). ``how.op`` is Average or Sum."""
        ...


class Backend(Collectives, Protocol):
    """All ranks of a job, from ``init`` to ``shutdown``."""

    name: str
    """The value of ``init(backend=...)``."""

    @property
    def world(self) -> World: ...

    @property
    def objects(self) -> Objects:
        """Packs objects for other ranks, and unpacks what other ranks packed."""
        ...

    def add_process_set(self, process_set: ProcessSet) -> None:
        """Register the set with all ranks, and attach it. Raises InvalidArgument, CollectiveError."""
        ...

    def remove_process_set(self, process_set: ProcessSet) -> bool:
        """Unregister the set with all ranks, and detach it. Return False if it is unknown."""
        ...

    def process_sets(self) -> list[ProcessSet]:
        """The sets added and not removed."""
        ...

    def join(self) -> int:
        """See `cloudtrain.distributed.numpy.join`."""
        ...

    def close(self) -> None:
        """Leave the job, notify the other ranks, and detach all process sets."""
        ...


class SingleRank:
    """`Collectives` of a process set with one rank."""

    def barrier(self, process_set: ProcessSet) -> None:
        pass

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
        results = [array.copy() for array in arrays]
        return Handle(None, lambda _: results)

    def broadcast(
        self, array: Array, root_rank: int, name: str | None, process_set: ProcessSet
    ) -> Handle[Array]:
        return Handle(None, lambda _: array)

    def alltoall(
        self, array: Array, splits: Sequence[int], name: str | None, process_set: ProcessSet
    ) -> Exchanged:
        received = array.copy()
        return Handle(None, lambda _: (received, list(splits)))

    def reducescatter(
        self, arrays: Arrays, how: ScaledOp, name: str | None, process_set: ProcessSet
    ) -> Results:
        return self.allreduce(arrays, how, name, process_set, in_place=False)
