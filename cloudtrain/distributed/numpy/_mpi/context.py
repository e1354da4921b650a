"""`MpiContext`: how an operation is negotiated, started on MPI, and waited for.

A single thread makes all MPI calls that move data. MPI progresses only inside its calls: a rank that negotiates or
computes makes none, and would stall the ranks that wait for its data. One thread also fixes the order of operations.
"""

from __future__ import annotations

import math
import queue
import threading
import time
from collections.abc import Sequence
from typing import Any, Callable

import numpy as np
from mpi4py import MPI

from cloudtrain.distributed import _timeline, options
from cloudtrain.distributed.errors import CollectiveError
from cloudtrain.distributed.negotiation.client import Negotiation, NegotiationClient
from cloudtrain.distributed.negotiation.messages import (
    ADD_SET,
    GLOBAL,
    REMOVE_SET,
    CollectiveResponse,
    add_set,
    remove_set,
)
from cloudtrain.distributed.numpy._backend import Array, Handle, accumulator_type, reduce_in_order
from cloudtrain.distributed.numpy._mpi.rendezvous import Rendezvous
from cloudtrain.distributed.options import cycle_seconds
from cloudtrain.distributed.process_set import ProcessSet
from cloudtrain.distributed.reduce_op import Average, Max, Min, Product, ReduceOp, Sum
from cloudtrain.observe.timeline import recorder
from cloudtrain.observe.timeline.recorder import Operation, now

LOST_RANK_SECONDS = 5.0
"""How long an operation may continue after a rank is lost: that rank may have done its part."""
CLOSE_SECONDS = 5.0
"""How long ``shutdown`` waits for running operations."""
MPI_OPS = {Average: MPI.SUM, Sum: MPI.SUM, Min: MPI.MIN, Max: MPI.MAX, Product: MPI.PROD}

Post = Callable[[MPI.Intracomm, CollectiveResponse], "list[MPI.Request]"]
"""Starts the data transfer among the ranks of a process set."""
PostNow = Callable[[], "list[MPI.Request]"]
"""Starts MPI operations on buffers that it refers to. It is kept alive until they end, because mpi4py 4.1 does not
keep the buffers of Iallreduce alive."""


class MpiContext:
    """The initialized state of one process. All ranks construct it.

    Takes the arguments of `cloudtrain.distributed.numpy.init`.

    Raises:
        InvalidArgument, CollectiveError: See `Rendezvous`.
    """

    def __init__(self, comm: Any, start_timeout: float | None, timeout: float | None) -> None:
        options.set_up_logging()
        start_timeout = options.start_timeout() if start_timeout is None else start_timeout
        self._timeout = options.collective_timeout() if timeout is None else timeout
        rendezvous = Rendezvous(comm, start_timeout)
        self.world = rendezvous.world
        self._comms = {GLOBAL: rendezvous.comm}
        """Communicators by process set. Used only by the progress thread, in the negotiated order."""
        self.client = NegotiationClient(self._contribute_zeros, self._timeout, cycle_seconds())
        if self.world.size > 1:
            rendezvous.join(self.client, combine, self._timeout)
        self._progress = Progress()
        _timeline.attach(self.world, self.client.channel.ask_time if self.world.size > 1 else None)

    def submit(
        self,
        kind: str,
        name: str | None,
        process_set: ProcessSet,
        must_match: dict[str, Any],
        post: Post,
        finish: Callable[[], Any],
        *,
        per_rank: Any = None,
        payload: bytes | None = None,
        arrived: Callable[[CollectiveResponse], None] | None = None,
    ) -> Handle[Any]:
        """Request an operation from the ranks of ``process_set``: see `NegotiationClient.negotiate`.

        Args:
            post: Called if the response does not carry the result.
            finish: Returns the result. Called by the thread that waits for it.
        """
        set_id = process_set.process_set_id
        assert set_id is not None

        def transfer(response: CollectiveResponse, recorded: Operation | None) -> Transfer:
            return self._progress.start(lambda: post(self._comms[set_id], response), recorded)

        pending, recorded = self.client.negotiate(
            kind, name, set_id, must_match, transfer, per_rank=per_rank, payload=payload, arrived=arrived
        )
        return Handle(self._operation(pending, recorded), lambda _: finish())

    def add_set(self, ranks: list[int]) -> int:
        """Register a process set, and return its number. All ranks call this with the same ranks."""
        numbers: list[int] = []

        def start(response: CollectiveResponse) -> Transfer:
            numbers.extend(response.per_rank)
            return self._open(response.per_rank[0], ranks)

        self._operation(self.client.submit(add_set(ranks), start)).wait()
        return numbers[0]

    def remove_set(self, set_id: int) -> None:
        """Unregister a process set. All ranks call this."""
        self._operation(self.client.submit(remove_set(set_id), lambda response: self._close(set_id))).wait()

    def join(self) -> int:
        """See `NegotiationClient.join`. There is nothing to flush: every transfer here is negotiated."""
        return self.client.join(lambda: False) if self.world.size > 1 else 0

    def close(self) -> None:
        """Leave the job. Running operations may end first, unless a rank is lost."""
        _timeline.detach()
        if self.world.size > 1:
            self.client.close()
        lost = bool(self.client.lost)
        if self._progress.close(0.0 if lost else CLOSE_SECONDS) and not lost:
            for comm in self._comms.values():
                comm.Free()

    def _operation(self, pending: Negotiation, recorded: Operation | None = None) -> _Operation:
        return _Operation(self.client, pending, self.world.rank, self._timeout, recorded)

    def _contribute_zeros(self, response: CollectiveResponse) -> None:
        """Take part in an operation of the other ranks after this rank has joined (see `NegotiationClient`)."""
        request = response.request
        assert request is not None
        if request.kind == ADD_SET:
            self._open(response.per_rank[0], request.must_match["ranks"])
        elif request.kind == REMOVE_SET:
            self._close(request.must_match["process set"])
        elif request.kind == "allreduce" and response.payload is None:
            op = MPI_OPS[ReduceOp[request.must_match["operation"]]]
            buffers = [zeros for zeros in zeros_for(request.must_match) if zeros.size]
            self._progress.start(
                lambda: [
                    self._comms[response.set_id].Iallreduce(MPI.IN_PLACE, zeros, op) for zeros in buffers
                ]
            )

    def _open(self, set_id: int, ranks: list[int]) -> Transfer:
        def post() -> list[MPI.Request]:
            if self.world.rank in ranks:
                everyone = self._comms[GLOBAL].Get_group()
                members = everyone.Incl(ranks)
                self._comms[set_id] = self._comms[GLOBAL].Create_group(members, set_id)
                members.Free()
                everyone.Free()
            return []

        return self._progress.start(post)

    def _close(self, set_id: int) -> Transfer:
        def post() -> list[MPI.Request]:
            if set_id in self._comms:
                self._comms.pop(set_id).Free()
            return []

        return self._progress.start(post)


class _Operation:
    """`Work`: a negotiated operation and its transfer."""

    def __init__(
        self,
        client: NegotiationClient,
        pending: Negotiation,
        rank: int,
        timeout: float,
        recorded: Operation | None,
    ) -> None:
        self._client, self._pending = client, pending
        self._rank, self._timeout = rank, timeout
        self._recorded = recorded

    def done(self) -> bool:
        return self._pending.started and (self._pending.work is None or self._pending.work.done())

    def wait(self) -> None:
        recorder.wait_for(self._wait, self._pending.request.label, self._recorded)

    def _wait(self) -> None:
        transfer = self._client.wait(self._pending)
        if transfer is None:
            return
        end = time.monotonic() + self._timeout
        while not transfer.wait(LOST_RANK_SECONDS / 10):
            now = time.monotonic()
            if self._client.lost:
                end = min(end, now + LOST_RANK_SECONDS)
            if now >= end:
                raise self._failure(f"it did not end within {self._timeout:g} s")
        if transfer.error is not None:
            raise self._failure(transfer.error) from transfer.error

    def _failure(self, reason: Any) -> CollectiveError:
        lost = "; ".join(f"rank {rank} {why}" for rank, why in sorted(self._client.lost.items()))
        return CollectiveError(
            f"{self._pending.request.label} failed on rank {self._rank}: {lost or reason}",
            hint="Check the logs of the other ranks: one died, hangs, or called another collective.",
        )


class Transfer:
    """The MPI operations of one collective.

    Args:
        recorded: The timeline entry to update.
    """

    def __init__(self, post: PostNow, recorded: Operation | None = None) -> None:
        self._post = post
        self._recorded = recorded
        self._requests: list[MPI.Request] = []
        self._ended = threading.Event()
        self.error: CollectiveError | None = None

    def done(self) -> bool:
        return self._ended.is_set()

    def wait(self, timeout: float) -> bool:
        """Whether it ended within ``timeout`` seconds."""
        return self._ended.wait(timeout)

    def begin(self) -> None:
        if self._recorded is not None:
            self._recorded.carrier, self._recorded.began = "MPI", now()
        try:
            self._requests = self._post()
        except Exception as error:
            self._fail(error)

    def advance(self) -> bool:
        """Test for completion. Return whether it has ended."""
        try:
            if self._requests and not MPI.Request.Testall(self._requests):
                return False
        except Exception as error:
            self._fail(error)
        if self._recorded is not None and self.error is None:
            self._recorded.end()
        self._ended.set()
        return True

    def _fail(self, error: Exception) -> None:
        self._requests = []
        self.error = CollectiveError(f"MPI failed: {error}")


class Progress:
    """The thread that makes all MPI calls."""

    def __init__(self) -> None:
        self._posted: queue.SimpleQueue[Transfer | None] = queue.SimpleQueue()
        self._active: list[Transfer] = []
        self._given_up = False
        self._thread = threading.Thread(target=self._run, name="cloudtrain-mpi", daemon=True)
        self._thread.start()

    def start(self, post: PostNow, recorded: Operation | None = None) -> Transfer:
        """Queue ``post`` after everything queued before. See `Transfer`."""
        transfer = Transfer(post, recorded)
        self._posted.put(transfer)
        return transfer

    def close(self, timeout: float) -> bool:
        """Whether all transfers ended within ``timeout`` seconds."""
        self._posted.put(None)
        self._thread.join(timeout)
        self._given_up = True
        self._thread.join(timeout)
        return not self._active

    def _run(self) -> None:
        closing = False
        while not self._given_up and (self._active or not closing):
            while not closing and not (self._active and self._posted.empty()):
                transfer = self._posted.get()
                if transfer is None:
                    closing = True
                else:
                    transfer.begin()
                    self._active.append(transfer)
            self._active = [transfer for transfer in self._active if not transfer.advance()]


def zeros_for(must_match: dict[str, Any]) -> list[Array]:
    """Return the zero buffers of a joined rank, for an allreduce that it has not requested."""
    shapes, types = must_match["shape"], must_match["type"]
    if isinstance(types, str):
        shapes, types = [shapes], [types]
    sizes: dict[np.dtype[Any], int] = {}
    for shape, name in zip(shapes, types):
        dtype = accumulator_type(name)
        sizes[dtype] = sizes.get(dtype, 0) + math.prod(shape)
    return [np.zeros(size, dtype) for dtype, size in sizes.items()]


def combine(must_match: dict[str, Any], payloads: Sequence[bytes | None]) -> bytes:
    """Reduce the small arrays of all ranks. This is a `cloudtrain.distributed.negotiation.matcher.Combine`."""
    types = must_match["type"]
    dtype = accumulator_type(types if isinstance(types, str) else types[0])  # the same for all of them
    op = ReduceOp[must_match["operation"]]
    given = [np.frombuffer(payload, dtype) for payload in payloads if payload is not None]
    if len(given) < len(payloads) and op not in (Average, Sum):
        given.append(np.zeros_like(given[0]))
    return reduce_in_order(op, given).tobytes()
