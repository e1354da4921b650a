"""The collectives over MPI, and the buffers that they use.

Ranks are matched by name, as in `cloudtrain.distributed.torch`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from mpi4py import MPI

from cloudtrain.distributed.errors import InvalidArgument
from cloudtrain.distributed.negotiation.messages import EAGER_BYTES, CollectiveResponse, described
from cloudtrain.distributed.numpy._backend import (
    Array,
    Arrays,
    Backend,
    Exchanged,
    Handle,
    Results,
    accumulator_type,
    scale,
)
from cloudtrain.distributed.numpy._mpi.context import MPI_OPS, MpiContext
from cloudtrain.distributed.process_set import ProcessSet
from cloudtrain.distributed.reduce_op import Adasum, Average, ScaledOp
from cloudtrain.distributed.sharding import share


class MpiBackend(Backend):
    """`Backend` on MPI. Takes the arguments of `cloudtrain.distributed.numpy.init`."""

    name = "mpi"

    def __init__(self, comm: Any, start_timeout: float | None, timeout: float | None) -> None:
        self._context = MpiContext(comm, start_timeout, timeout)
        super().__init__(self._context.world, self._context.client.objects)

    def _register(self, process_set: ProcessSet) -> None:
        ranks = process_set.check_new(self.world.size, self.sets)
        process_set.attach(self._context.add_set(ranks), ranks, self.world.rank)

    def _unregister(self, process_set: ProcessSet, set_id: int) -> None:
        self._context.remove_set(set_id)
        process_set.detach()

    def join(self) -> int:
        return self._context.join()

    def close(self) -> None:
        for process_set in self.sets:
            process_set.detach()
        self._context.close()

    def barrier(self, process_set: ProcessSet) -> None:
        # The negotiation is the barrier; no data follows.
        self._context.submit("barrier", None, process_set, {}, lambda comm, response: [], lambda: None).wait()

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
        if how.op == Adasum:
            raise InvalidArgument("Adasum is not available over MPI", hint="Use backend='gloo'.")
        buckets = Buckets(arrays, share=in_place)
        for flat in buckets.flats:
            scale(flat, how.prescale)

        def post(comm: MPI.Intracomm, _: CollectiveResponse) -> list[MPI.Request]:
            return [
                comm.Iallreduce(MPI.IN_PLACE, flat, MPI_OPS[how.op]) for flat in buckets.flats if flat.size
            ]

        def arrived(response: CollectiveResponse) -> None:
            [flat] = buckets.flats
            flat[...] = np.frombuffer(response.payload or b"", flat.dtype)

        def finish() -> list[Array]:
            for flat in buckets.flats:
                scale(flat, how.postscale, process_set.size() if how.op == Average else 1)
            if not in_place:
                return [part.astype(array.dtype, copy=False) for array, part in zip(arrays, buckets.parts)]
            for array, part in zip(arrays, buckets.parts):
                if not np.may_share_memory(array, part):
                    array[...] = part
            return list(arrays)

        small = len(buckets.flats) == 1 and buckets.flats[0].nbytes <= EAGER_BYTES
        return self._context.submit(
            "allreduce",
            name,
            process_set,
            {**_must_match(arrays, how), **(must_match or {})},
            post,
            finish,
            payload=buckets.flats[0].tobytes() if small else None,
            arrived=arrived,
        )

    def allgather(self, arrays: Arrays, name: str | None, process_set: ProcessSet) -> Results:
        results: list[Array] = []

        def post(comm: MPI.Intracomm, response: CollectiveResponse) -> list[MPI.Request]:
            requests = []
            for array, rows in zip(arrays, zip(*response.per_rank)):
                result = np.empty((sum(rows), *array.shape[1:]), array.dtype)
                results.append(result)
                counts = [count * units_per_row(array) for count in rows]
                requests.append(comm.Iallgatherv(as_units(array), [as_units(result), counts]))
            return requests

        def arrived(response: CollectiveResponse) -> None:
            rows = sum(count for [count] in response.per_rank)
            # a bytearray, because the result must be writable
            flat = np.frombuffer(bytearray(response.payload or b""), one.dtype)
            results.append(flat.reshape(rows, *one.shape[1:]))

        one = arrays[0]
        small = len(arrays) == 1 and one.nbytes <= EAGER_BYTES
        return self._context.submit(
            "allgather",
            name,
            process_set,
            described(
                [["rows", *array.shape[1:]] for array in arrays], [array.dtype.name for array in arrays]
            ),
            post,
            lambda: results,
            per_rank=[array.shape[0] for array in arrays],
            payload=one.tobytes() if small else None,
            arrived=arrived,
        )

    def broadcast(
        self, array: Array, root_rank: int, name: str | None, process_set: ProcessSet
    ) -> Handle[Array]:
        is_root = self.world.rank == root_rank
        payload = None
        if array.nbytes <= EAGER_BYTES:
            payload = array.tobytes() if is_root else b""

        def post(comm: MPI.Intracomm, _: CollectiveResponse) -> list[MPI.Request]:
            return [comm.Ibcast(as_units(array), process_set.members().index(root_rank))]

        def arrived(response: CollectiveResponse) -> None:
            if not is_root:
                array[...] = np.frombuffer(response.payload or b"", array.dtype).reshape(array.shape)

        return self._context.submit(
            "broadcast",
            name,
            process_set,
            {"root_rank": root_rank, "shape": list(array.shape), "type": array.dtype.name},
            post,
            lambda: array,
            payload=payload,
            arrived=arrived,
        )

    def alltoall(
        self, array: Array, splits: Sequence[int], name: str | None, process_set: ProcessSet
    ) -> Exchanged:
        received: list[int] = []
        results: list[Array] = []

        def post(comm: MPI.Intracomm, response: CollectiveResponse) -> list[MPI.Request]:
            received.extend(splits[comm.rank] for splits in response.per_rank)
            results.append(np.empty((sum(received), *array.shape[1:]), array.dtype))
            width = units_per_row(array)
            sent = [as_units(array), [rows * width for rows in splits]]
            return [comm.Ialltoallv(sent, [as_units(results[0]), [rows * width for rows in received]])]

        return self._context.submit(
            "alltoall",
            name,
            process_set,
            {"shape": ["rows", *array.shape[1:]], "type": array.dtype.name},
            post,
            lambda: (results[0], received),
            per_rank=list(splits),
        )

    def reducescatter(
        self, arrays: Arrays, how: ScaledOp, name: str | None, process_set: ProcessSet
    ) -> Results:
        wires = [array.astype(accumulator_type(array.dtype.name)) for array in arrays]
        for wire in wires:
            scale(wire, how.prescale)
        ranks = range(process_set.size())
        shares = [[share(wire.shape[0], rank, len(ranks))[1] for rank in ranks] for wire in wires]
        own = [
            np.zeros((rows[process_set.rank()], *wire.shape[1:]), wire.dtype)
            for wire, rows in zip(wires, shares)
        ]

        def post(comm: MPI.Intracomm, _: CollectiveResponse) -> list[MPI.Request]:
            return [
                comm.Ireduce_scatter(wire, part, [count * wire[0].size for count in rows], MPI.SUM)
                for wire, part, rows in zip(wires, own, shares)
                if wire.size
            ]

        def finish() -> list[Array]:
            for part in own:
                scale(part, how.postscale, process_set.size() if how.op == Average else 1)
            return [part.astype(array.dtype, copy=False) for array, part in zip(arrays, own)]

        must_match = _must_match(arrays, how)
        return self._context.submit("reducescatter", name, process_set, must_match, post, finish)


def _must_match(arrays: Sequence[Array], how: ScaledOp) -> dict[str, Any]:
    shapes = [list(array.shape) for array in arrays]
    return described(shapes, [array.dtype.name for array in arrays], how)


class Buckets:
    """Arrays packed into one flat buffer per accumulator type.

    Args:
        share: Use an array as its own buffer if it is the only one of its accumulator type, and has that type.
    """

    def __init__(self, arrays: Sequence[Array], *, share: bool) -> None:
        by_type: dict[np.dtype[Any], list[int]] = {}
        for number, array in enumerate(arrays):
            by_type.setdefault(accumulator_type(array.dtype.name), []).append(number)
        parts: dict[int, Array] = {}
        self.flats: list[Array] = []
        for dtype, numbers in by_type.items():
            flat = _concatenate([arrays[number].reshape(-1) for number in numbers], dtype, share=share)
            self.flats.append(flat)
            offset = 0
            for number in numbers:
                array = arrays[number]
                parts[number] = flat[offset : offset + array.size].reshape(array.shape)
                offset += array.size
        self.parts = [parts[number] for number in range(len(arrays))]
        """Views into the buffers, one per array and in its shape."""


def _concatenate(flats: list[Array], dtype: np.dtype[Any], *, share: bool) -> Array:
    if len(flats) == 1:
        return flats[0].astype(dtype, copy=not share)
    return np.concatenate(flats, dtype=dtype, casting="unsafe")


def as_units(array: Array) -> Array:
    """View a contiguous array as flat unsigned integers, as wide as its items allow.

    MPI counts elements in 32 bits. Here it only moves bytes, so that any type can be sent.
    """
    return array.reshape(-1).view(f"u{math.gcd(array.itemsize, 8)}")


def units_per_row(array: Array) -> int:
    return math.prod(array.shape[1:]) * array.itemsize // math.gcd(array.itemsize, 8)
