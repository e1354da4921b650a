"""The CloudWatch streams of a job: one for each start of each host.

https://docs.aws.amazon.com/AmazonCloudWatchLogs/latest/APIReference/API_GetLogEvents.html
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from email.utils import parsedate_to_datetime
from typing import Any

from cloudtrain.aws.errors import error_code
from cloudtrain.platforms.common.log_merge import Event, Page
from cloudtrain.platforms.common.request_budget import RequestBudget

GROUP = "/aws/sagemaker/TrainingJobs"
MOST_EVENTS = 10_000
"""The maximum number of events in a response of GetLogEvents."""
FULL_PAGE = 1 << 18
"""In characters. A response of GetLogEvents has at most 1 MiB: one with more than this may be cut off."""

_UNSURE = 1000.0
"""In milliseconds: how late the estimate of CloudWatch's clock may be."""

_RUNTIME_PREFIX = re.compile(r"\[rank \d+\] ")
_STREAM = re.compile(r"(?P<host>.+?)(?:-(?P<start>\d{5,}))?")


def lines(event: Event) -> Iterator[str]:
    """The lines of an event, each with the host as a prefix unless it has the runtime's prefix of its rank."""
    for line in event.text.rstrip("\r\n").split("\n"):
        shown = line.rstrip("\r").rpartition("\r")[2]  # a progress bar overwrites its line
        yield shown if _RUNTIME_PREFIX.match(shown) else f"[{event.host}] {shown}"


class LogStream:
    """Reads one stream page by page, from its first event.

    Args:
        budget: delays the requests of all streams.
        clock: the clock of CloudWatch, which all streams set.
    """

    def __init__(
        self, name: str, client: Any, budget: RequestBudget, clock: ServiceClock | None = None
    ) -> None:
        match = _STREAM.fullmatch(name.partition("/")[2])
        self.name = name
        self.host = match["host"] if match else name
        self._client = client
        self._budget = budget
        self._clock = clock or ServiceClock()
        self._held: list[Event] = []
        self._token: str | None = None
        self._last = 0

    @property
    def holds(self) -> bool:
        """Whether events wait for the next round."""
        return bool(self._held)

    @property
    def order(self) -> tuple[str, int, str]:
        """Sorts ``algo-10`` after ``algo-9``."""
        base, _, number = self.host.rpartition("-")
        return (base, int(number), self.name) if number.isdigit() else (self.host, 0, self.name)

    def next_page(self, limit: int, until: float, *, is_partial: bool = False) -> Page:
        """The next events, and whether they are the last for now. A page may be empty.

        A page is the last one if CloudWatch returns the token that it was given. Raises botocore's errors; the next
        call then repeats the request.

        Args:
            until: milliseconds since the epoch. A page with events that were ingested later is the last one too:
                otherwise, reading a stream that grows faster than it is read would not end.
            is_partial: another round follows. Events that were ingested after ``until`` are held for it, because older
                ones of other streams may come with it, and a page that is not full counts as the last one.
        """
        where = {"logGroupName": GROUP, "logStreamName": self.name, "startFromHead": True, "limit": limit}
        answer = self._ask(where)
        until = self._clock.at(until, answer) + (0.0 if is_partial else _UNSURE)
        token, found = answer.get("nextForwardToken"), answer["events"]
        early = next(
            (index for index, event in enumerate(found) if event.get("ingestionTime", 0) > until), len(found)
        )
        is_last = token in (None, self._token) or early < len(found)
        if is_partial and found and len(found) < limit:
            is_last |= sum(len(event["message"]) for event in found) < FULL_PAGE
        self._token = token or self._token
        events = [Event(event["timestamp"], self.host, event["message"]) for event in found]
        if events:
            self._last = events[-1].time
        ready = len(events) if not is_partial else early
        shown, self._held = [*self._held, *events[:ready]], events[ready:]
        return shown, is_last

    def _ask(self, where: dict[str, Any]) -> dict[str, Any]:
        from botocore.exceptions import ClientError

        token = {"nextToken": self._token} if self._token else {}
        self._budget.wait()
        try:
            answer: dict[str, Any] = self._client.get_log_events(**where, **token)
        except ClientError as error:
            if not token or error_code(error) != "InvalidParameterException":
                raise
            # tokens expire after 24 hours
            self._budget.wait()
            answer = self._client.get_log_events(**where, startTime=self._last + 1)
        return answer


class ServiceClock:
    """The clock of a service, from the times of its responses, as it runs ahead of or behind this machine's.

    A time without fractions of a second is up to one second late: the latest estimate counts.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ahead: float | None = None
        self._last = (0.0, 0.0)

    def at(self, moment: float, answer: Mapping[str, Any]) -> float:
        """The service's time at ``moment`` of this machine's clock, both in milliseconds since the epoch.

        It is the same for all calls with one ``moment``, though estimates improve.

        Args:
            answer: a response of the service that has just arrived.
        """
        date = answer.get("ResponseMetadata", {}).get("HTTPHeaders", {}).get("date", "")
        with self._lock:
            with suppress(ValueError, TypeError):
                ahead = 1000 * (parsedate_to_datetime(date).timestamp() - time.time())
                self._ahead = ahead if self._ahead is None else max(self._ahead, ahead)
            if self._last[0] != moment:
                self._last = (moment, moment + (self._ahead or 0.0))
            return self._last[1]


def find_streams(
    job_name: str, client: Any, budget: RequestBudget, clock: ServiceClock | None = None
) -> list[LogStream]:
    """All current streams of the job, sorted by host; empty if it has not logged anything yet."""
    from botocore.exceptions import ClientError

    pages = client.get_paginator("describe_log_streams")
    try:
        names = [
            stream["logStreamName"]
            for page in pages.paginate(logGroupName=GROUP, logStreamNamePrefix=f"{job_name}/")
            for stream in page["logStreams"]
        ]
    except ClientError as error:
        if error_code(error) != "ResourceNotFoundException":
            raise
        return []
    return sorted((LogStream(name, client, budget, clock) for name in names), key=lambda stream: stream.order)
