"""All streams of a job, read in rounds: what is new in each, in time order."""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any

from cloudtrain.aws.errors import aws_errors, may_pass
from cloudtrain.platforms.sagemaker._streams import MOST_EVENTS, Event, LogStream, Page, find_streams

HELD_EVENTS = 100_000
"""How many events are held at once, of all streams together; as many more may be on their way."""


class LogReader:
    """The streams that are known so far.

    Throttling, and a network that is gone for a while, end a round early, and lose nothing.
    """

    def __init__(self, job_name: str, client: Any) -> None:
        self.job_name = job_name
        self.streams: dict[str, LogStream] = {}
        self.trouble: Exception | None = None
        """What has ended the last round early."""
        self._client = client

    def round(self, pool: ThreadPoolExecutor, *, find: bool = True) -> Iterator[str]:
        """The new lines of all streams, in time order. Raises PlatformError.

        Args:
            find: look for new streams first.
        """
        self.trouble = None
        if find:
            self._find()
        streams = sorted(self.streams.values(), key=lambda stream: stream.order)
        began = 1000 * time.time()
        limit = min(MOST_EVENTS, max(1, HELD_EVENTS // max(1, len(streams))))
        asks = [partial(pool.submit, stream.next_page, limit, began) for stream in streams]
        # all first pages are asked for before one is waited for
        parts = [self._read(ask(), ask) for ask in asks]
        for event in heapq.merge(*parts, key=lambda event: event.time):
            yield from event.lines()

    def _find(self) -> None:
        found = self._unless_in_trouble(lambda: find_streams(self.job_name, self._client))
        for stream in found or ():
            self.streams.setdefault(stream.name, stream)

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
        """The answer, or None where it may come later."""
        with aws_errors(f"the logs of job {self.job_name}"):
            try:
                return ask()
            except Exception as error:
                if not may_pass(error):
                    raise
                self.trouble = error
                return None
