"""Collectives of one rank, which needs nobody."""

from __future__ import annotations

from collections.abc import Sequence

from cloudtrain.distributed.numpy._arrays import Array
from cloudtrain.distributed.numpy._handle import Handle
from cloudtrain.distributed.numpy._reduction import scale, working_type
from cloudtrain.distributed.process_set import ProcessSet
from cloudtrain.distributed.reduce_op import ReduceOp


class Solo:
    """See `Collectives`."""

    def barrier(self, process_set: ProcessSet) -> None:
        pass

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
        results = list(arrays) if in_place else [array.copy() for array in arrays]
        if prescale != 1.0 or postscale != 1.0:
            for result in results:
                working = result.astype(working_type(result.dtype.name))
                scale(working, prescale)
                scale(working, postscale)
                result[...] = working.astype(result.dtype)
        return Handle(None, lambda _: results)

    def allgather(self, arrays: Sequence[Array], name: str | None, process_set: ProcessSet) -> Handle:
        results = [array.copy() for array in arrays]
        return Handle(None, lambda _: results)

    def broadcast(self, array: Array, root_rank: int, name: str | None, process_set: ProcessSet) -> Handle:
        return Handle(None, lambda _: array)

    def alltoall(
        self, array: Array, splits: Sequence[int], name: str | None, process_set: ProcessSet
    ) -> Handle:
        received = array.copy()
        return Handle(None, lambda _: (received, list(splits)))

    def reducescatter(
        self,
        arrays: Sequence[Array],
        op: ReduceOp,
        name: str | None,
        prescale: float,
        postscale: float,
        process_set: ProcessSet,
    ) -> Handle:
        return self.allreduce(arrays, op, name, prescale, postscale, process_set, in_place=False)
