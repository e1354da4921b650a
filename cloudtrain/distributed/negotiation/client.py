"""This rank's operations between their request and their start."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from typing import Any, Callable, Protocol

from cloudtrain.distributed.errors import CollectiveError, InvalidArgument
from cloudtrain.distributed.negotiation.messages import GLOBAL, JOIN, CollectiveRequest, CollectiveResponse
from cloudtrain.distributed.negotiation.reader import REST_SECONDS
from cloudtrain.distributed.options import CYCLE_SECONDS
from cloudtrain.observe.timeline.clock import Exchange

HELD_SECONDS = 0.05
"""How long a name is taken by an operation that nobody has waited for yet, even if it is done: whether giving the
name twice is an error must not depend on how fast the other ranks are."""
MOST_HELD = 1000
"""How many such names are kept before old ones are looked for."""
JOIN_SECONDS = 0.005
"""How often a rank that has joined looks for what the others have launched."""
GRACE_SECONDS = 15.0
"""How much longer than the coordinator a rank waits, in case the coordinator itself hangs."""

Start = Callable[[CollectiveResponse], Any]
"""Starts the data's way, and gives what to wait for, or None. Called in the order of responses."""


class Channel(Protocol):
    """What takes requests to the coordinator: itself on rank 0, else a `CoordinatorConnection`."""

    def announce(self, request: CollectiveRequest) -> None: ...

    def ask_time(self) -> Exchange | None: ...

    def drive(self, over: Callable[[], bool], deadline: float) -> bool: ...

    def positions(self) -> dict[int, Any]: ...

    def close(self) -> None: ...


class Negotiation:
    """An operation that was asked for."""

    __slots__ = ("_begun", "_cycle", "asked_at", "error", "request", "started", "work")

    def __init__(self, request: CollectiveRequest, start: Start, cycle: float) -> None:
        self.request = request
        self._cycle = cycle
        self.asked_at = time.monotonic()
        self.started: Start | None = start
        self.work: Any = None
        self.error: Exception | None = None
        self._begun = threading.Lock()
        self._begun.acquire()

    @property
    def begun(self) -> bool:
        """Whether all ranks have come, or the operation has failed."""
        return self.started is None and time.monotonic() - self.asked_at > self._cycle

    def settle(self, response: CollectiveResponse) -> None:
        """The response has come; called once."""
        start, error = self.started, response.error
        if error:
            self.error = CollectiveError(error, hint="Call the same operations on all ranks.")
        elif start is not None:
            try:
                self.work = start(response)
            except Exception as raised:
                self.error = raised
        self.started = None
        with contextlib.suppress(RuntimeError):
            self._begun.release()

    @property
    def settled(self) -> bool:
        """Whether the response has come."""
        return self.started is None

    def over(self, timeout: float) -> bool:
        """Whether the response has come, or comes within ``timeout`` seconds."""
        if self.started is not None and self._begun.acquire(timeout=timeout):
            self._begun.release()
        return self.started is None

    def result(self) -> Any:
        """What ``start`` gave, once it is `settled`. Raises what went wrong before or in it."""
        if self.error is not None:
            raise self.error
        return self.work


class NegotiationClient:
    """All operations of this rank that wait for the others.

    Args:
        stand_in: takes part in an operation that the others run after this rank has joined.
        timeout: seconds that an operation may wait for ranks.
        cycle: seconds for which no operation counts as done: Horovod collects them for so long, and scripts see
            that by ``poll``.
    """

    channel: Channel

    def __init__(
        self, stand_in: Callable[[CollectiveResponse], None], timeout: float, cycle: float = CYCLE_SECONDS
    ) -> None:
        self._stand_in = stand_in
        self._timeout = timeout + GRACE_SECONDS
        self._cycle = cycle
        self.joins = 0
        """How often all ranks have joined."""
        self._pending: dict[tuple[int, str], Negotiation] = {}
        self._done: dict[tuple[int, str], float] = {}
        """When those were asked for that are done, but that nobody has waited for."""
        self._unnamed: dict[int, int] = {}
        self.lost: dict[int, str] = {}
        """Ranks that have died, and how; and rank 0 where it has ended."""
        self.left: dict[int, str] = {}
        """All ranks that have ended before this one, and how; the first to go is the first."""
        self.sequence_numbers = SequenceNumbers()
        """The operations that need no agreement."""

    def key(self, set_id: int, kind: str, name: str | None) -> str:
        """What an operation is matched by: its kind and name, or its number where it has no name."""
        if name is not None:
            return f"{kind}:{name}"
        number = self._unnamed.get(set_id, 0)
        self._unnamed[set_id] = number + 1
        return f"noname.{number}"

    def join(self, take_part: Callable[[], None]) -> int:
        """Wait, for as long as it takes, until all ranks have joined; the one that joined last.

        Args:
            take_part: called now and then meanwhile.
        """
        responses: list[CollectiveResponse] = []
        request = CollectiveRequest(JOIN, JOIN, per_rank=list(self._unnamed.items()))
        pending = self.submit(request, responses.append)
        while not pending.over(JOIN_SECONDS):
            take_part()
        pending.result()
        self.joins += 1
        last, counts = responses[0].per_rank
        # What went on without this rank had numbers for names: go on where that ended.
        for set_id, number in counts:
            self._unnamed[set_id] = max(number, self._unnamed.get(set_id, 0))
        return int(last)

    def submit(self, request: CollectiveRequest, start: Start) -> Negotiation:
        """Raises InvalidArgument where an operation of this name is under way."""
        if 0 in self.lost:
            raise CollectiveError(f"{request.label}: {self._gone()}", hint="Look at its log.")
        pending = Negotiation(request, start, self._cycle)
        key = (request.set_id, request.key)
        held = self._done.pop(key, 0.0) + HELD_SECONDS > pending.asked_at
        if held or self._pending.setdefault(key, pending) is not pending:
            raise InvalidArgument(
                f"{request.label}: another {request.kind} of that name is under way",
                hint="Wait for it (synchronize), or give each tensor a name of its own.",
            )
        try:
            self.channel.announce(request)
        except BaseException:
            self._pending.pop(key, None)
            raise
        if 0 in self.lost:  # since we have asked above
            self.lose(0, self.lost[0])
        return pending

    def wait(self, pending: Negotiation) -> Any:
        """What the start of the operation gave, once all ranks have come. Raises what went wrong before or in it."""
        deadline = time.monotonic() + self._timeout
        while not pending.settled and time.monotonic() < deadline:
            if not self.channel.drive(lambda: pending.settled, deadline):
                pending.over(REST_SECONDS)
        if not pending.settled:
            error = f"{pending.request.label}: no answer from rank 0 within {self._timeout:g} s"
            self.deliver(CollectiveResponse(pending.request.set_id, pending.request.key, error))
        self.release(pending)
        return pending.result()

    def release(self, pending: Negotiation) -> None:
        """The script knows that the operation is over: its name may be used again."""
        self._done.pop((pending.request.set_id, pending.request.key), None)

    def deliver(self, response: CollectiveResponse) -> None:
        pending = self._pending.pop((response.set_id, response.key), None)
        if pending is not None:
            if pending.request.named:
                self._hold(response, pending.asked_at)
            pending.settle(response)
        elif response.request is not None and not response.error:
            try:
                self._stand_in(response)
            except Exception as error:  # nobody waits for it but the join
                self.deliver(CollectiveResponse(GLOBAL, JOIN, f"join: {response.request.label}: {error}"))

    def _hold(self, response: CollectiveResponse, asked_at: float) -> None:
        if len(self._done) > MOST_HELD:
            over = time.monotonic() - HELD_SECONDS
            self._done = {key: asked for key, asked in self._done.items() if asked > over}
        self._done[response.set_id, response.key] = asked_at

    def lose(self, rank: int, why: str, died: bool = True) -> None:
        """A rank is gone. If it is rank 0, nothing can be agreed on any more."""
        self.left[rank] = why
        if died:
            self.lost[rank] = why
        if rank == 0:
            for pending in list(self._pending.values()):
                error = f"{pending.request.label}: {self._gone()}"
                self.deliver(CollectiveResponse(pending.request.set_id, pending.request.key, error))

    def _gone(self) -> str:
        """Rank 0 is; but where another went before it, that is why."""
        first, why = next(iter(self.left.items()))
        return f"rank {first} {why}" + ("" if first == 0 else f", and then rank 0 {self.left[0]}")

    def positions(self) -> dict[int, Any]:
        """Where every rank is that answers, by rank."""
        return {} if 0 in self.lost else self.channel.positions()

    def close(self) -> None:
        """Leave; the others are told. What is under way here fails."""
        self.channel.close()
        for pending in list(self._pending.values()):
            error = f"{pending.request.label}: this rank has shut down"
            self.deliver(CollectiveResponse(pending.request.set_id, pending.request.key, error))


class SequenceNumbers:
    """Counts them, and remembers those that may be under way still.

    The others learn of it when they fail, to say which rank is behind, or after they have joined, to take part.
    """

    def __init__(self) -> None:
        self.count = 0
        self._label = ""
        self._under_way: list[Any] = []
        self._lock = threading.Lock()

    def add(self, label: str, spec: Any) -> int:
        """Something was launched; ``spec`` (JSON) tells a rank that has joined what to do. Its number."""
        with self._lock:
            self.count += 1
            self._label = label
            self._under_way.append(spec)
            return self.count

    def complete(self, number: int) -> None:
        """The launch of that ``number`` has ended, and so have all before it."""
        with self._lock:
            first = self.count - len(self._under_way) + 1
            del self._under_way[: max(number - first + 1, 0)]

    def position(self) -> dict[str, Any]:
        """Where this rank is, for the others (JSON)."""
        with self._lock:
            return {"at": self._label, "launched": self.count, "under way": list(self._under_way)}

    def missing(self, position: dict[str, Any]) -> Iterator[Any]:
        """What another rank at ``place`` has launched and this one has not."""
        first = position["launched"] - len(position["under way"]) + 1
        yield from position["under way"][max(self.count - first + 1, 0) :]
