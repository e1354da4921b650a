"""The base class of the backends, and the handle of a running collective."""

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
