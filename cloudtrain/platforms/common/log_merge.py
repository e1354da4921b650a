"""Merges the streams of a job's log in time order, in rounds."""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

AT_ONCE = 40
"""The number of streams in a round, unless more are busy."""
BUSY_SECONDS = 60.0
"""How long a stream counts as busy after its last events."""
HELD_EVENTS = 300_000
"""The maximum number of events in memory, for all streams. As many more may be in transfer."""


class Event(NamedTuple):
    """The output of one write on a host. ``time`` is in milliseconds since the epoch."""

    time: int
    host: str
    text: str


Page = tuple[list[Any], bool]
"""Events, and whether these are all that are available so far. The ``time`` of all events of a merge has one unit."""


class LogStream(Protocol):
    """The log of one start of a host."""

    name: str

    @property
    def holds(self) -> bool:
        """Whether it has events that `next_page` has not returned yet."""

    @property
    def order(self) -> tuple[str, int, str]:
        """The sort key of streams, which orders events with equal times."""

    def next_page(self, limit: int, until: float, *, is_partial: bool) -> Page:
        """The next events, at most ``limit``. After an error, the next call requests the same ones.

        Args:
            until: milliseconds since the epoch. A page with a later event is the stream's last in this round.
            is_partial: whether another round follows, for which later events are held. The stream may then end early.
        """


S = TypeVar("S", bound=LogStream)


class Turns:
    """Busy streams are read in every round, quiet ones in turns: at least a quarter as many as there are busy ones."""

    def __init__(self) -> None:
        self._read_at: dict[str, float] = {}
        self._busy_until: dict[str, float] = {}

    def due(self, streams: Sequence[S]) -> list[S]:
        """The streams of the next round, in the same order. They include all that were never read."""
        now = time.monotonic()
        busy = {stream.name for stream in streams if self._busy_until.get(stream.name, now + 1) > now}
        quiet = [stream.name for stream in streams if stream.name not in busy]
        quiet.sort(key=self._read_at.__getitem__)
        due = busy.union(quiet[: max(AT_ONCE - len(busy), len(busy) // 4)])
        return [stream for stream in streams if stream.name in due]

    def was_read(self, stream: S, *, is_busy: bool) -> None:
        """Note that ``stream`` has been read."""
        now = time.monotonic()
        self._read_at[stream.name] = now
        self._busy_until[stream.name] = (
            now + BUSY_SECONDS if is_busy else self._busy_until.get(stream.name, now)
        )


class LogMerge(Generic[S]):
    """The streams of a job that are known so far.

    A transient error, such as throttling or a network failure, ends a round early. No events are lost.

    Args:
        find: returns all of the job's streams, including known ones.
        is_transient: whether a request may succeed if it is repeated after this error.
        most_events: the maximum size of a page.
    """

    def __init__(
        self,
        find: Callable[[], Iterable[S]],
        is_transient: Callable[[BaseException], bool],
        most_events: int,
    ) -> None:
        self.streams: dict[str, S] = {}
        self.trouble: Exception | None = None
        """The error that ended the last round early."""
        self._find_streams = find
        self._is_transient = is_transient
        self._most_events = most_events
        self._turns = Turns()

    def round(
        self, pool: ThreadPoolExecutor, *, find: bool = True, is_partial: bool = False
    ) -> Iterator[Any]:
        """The new events of all streams, in time order. Raises what ``find`` and the streams raise.

        Args:
            find: whether to look for new streams first.
            is_partial: whether another round follows, to which quiet streams and the newest events may be left.
        """
        self.trouble = None
        if find:
            for stream in self._unless_in_trouble(self._find_streams) or ():
                self.streams.setdefault(stream.name, stream)
        streams = sorted(self.streams.values(), key=lambda stream: stream.order)
        if is_partial:
            streams = self._turns.due(streams)
        began = 1000 * time.time()
        limit = min(self._most_events, max(1, HELD_EVENTS // max(1, len(streams))))
        pages = [partial(stream.next_page, limit, began, is_partial=is_partial) for stream in streams]
        asks = [partial(pool.submit, page) for page in pages]
        # request the first pages of all streams before waiting for any
        parts = [self._read(stream, ask(), ask) for stream, ask in zip(streams, asks, strict=True)]
        return heapq.merge(*parts, key=lambda event: event.time)

    def _read(self, stream: S, page: Future[Page], ask: Callable[[], Future[Page]]) -> Iterator[Any]:
        """The new events of one stream. Requests the next page before it yields the current one."""
        while True:
            read = self._unless_in_trouble(page.result)
            if read is None:
                return
            events, is_last = read
            self._turns.was_read(stream, is_busy=bool(events) or stream.holds)
            if not is_last:
                page = ask()
            yield from events
            if is_last:
                return

    def _unless_in_trouble(self, ask: Callable[[], Any]) -> Any:
        """The result of a request; None if it failed with a transient error."""
        try:
            return ask()
        except Exception as error:
            if not self._is_transient(error):
                raise
            self.trouble = error
            return None
