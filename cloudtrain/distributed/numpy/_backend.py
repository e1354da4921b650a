"""What carries arrays between ranks. Whoever writes another one writes these methods.

Arrays come checked: contiguous, of numbers, in this machine's byte order, of an operation that has a meaning for
them. Results are arrays of the same types. Methods that give a handle return at once; what goes wrong between
ranks is raised as CollectiveError where the handle is waited for, or where a method waits itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from cloudtrain.distributed.numpy._arrays import Array
from cloudtrain.distributed.numpy._handle import Handle
from cloudtrain.distributed.process_set import ProcessSet
from cloudtrain.distributed.reduce_op import ReduceOp
from cloudtrain.distributed.world import World


class Collectives(Protocol):
    """Among the ranks of ``process_set``, of which this is one. ``name`` is what ranks are matched by."""

    def barrier(self, process_set: ProcessSet) -> None:
        """Waits."""
        ...

    def allreduce(
        self,
        arrays: Sequence[Array],
        op: ReduceOp,
        name: str | None,
        prescale: float,
        postscale: float,
        process_set: ProcessSet,
        *,
        in_place: bool,
    ) -> Handle:
        """The list of results; ``in_place``, the arrays themselves, which are writable then."""
        ...

    def allgather(self, arrays: Sequence[Array], name: str | None, process_set: ProcessSet) -> Handle:
        """The list of results; arrays have a first dimension, which may differ between ranks."""
        ...

    def broadcast(self, array: Array, root_rank: int, name: str | None, process_set: ProcessSet) -> Handle:
        """``array`` itself, overwritten; ``root_rank`` is a global rank of the set."""
        ...

    def alltoall(
        self, array: Array, splits: Sequence[int], name: str | None, process_set: ProcessSet
    ) -> Handle:
        """A pair: the rows received, and the list of how many came from each rank."""
        ...

    def reducescatter(
        self,
        arrays: Sequence[Array],
        op: ReduceOp,
        name: str | None,
        prescale: float,
        postscale: float,
        process_set: ProcessSet,
    ) -> Handle:
        """The list of this rank's shares (see `share`); ``op`` is Average or Sum."""
        ...


class Backend(Collectives, Protocol):
    """All ranks of a job, between ``init`` and ``shutdown``."""

    @property
    def world(self) -> World: ...

    def add_process_set(self, process_set: ProcessSet) -> None:
        """Agree on it with all ranks, and attach it. Raises InvalidArgument, CollectiveError."""
        ...

    def remove_process_set(self, process_set: ProcessSet) -> bool:
        """Agree on it with all ranks, and detach it; False where it is not known."""
        ...

    def process_sets(self) -> list[ProcessSet]:
        """Those that were added and not removed."""
        ...

    def join(self) -> int:
        """See `cloudtrain.distributed.numpy.join`."""
        ...

    def close(self) -> None:
        """Leave, and detach all process sets; the other ranks are told."""
        ...
