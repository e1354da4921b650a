"""Negotiates the collectives of this rank: from the request to the coordinator until the operation starts."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Iterator
from typing import Any, Callable, Protocol

from cloudtrain.distributed._objects import Objects
from cloudtrain.distributed.errors import CollectiveError, InvalidArgument
from cloudtrain.distributed.negotiation.connection import REST_SECONDS
from cloudtrain.distributed.negotiation.messages import GLOBAL, JOIN, CollectiveRequest, CollectiveResponse
from cloudtrain.distributed.options import CYCLE_SECONDS
from cloudtrain.observe.timeline import recorder
from cloudtrain.observe.timeline.clock import Exchange
from cloudtrain.observe.timeline.recorder import Operation

NAME_HOLD_SECONDS = 0.05
"""How long a name stays reserved after its operation was requested, unless the script waits for it first. Otherwise
whether reusing a name is an error would depend on how fast the other ranks are."""
MAX_HELD_NAMES = 1000
"""Above this number of reserved names, expired ones are removed."""
JOIN_POLL_SECONDS = 0.005
"""How often a joined rank checks what the other ranks have launched."""
JOIN_BUSY_SECONDS = 0.0005
"""The same, right after they have launched something: the next launch may wait for the first."""
GRACE_SECONDS = 15.0
"""How much longer than the coordinator a rank waits, in case the coordinator hangs."""

Start = Callable[[CollectiveResponse], Any]
"""Starts the transfer and returns the work to wait for, or None. Called in the order of responses."""


class Channel(Protocol):
    """Sends requests to the coordinator: the `Coordinator` itself on rank 0, otherwise a `CoordinatorConnection`."""

    def announce(self, request: CollectiveRequest) -> None: ...

    def ask_time(self) -> Exchange | None: ...

    def drive(self, done: Callable[[], bool], deadline: float) -> bool: ...

    def positions(self) -> dict[int, Any]: ...

    def close(self) -> None: ...


class Negotiation:
    """One requested operation."""

    __slots__ = ("_cycle", "_settled", "_start", "error", "request", "requested_at", "work")

    def __init__(self, request: CollectiveRequest, start: Start, cycle: float) -> None:
        self.request = request
        self._cycle = cycle
        self.requested_at = time.monotonic()
        self._start: Start | None = start
        self.work: Any = None
        self.error: Exception | None = None
        self._settled = threading.Lock()
        self._settled.acquire()

    @property
    def started(self) -> bool:
        """Whether the operation has started on all ranks, or failed, and the cycle time has passed."""
        return self._start is None and time.monotonic() - self.requested_at > self._cycle

    def settle(self, response: CollectiveResponse) -> None:
        """Start the operation, or fail, as the coordinator responded. Called once."""
        start, error = self._start, response.error
        if error:
            self.error = CollectiveError(error, hint="Call the same operations on all ranks.")
        elif start is not None:
            try:
                self.work = start(response)
            except Exception as raised:
                self.error = raised
        self._start = None
        with contextlib.suppress(RuntimeError):
            self._settled.release()

    @property
    def settled(self) -> bool:
        """Whether the response has arrived."""
        return self._start is None

    def wait(self, timeout: float) -> bool:
        """Wait up to ``timeout`` seconds for the response; returns `settled`."""
        if self._start is not None and self._settled.acquire(timeout=timeout):
            self._settled.release()
        return self._start is None

    def result(self) -> Any:
        """The return value of ``start``, once `settled`. Raises the error of the negotiation or of ``start``."""
        if self.error is not None:
            raise self.error
        return self.work


class NegotiationClient:
    """Negotiates all operations of this rank.

    Args:
        contribute: called after this rank has joined, to take part in an operation that the other ranks run.
        timeout: seconds that an operation may wait for other ranks.
        cycle: seconds before any operation counts as started. Horovod collects operations for one cycle, and scripts
            can observe that through ``poll``.
    """

    channel: Channel
    objects: Objects
    """Packs objects for other ranks, and unpacks what other ranks packed."""

    def __init__(
        self, contribute: Callable[[CollectiveResponse], None], timeout: float, cycle: float = CYCLE_SECONDS
    ) -> None:
        self._contribute = contribute
        self.objects = Objects()
        self._timeout = timeout + GRACE_SECONDS
        self._cycle = cycle
        self._pending: dict[tuple[int, str], Negotiation] = {}
        self._held_names: dict[tuple[int, str], float] = {}
        """The request times of settled operations that the script has not waited for."""
        self._unnamed: dict[int, int] = {}
        """The number of unnamed operations so far, by process set."""
        self.lost: dict[int, str] = {}
        """Ranks that died, with the reason; also rank 0 after a regular shutdown."""
        self.left: dict[int, str] = {}
        """All ranks that ended before this one, with the reason, in the order in which they ended."""
        self.on_death: Callable[[int], None] = lambda rank: None
        """Called with every rank that died, in a thread that must not block."""
        self.sequence_numbers = SequenceNumbers()
        """The collectives that this rank launched without negotiation."""
        self.layer_numbers = SequenceNumbers()
        """The collectives inside layers, whose order among the others may differ between ranks."""
        self.closed = threading.Event()
        self._asking = threading.Lock()

    def key(self, set_id: int, kind: str, name: str | None) -> str:
        """The key by which ranks match an operation: its kind and name, or a sequence number if it has no name."""
        if name is not None:
            return f"{kind}:{name}"
        number = self._unnamed.get(set_id, 0)
        self._unnamed[set_id] = number + 1
        return f"noname.{number}"

    def join(self, contribute: Callable[[], bool]) -> int:
        """Wait, without a timeout, until all ranks have joined. Returns the rank that joined last.

        Args:
            contribute: called periodically, to take part in collectives launched without negotiation. Returns whether
                it took part in any.
        """
        responses: list[CollectiveResponse] = []
        request = CollectiveRequest(JOIN, JOIN, per_rank=list(self._unnamed.items()))
        pending = self.submit(request, responses.append)
        poll = JOIN_POLL_SECONDS
        while not pending.wait(poll):
            poll = JOIN_BUSY_SECONDS if contribute() else JOIN_POLL_SECONDS
        pending.result()
        for numbers in (self.sequence_numbers, self.layer_numbers):
            numbers.joins += 1
        last, counts = responses[0].per_rank
        # Unnamed operations that ran without this rank were numbered: continue after the last number.
        for set_id, number in counts:
            self._unnamed[set_id] = max(number, self._unnamed.get(set_id, 0))
        return int(last)

    def negotiate(
        self,
        kind: str,
        name: str | None,
        set_id: int,
        must_match: dict[str, Any],
        transfer: Callable[[CollectiveResponse, Operation | None], Any],
        *,
        per_rank: Any = None,
        payload: bytes | None = None,
        arrived: Callable[[CollectiveResponse], None] | None = None,
    ) -> tuple[Negotiation, Operation | None]:
        """Request a collective from the ranks of a process set; it starts once they agree.

        Args:
            must_match: what must be the same on all ranks.
            transfer: starts it, unless the response carries the result; records its end, and returns its work.
            per_rank: data of this rank that every rank needs.
            payload: the data, if it is small enough to be sent with the request.
            arrived: called with the response that carries the combined payloads.

        Returns:
            The negotiation, and the record in the timeline.
        """
        request = CollectiveRequest(kind, self.key(set_id, kind, name), set_id, must_match, per_rank, payload)
        timeline, operation = recorder.active, None
        if timeline is not None:
            operation = timeline.operation(kind, name or "", must_match, negotiated=True)

        def start(response: CollectiveResponse) -> Any:
            if operation is not None:
                operation.agreed = recorder.now()
            if response.payload is None or arrived is None:
                return transfer(response, operation)
            arrived(response)
            if operation is not None:
                operation.end()
            return None

        try:
            return self.submit(request, start), operation
        except BaseException:
            if operation is not None:
                operation.fail()
            raise

    def submit(self, request: CollectiveRequest, start: Start) -> Negotiation:
        """Request an operation. Raises InvalidArgument if one with the same name is in flight on this rank."""
        if 0 in self.lost:
            raise CollectiveError(f"{request.label}: {self._gone()}", hint="Look at its log.")
        pending = Negotiation(request, start, self._cycle)
        key = (request.set_id, request.key)
        held = self._held_names.pop(key, 0.0) + NAME_HOLD_SECONDS > pending.requested_at
        if held or self._pending.setdefault(key, pending) is not pending:
            raise InvalidArgument(
                f"{request.label}: another {request.kind} with this name is in flight",
                hint="Wait for it first (synchronize), or give each tensor a unique name.",
            )
        try:
            self.channel.announce(request)
        except BaseException:
            self._pending.pop(key, None)
            raise
        if 0 in self.lost:  # lost between the check above and the request
            self.lose(0, self.lost[0])
        return pending

    def wait(self, pending: Negotiation) -> Any:
        """Wait until the operation has started on all ranks, and return its work. Raises CollectiveError."""
        deadline = time.monotonic() + self._timeout
        while not pending.settled and time.monotonic() < deadline:
            if not self.channel.drive(lambda: pending.settled, deadline):
                pending.wait(REST_SECONDS)
        if not pending.settled:
            error = f"{pending.request.label}: no answer from rank 0 within {self._timeout:g} s"
            self.deliver(CollectiveResponse(pending.request.set_id, pending.request.key, error))
        self.release(pending)
        return pending.result()

    def release(self, pending: Negotiation) -> None:
        """Free the operation's name, because the script has seen that the operation is done."""
        self._held_names.pop((pending.request.set_id, pending.request.key), None)

    def deliver(self, response: CollectiveResponse) -> None:
        """Act on a response of the coordinator."""
        pending = self._pending.pop((response.set_id, response.key), None)
        if pending is not None:
            if pending.request.named:
                self._hold_name(response, pending.requested_at)
            pending.settle(response)
        elif response.request is not None and not response.error:
            try:
                self._contribute(response)
            except Exception as error:  # only the join waits for it
                self.deliver(CollectiveResponse(GLOBAL, JOIN, f"join: {response.request.label}: {error}"))

    def _hold_name(self, response: CollectiveResponse, requested_at: float) -> None:
        if len(self._held_names) > MAX_HELD_NAMES:
            expired = time.monotonic() - NAME_HOLD_SECONDS
            self._held_names = {key: at for key, at in self._held_names.items() if at > expired}
        self._held_names[response.set_id, response.key] = requested_at

    def lose(self, rank: int, why: str, died: bool = True) -> None:
        """Record that a rank ended. Without rank 0, all pending operations fail."""
        self.left[rank] = why
        if died:
            self.lost[rank] = why
            self.on_death(rank)
        if rank == 0:
            for pending in list(self._pending.values()):
                error = f"{pending.request.label}: {self._gone()}"
                self.deliver(CollectiveResponse(pending.request.set_id, pending.request.key, error))

    def _gone(self) -> str:
        """Why rank 0 has ended; if another rank ended first, that rank is named as the cause."""
        first, why = next(iter(self.left.items()))
        return f"rank {first} {why}" + ("" if first == 0 else f", and then rank 0 {self.left[0]}")

    def positions(self) -> dict[int, Any]:
        """The `position` of every rank that responds, by rank."""
        with self._asking:
            return {} if 0 in self.lost else self.channel.positions()

    def position(self) -> dict[str, Any]:
        """This rank's position among the collectives that are not negotiated, as JSON for the other ranks."""
        return {**self.sequence_numbers.position(), "layers": self.layer_numbers.position()}

    def waiting(self) -> list[str]:
        """The operations of this rank that not all ranks have requested."""
        return [pending.request.label for pending in list(self._pending.values())]

    def close(self) -> None:
        """Leave, and notify the other ranks. Pending operations of this rank fail."""
        self.closed.set()
        self.channel.close()
        for pending in list(self._pending.values()):
            error = f"{pending.request.label}: this rank has shut down"
            self.deliver(CollectiveResponse(pending.request.set_id, pending.request.key, error))


class Work(Protocol):
    """The work that carries out a collective."""

    def is_completed(self) -> bool: ...


class SequenceNumbers:
    """Numbers the collectives that this rank launches without negotiation, and keeps those that may be in flight.

    All ranks launch them in the same order. Other ranks request this rank's position after a failure, to find the rank
    that is behind, and after they have joined, to take part.
    """

    def __init__(self) -> None:
        self.count = 0
        self.joins = 0
        """How often all ranks have joined."""
        self._label = ""
        self._in_flight: deque[_Launch] = deque()
        self._lock = threading.Lock()

    def add(self, label: str, spec: Any) -> int:
        """Record a launch and return its number. A joined rank takes part according to ``spec`` (JSON)."""
        with self._lock:
            self._drop_completed()
            self.count += 1
            self._label = label
            self._in_flight.append(_Launch(spec, label))
            return self.count

    def carry(self, number: int, work: Work) -> None:
        """Record that launch ``number`` completes with ``work``; on a GPU, a wait for it may return earlier."""
        with self._lock:
            index = number - self._first()
            if index >= 0:
                self._in_flight[index].work = work

    def complete(self, number: int) -> None:
        """Record that launch ``number`` and all launches before it are complete."""
        with self._lock:
            for _ in range(number - self._first() + 1):
                self._in_flight.popleft()

    def waiting(self, seconds: float) -> tuple[int, str] | None:
        """The number and label of the oldest launch, if it has been in flight for at least ``seconds``."""
        before = time.monotonic() - seconds
        with self._lock:
            # Query a GPU only about old launches, because another thread may be capturing a CUDA graph.
            while self._in_flight and self._in_flight[0].since <= before:
                if not self._in_flight[0].is_completed():
                    return self._first(), self._in_flight[0].label
                self._in_flight.popleft()
        return None

    def carried(self) -> bool:
        """Whether there is work for a launch that is not complete."""
        with self._lock:
            self._drop_completed()
            return any(launch.work is not None for launch in self._in_flight)

    def position(self) -> dict[str, Any]:
        """This rank's position in the sequence, as JSON for the other ranks."""
        with self._lock:
            self._drop_completed()
            specs = [launch.spec for launch in self._in_flight]
            return {"at": self._label, "launched": self.count, "joins": self.joins, "in flight": specs}

    def missing(self, position: dict[str, Any]) -> Iterator[Any]:
        """The specs of what another rank at ``position`` has launched before it joins, and this rank has not launched.

        One rank may learn of the end of a join before another does. Its launches from then on involve both.
        """
        if position["joins"] != self.joins:
            return
        first = position["launched"] - len(position["in flight"]) + 1
        yield from position["in flight"][max(self.count - first + 1, 0) :]

    def _first(self) -> int:
        """The number of the first launch in flight."""
        return self.count - len(self._in_flight) + 1

    def _drop_completed(self) -> None:
        while self._in_flight and self._in_flight[0].is_completed():
            self._in_flight.popleft()


class _Launch:
    """A launch that may be in flight."""

    __slots__ = ("label", "since", "spec", "work")

    def __init__(self, spec: Any, label: str) -> None:
        self.spec = spec
        self.label = label
        self.since = time.monotonic()
        self.work: Work | None = None

    def is_completed(self) -> bool:
        return self.work is not None and self.work.is_completed()
