"""The ranks of a communicator between ``init`` and ``shutdown``: how an operation is asked for, run, waited for."""

from __future__ import annotations

import time
from typing import Any, Callable

from mpi4py import MPI

from cloudtrain.distributed import _timeline, options
from cloudtrain.distributed.errors import CollectiveError
from cloudtrain.distributed.negotiation.client import Negotiation, NegotiationClient
from cloudtrain.distributed.negotiation.messages import (
    ADD_SET,
    GLOBAL,
    REMOVE_SET,
    CollectiveRequest,
    CollectiveResponse,
    add_set,
    remove_set,
)
from cloudtrain.distributed.numpy._handle import Handle
from cloudtrain.distributed.numpy._mpi.buffers import combine, zeros_for
from cloudtrain.distributed.numpy._mpi.meeting import Meeting
from cloudtrain.distributed.numpy._mpi.progress import Progress, Transfer
from cloudtrain.distributed.options import cycle_seconds
from cloudtrain.distributed.process_set import ProcessSet
from cloudtrain.distributed.reduce_op import Average, Max, Min, Product, ReduceOp, Sum
from cloudtrain.observe.timeline import recorder
from cloudtrain.observe.timeline.operation import Operation

GONE_SECONDS = 5.0
"""How long an operation may go on after a rank has gone, which may have done its part in it."""
CLOSE_SECONDS = 5.0
"""How long ``shutdown`` waits for what is under way."""
MPI_OPS = {Average: MPI.SUM, Sum: MPI.SUM, Min: MPI.MIN, Max: MPI.MAX, Product: MPI.PROD}

Post = Callable[[MPI.Intracomm, CollectiveResponse], "list[MPI.Request]"]
"""Starts the data's way between the ranks of a process set."""


class Session:
    """To be made by all ranks. Arguments of `cloudtrain.distributed.numpy.init`.

    Raises:
        InvalidArgument, CollectiveError: the ranks did not meet.
    """

    def __init__(self, comm: Any, start_timeout: float | None, timeout: float | None) -> None:
        options.set_up_logging()
        start_timeout = options.start_timeout() if start_timeout is None else start_timeout
        self._timeout = options.collective_timeout() if timeout is None else timeout
        meeting = Meeting(comm, start_timeout)
        self.world = meeting.world
        self._comms = {GLOBAL: meeting.comm}
        """By process set; used by the thread of `Progress`, in the order of verdicts."""
        self.engine = NegotiationClient(self._stand_in, self._timeout, cycle_seconds())
        if self.world.size > 1:
            meeting.join(self.engine, combine, self._timeout)
        self._progress = Progress()
        _timeline.attach(self.world, self.engine.channel.ask_time if self.world.size > 1 else None)

    def submit(
        self,
        kind: str,
        name: str | None,
        process_set: ProcessSet,
        equal: dict[str, Any],
        post: Post,
        finish: Callable[[], Any],
        *,
        own: Any = None,
        payload: bytes | None = None,
        arrived: Callable[[CollectiveResponse, bytes], None] | None = None,
    ) -> Handle:
        """Ask the ranks of ``process_set`` for an operation, and start it once they agree.

        Args:
            equal: what has to be the same on all ranks.
            post: called where the result has not come with the verdict.
            finish: gives the result; called by the thread that waits for it.
            own: what every rank has to know of this one.
            payload: the data, where it is small enough to go along.
            arrived: called with the result of all payloads.
        """
        set_id = process_set.process_set_id
        assert set_id is not None
        request = CollectiveRequest(kind, self.engine.key(set_id, kind, name), set_id, equal, own, payload)

        timeline = recorder.active
        recorded = None if timeline is None else timeline.operation(kind, name or "", equal, negotiated=True)

        def start(verdict: CollectiveResponse) -> Transfer | None:
            if recorded is not None:
                recorded.agreed = recorder.now()
            if verdict.payload is None or arrived is None:
                return self._progress.start(lambda: post(self._comms[set_id], verdict), recorded)
            arrived(verdict, verdict.payload)
            if recorded is not None:
                recorded.end()
            return None

        return Handle(self._operation(request, start, recorded), lambda _: finish())

    def add_set(self, ranks: list[int]) -> int:
        """Its number. To be called by all ranks, with the same ranks."""
        numbers: list[int] = []

        def start(verdict: CollectiveResponse) -> Transfer:
            numbers.extend(verdict.per_rank)
            return self._open(verdict.per_rank[0], ranks)

        self._operation(add_set(ranks), start).wait()
        return numbers[0]

    def remove_set(self, set_id: int) -> None:
        """To be called by all ranks."""
        self._operation(remove_set(set_id), lambda verdict: self._close(set_id)).wait()

    def join(self) -> int:
        """See `NegotiationClient.join`; no rank starts anything here without asking."""
        return self.engine.join(lambda: None) if self.world.size > 1 else 0

    def close(self) -> None:
        """Leave. What is under way may end first, unless a rank has gone."""
        _timeline.detach()
        if self.world.size > 1:
            self.engine.close()
        gone = bool(self.engine.lost)
        if self._progress.close(0.0 if gone else CLOSE_SECONDS) and not gone:
            for comm in self._comms.values():
                comm.Free()

    def _operation(
        self,
        request: CollectiveRequest,
        start: Callable[[CollectiveResponse], Transfer | None],
        recorded: Operation | None = None,
    ) -> _Operation:
        try:
            pending = self.engine.submit(request, start)
        except BaseException:
            if recorded is not None:
                recorded.fail()
            raise
        return _Operation(self.engine, pending, self.world.rank, self._timeout, recorded)

    def _stand_in(self, verdict: CollectiveResponse) -> None:
        """This rank has joined, the others go on: it gives zeros (see `NegotiationClient`)."""
        request = verdict.request
        assert request is not None
        if request.kind == ADD_SET:
            self._open(verdict.per_rank[0], request.must_match["ranks"])
        elif request.kind == REMOVE_SET:
            self._close(request.must_match["process set"])
        elif request.kind == "allreduce" and verdict.payload is None:
            op = MPI_OPS[ReduceOp[request.must_match["operation"]]]
            buffers = [zeros for zeros in zeros_for(request.must_match) if zeros.size]
            self._progress.start(
                lambda: [self._comms[verdict.set_id].Iallreduce(MPI.IN_PLACE, zeros, op) for zeros in buffers]
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
    """`Work`."""

    def __init__(
        self,
        engine: NegotiationClient,
        pending: Negotiation,
        rank: int,
        timeout: float,
        recorded: Operation | None,
    ) -> None:
        self._engine, self._pending = engine, pending
        self._rank, self._timeout = rank, timeout
        self._recorded = recorded

    def done(self) -> bool:
        return self._pending.begun and (self._pending.work is None or self._pending.work.done())

    def wait(self) -> None:
        recorder.wait_for(self._wait, self._pending.request.label, self._recorded)

    def _wait(self) -> None:
        transfer = self._engine.wait(self._pending)
        if transfer is None:
            return
        end = time.monotonic() + self._timeout
        while not transfer.wait(GONE_SECONDS / 10):
            now = time.monotonic()
            if self._engine.lost:
                end = min(end, now + GONE_SECONDS)
            if now >= end:
                raise self._failure(f"it did not end within {self._timeout:g} s")
        if transfer.error is not None:
            raise self._failure(transfer.error) from transfer.error

    def _failure(self, reason: Any) -> CollectiveError:
        lost = "; ".join(f"rank {rank} {why}" for rank, why in sorted(self._engine.lost.items()))
        return CollectiveError(
            f"{self._pending.request.label} failed on rank {self._rank}: {lost or reason}",
            hint="Look at the log of that rank; another one died, hangs, or called another collective.",
        )
