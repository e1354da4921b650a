"""Many streams of a job's log as one: read in rounds, merged in time order."""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

HELD_EVENTS = 100_000
"""How many events are held at the same time, of all streams together; as many more may be on their way."""


class Event(NamedTuple):
    """The output of one write on a host. ``time`` is in milliseconds since the epoch."""

    time: int
    host: str
    text: str


Page = tuple[list[Event], bool]
"""Events, and whether they are the last for now."""


class LogStream(Protocol):
    """The log of one start of one host."""

    name: str

    @property
    def order(self) -> tuple[str, int, str]:
        """Sorts streams; the first comes first among events of the same time."""
        ...

    def next_page(self, limit: int, until: float) -> Page:
        """The next events, at most ``limit``. After an error, the next call asks for the same ones.

        Args:
            until: milliseconds since the epoch; a page with an event that came in later is the last for now.
        """
        ...


S = TypeVar("S", bound=LogStream)


class LogMerge(Generic[S]):
    """The streams of a job that are known so far.

    Trouble that passes, such as throttling or a lost network, ends a round early and loses nothing.

    Args:
        find: finds the job's streams, those that are known too.
        is_transient: whether asking again may help after an error.
        most_events: the largest page that a stream gives.
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

    def round(self, pool: ThreadPoolExecutor, *, find: bool = True) -> Iterator[Event]:
        """The new events of all streams, in time order. Raises what ``find`` and the streams raise.

        Args:
            find: look for new streams first.
        """
        self.trouble = None
        if find:
            for stream in self._unless_in_trouble(self._find_streams) or ():
                self.streams.setdefault(stream.name, stream)
        streams = sorted(self.streams.values(), key=lambda stream: stream.order)
        began = 1000 * time.time()
        limit = min(self._most_events, max(1, HELD_EVENTS // max(1, len(streams))))
        asks = [partial(pool.submit, stream.next_page, limit, began) for stream in streams]
        # all first pages are asked for before one is waited for
        parts = [self._read(ask(), ask) for ask in asks]
        return heapq.merge(*parts, key=lambda event: event.time)

    def _read(self, page: Future[Page], ask: Callable[[], Future[Page]]) -> Iterator[Event]:
        """The new events of one stream. The next page is on its way while one is given out."""
        while True:
            read = self._unless_in_trouble(page.result)
            if read is None:
                return
            events, is_last = read
            if not is_last:
                page = ask()
            yield from events
            if is_last:
                return

    def _unless_in_trouble(self, ask: Callable[[], Any]) -> Any:
        """The answer, or None if it may come later."""
        try:
            return ask()
        except Exception as error:
            if not self._is_transient(error):
                raise
            self.trouble = error
            return None
