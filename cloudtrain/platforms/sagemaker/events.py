"""The events of a job that cloudtrain's runtime prints: all of the leader's, and the samples of the other hosts.

Amazon's toolkit prints no events.
"""

from __future__ import annotations

import copy
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

from cloudtrain.aws.aws import Aws
from cloudtrain.aws.errors import aws_errors
from cloudtrain.errors import PlatformError
from cloudtrain.observe import Summary
from cloudtrain.observe.event_lines import parse_event_line
from cloudtrain.observe.events import Event
from cloudtrain.observe.samples import FEWEST, MOST_IN_ALL, add_recent
from cloudtrain.platforms.common.log_merge import Event as Printed
from cloudtrain.platforms.sagemaker._bundled_runtime import runtime_uri
from cloudtrain.platforms.sagemaker.logs import (
    GROUP,
    LAST_LINES,
    MOST_EVENTS,
    MOST_HOSTS,
    READERS,
    LogStream,
    find_streams,
    log_budget,
)

LEADER = "algo-1"
FRESH_SECONDS = 5.0
"""A summary newer than this is not updated."""
LOOK_SECONDS = 20.0
"""A look starts no new page after this time. The next look continues with it."""


def recent_summary(answer: Mapping[str, Any], aws: Aws) -> Summary:
    """The summary of the leader's last events that fit in one response; empty if they cannot be read.

    Args:
        answer: SageMaker's response to DescribeTrainingJob.
    """
    summary = Summary()
    if runtime_uri(answer) is None:
        return summary
    name, client = answer["TrainingJobName"], aws.client("logs")
    with suppress(PlatformError), aws_errors(f"the logs of job {name}"):
        streams = find_streams(name, client, log_budget(client), host=LEADER)
        if streams:
            _add(summary, _events(_last_page(streams[-1], client, MOST_EVENTS)))
    return summary


class JobEvents:
    """The events of one job. No part of the leader's log is read twice. Threads may share it."""

    def __init__(self, job_name: str, aws: Aws) -> None:
        self._name = job_name
        self._client = aws.client("logs")
        self._lock = threading.Lock()
        self._streams: dict[str, LogStream] = {}
        """The leader's streams by name: one for each start."""
        self._summary = Summary()
        self._due_at = float("-inf")

    def summary(self) -> Summary:
        """A copy of the summary of all events of the leader, with the samples of all hosts. Raises PlatformError."""
        with self._lock, aws_errors(f"the logs of job {self._name}"):
            if time.monotonic() >= self._due_at:
                self._read_leader(time.monotonic() + LOOK_SECONDS)
                self._summary.samples |= self._read_samples()
                self._due_at = time.monotonic() + FRESH_SECONDS
            return copy.deepcopy(self._summary)

    def _read_leader(self, until: float) -> None:
        found = find_streams(self._name, self._client, log_budget(self._client), host=LEADER)
        for number, stream in enumerate(found):
            if stream.name not in self._streams:
                self._streams[stream.name] = stream
                self._summary.add(
                    {"time": time.time(), "source": LEADER, "event": "attempt", "attempt": number}
                )
            is_last = False
            while not is_last and time.monotonic() < until:
                page, is_last = self._streams[stream.name].next_page(MOST_EVENTS, 1000 * time.time())
                _add(self._summary, _events(page))

    def _read_samples(self) -> dict[str, list[dict[str, Any]]]:
        """The samples since the last start of each other host, of `MOST_HOSTS` at most: each costs a request."""
        budget = log_budget(self._client)
        newest = {stream.host: stream for stream in find_streams(self._name, self._client, budget)}
        newest.pop(LEADER, None)
        streams = list(newest.values())[:MOST_HOSTS]
        with ThreadPoolExecutor(READERS) as pool:
            pages = pool.map(lambda stream: _last_page(stream, self._client, LAST_LINES), streams)
            found: dict[str, list[dict[str, Any]]] = {}
            for event in (event for page in pages for event in _events(page)):
                if event["event"] == "sample":
                    add_recent(found, event)
        most = max(FEWEST, MOST_IN_ALL // max(1, len(found)))
        return {host: samples[-most:] for host, samples in found.items()}


def _last_page(stream: LogStream, client: Any, most: int) -> list[Printed]:
    log_budget(client).wait()
    where = {"logGroupName": GROUP, "logStreamName": stream.name, "limit": most, "startFromHead": False}
    return [
        Printed(event["timestamp"], stream.host, event["message"])
        for event in client.get_log_events(**where)["events"]
    ]


def _events(printed: Iterable[Printed]) -> Iterator[Event]:
    for at, host, text in printed:
        for line in text.splitlines():
            event = parse_event_line(line, host, at / 1000)
            if event:
                yield event


def _add(summary: Summary, events: Iterable[Event]) -> None:
    for event in events:
        summary.add(event)
