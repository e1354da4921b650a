"""The CloudWatch streams of a job: one for each start of each host.

https://docs.aws.amazon.com/AmazonCloudWatchLogs/latest/APIReference/API_GetLogEvents.html
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from cloudtrain.aws.errors import error_code
from cloudtrain.platforms.common.log_merge import Event, Page

GROUP = "/aws/sagemaker/TrainingJobs"
MOST_EVENTS = 10_000
"""The maximum number of events in a response of GetLogEvents."""

_RUNTIME_PREFIX = re.compile(r"\[rank \d+\] ")
_STREAM = re.compile(r"(?P<host>.+?)(?:-(?P<start>\d{5,}))?")


def lines(event: Event) -> Iterator[str]:
    """The lines of an event, each with the host as a prefix unless it has the runtime's prefix of its rank."""
    for line in event.text.rstrip("\r\n").split("\n"):
        shown = line.rstrip("\r").rpartition("\r")[2]  # a progress bar overwrites its line
        yield shown if _RUNTIME_PREFIX.match(shown) else f"[{event.host}] {shown}"


class LogStream:
    """Reads one stream page by page, from its first event."""

    def __init__(self, name: str, client: Any) -> None:
        match = _STREAM.fullmatch(name.partition("/")[2])
        self.name = name
        self.host = match["host"] if match else name
        self._client = client
        self._token: str | None = None
        self._last = 0

    @property
    def order(self) -> tuple[str, int, str]:
        """Sorts ``algo-10`` after ``algo-9``."""
        base, _, number = self.host.rpartition("-")
        return (base, int(number), self.name) if number.isdigit() else (self.host, 0, self.name)

    def next_page(self, limit: int, until: float) -> Page:
        """The next events, and whether they are the last for now. A page may be empty.

        A page is the last one if CloudWatch returns the token that it was given. Raises botocore's errors; the next
        call then repeats the request.

        Args:
            until: milliseconds since the epoch. A page with events that were ingested later is the last one too:
                otherwise, reading a stream that grows faster than it is read would not end.
        """
        where = {"logGroupName": GROUP, "logStreamName": self.name, "startFromHead": True, "limit": limit}
        answer = self._ask(where)
        token = answer.get("nextForwardToken")
        is_last = token in (None, self._token) or any(
            event.get("ingestionTime", 0) > until for event in answer["events"]
        )
        self._token = token or self._token
        events = [Event(event["timestamp"], self.host, event["message"]) for event in answer["events"]]
        if events:
            self._last = events[-1].time
        return events, is_last

    def _ask(self, where: dict[str, Any]) -> dict[str, Any]:
        from botocore.exceptions import ClientError

        token = {"nextToken": self._token} if self._token else {}
        try:
            answer: dict[str, Any] = self._client.get_log_events(**where, **token)
        except ClientError as error:
            if not token or error_code(error) != "InvalidParameterException":
                raise
            # tokens expire after 24 hours
            answer = self._client.get_log_events(**where, startTime=self._last + 1)
        return answer


def find_streams(job_name: str, client: Any) -> list[LogStream]:
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
    return sorted((LogStream(name, client) for name in names), key=lambda stream: stream.order)
