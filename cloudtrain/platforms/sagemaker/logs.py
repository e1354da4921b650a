"""The log of a job, merged from the CloudWatch streams of its hosts: one stream for each start of a host."""

from __future__ import annotations

import contextlib
import re
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from functools import cache
from typing import Any

from cloudtrain.aws.aws import Aws
from cloudtrain.aws.errors import aws_errors, error_code, may_pass
from cloudtrain.errors import PlatformError
from cloudtrain.observe.event_lines import parse_event_line
from cloudtrain.observe.events import MARK
from cloudtrain.platforms.common.log_merge import Event, LogMerge, Page
from cloudtrain.platforms.sagemaker.training_job import (
    describe_training_job,
    first_time,
    host_count,
    job_status,
    restarts,
)

GROUP = "/aws/sagemaker/TrainingJobs"
MOST_EVENTS = 10_000
"""The maximum number of events in a response of GetLogEvents."""
FULL_PAGE = 1 << 18
"""In characters. A response of GetLogEvents has at most 1 MiB: one larger than this may have been cut off."""

_UNSURE = 1000.0
"""In milliseconds: how far the estimate of CloudWatch's clock may lag."""

_RUNTIME_PREFIX = re.compile(r"\[rank \d+\] ")
_STREAM = re.compile(r"(?P<host>.+?)(?:-(?P<start>\d{5,}))?")


def lines(event: Event) -> Iterator[str]:
    """The lines of an event, each with its host as a prefix, unless the runtime has already prefixed it with its rank.

    Events that the runtime prints are left out: see `cloudtrain.observe.event_lines`.
    """
    for line in _printed(event.text):
        shown = line.rstrip("\r").rpartition("\r")[2]  # a progress bar overwrites its line
        yield shown if _RUNTIME_PREFIX.match(shown) else f"[{event.host}] {shown}"


def _printed(text: str) -> list[str]:
    lines = text.rstrip("\r\n").split("\n")
    return [line for line in lines if not (line.startswith(MARK) and parse_event_line(line, ""))]


class LogStream:
    """Reads one stream page by page, from its first event.

    Args:
        budget: delays the requests of all streams.
        clock: the clock of CloudWatch, which all streams share and update.
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
        """Whether events are held for the next round."""
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
            until: milliseconds since the epoch. A page with events that were ingested later is also the last one:
                otherwise, reading a stream that grows faster than it is read would never end.
            is_partial: another round follows. Events that were ingested after ``until`` are held for it, because it may
                find older ones in other streams. A page that is not full counts as the last one.
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
    """Estimates from the dates of a service's responses how far its clock is ahead of this machine's.

    A date has no fractions of a second, and so is up to one second late: the largest estimate is used.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ahead: float | None = None
        self._last = (0.0, 0.0)

    def at(self, moment: float, answer: Mapping[str, Any]) -> float:
        """The service's time at ``moment`` of this machine's clock, both in milliseconds since the epoch.

        The result is the same for consecutive calls with the same ``moment``, even if the estimate improves.

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
    job_name: str, client: Any, budget: RequestBudget, clock: ServiceClock | None = None, host: str = ""
) -> list[LogStream]:
    """All current streams of the job, sorted by host; empty if it has not logged anything yet.

    Args:
        host: only those of this host, the earliest start first.
    """
    from botocore.exceptions import ClientError

    prefix = f"{job_name}/{host}-" if host else f"{job_name}/"
    pages = client.get_paginator("describe_log_streams")
    try:
        names = [
            stream["logStreamName"]
            for page in pages.paginate(logGroupName=GROUP, logStreamNamePrefix=prefix)
            for stream in page["logStreams"]
        ]
    except ClientError as error:
        if error_code(error) != "ResourceNotFoundException":
            raise
        return []
    return sorted((LogStream(name, client, budget, clock) for name in names), key=lambda stream: stream.order)


INTERVAL = 0.05
"""In seconds. CloudWatch allows 25 GetLogEvents per second in an account and region: this leaves some to others."""
READERS = 10
LAST_LINES = 500
MOST_HOSTS = 50
"""The maximum number of hosts whose last lines are read if the failed host is unknown."""
LONG_AGO = 600.0
"""The seconds after the end of a job during which its last lines may still arrive."""


@dataclass(frozen=True)
class Pace:
    """The intervals between requests to AWS, in seconds."""

    shortest: float = 1.0
    """Between two rounds of all streams while there are new lines."""
    longest: float = 5.0
    """Between two rounds while there are none."""
    in_trouble: float = 60.0
    """The maximum pause between two rounds while AWS throttles requests or the network is down."""
    patience: float = 900.0
    """The maximum duration of such errors."""
    each_request: float = INTERVAL
    """Between two requests GetLogEvents."""
    new_streams: float = 15.0
    """Between two searches for unexpected streams."""
    settle: float = 5.0
    """How long no new lines must arrive after the end of a job: its last lines may arrive later than its status."""


def logs(job_name: str, aws: Aws, *, follow: bool, pace: Pace | None = None) -> Iterator[str]:
    """The lines of all hosts in time order, each with its host as a prefix.

    Each round reads and merges the new events of all streams, or of the busy ones if there are many. A line that
    CloudWatch ingests late, or that is the first after a while in one of many streams, is in a later round.

    Raises:
        JobNotFound: there is no such job.
        PlatformError: CloudWatch denies access.
    """
    pace = pace or Pace()
    answer = describe_training_job(job_name, aws)
    reader = LogReader(job_name, aws.client("logs"), pace.each_request)
    return _follow(reader, answer, aws, pace) if follow else _once(reader, pace)


def last_lines(job_name: str, aws: Aws, host: str | None = None) -> Mapping[str, Sequence[str]]:
    """The last lines of ``host``, or of the first hosts, by host. Raises PlatformError."""
    client = aws.client("logs")
    budget = log_budget(client)
    with aws_errors(f"the logs of job {job_name}"):
        newest = {stream.host: stream for stream in find_streams(job_name, client, budget)}
        names = [host] if host and host in newest else list(newest)[:MOST_HOSTS]
        with ThreadPoolExecutor(READERS) as pool:
            pages = pool.map(lambda name: _last_page(newest[name].name, client, budget), names)
            return dict(zip(names, pages, strict=True))


def _last_page(stream: str, client: Any, budget: RequestBudget) -> list[str]:
    where = {"logGroupName": GROUP, "logStreamName": stream, "limit": LAST_LINES, "startFromHead": False}
    budget.wait()
    events = client.get_log_events(**where)["events"]
    return [line for event in events for line in _printed(event["message"])]


@contextlib.contextmanager
def _readers() -> Iterator[ThreadPoolExecutor]:
    pool = ThreadPoolExecutor(READERS, thread_name_prefix="logs")
    try:
        yield pool
    finally:
        pool.shutdown(wait=False, cancel_futures=True)  # on Ctrl-C, do not wait for responses


def _once(reader: LogReader, pace: Pace) -> Iterator[str]:
    """All current lines. Retries while AWS has transient errors."""
    waiting = _Waiting(pace)
    with _readers() as pool:
        while True:
            yield from reader.round(pool)
            if reader.trouble is None:
                return
            waiting.sleep(reader.trouble, is_busy=True)


def _follow(reader: LogReader, answer: dict[str, Any], aws: Aws, pace: Pace) -> Iterator[str]:
    waiting, looked, silent_since = _Waiting(pace), float("-inf"), None
    with _readers() as pool:
        while True:
            began = time.monotonic()
            is_final = job_status(answer).is_final
            find = is_final or len(reader.streams) < _expected(answer) or began - looked > pace.new_streams
            looked = began if find else looked
            is_silent = True
            for line in reader.round(pool, find=find, is_partial=not is_final):
                is_silent = False
                yield line
            trouble = reader.trouble
            if is_final and trouble is None:
                if _ended_long_ago(answer):
                    return
                silent_since = silent_since if is_silent and silent_since is not None else time.monotonic()
                if time.monotonic() - silent_since >= pace.settle:
                    return
            waiting.sleep(trouble, is_busy=not is_silent or is_final or reader.holds)
            if not is_final:
                answer = _refresh(answer, aws)


class _Waiting:
    """Computes the pauses between rounds."""

    def __init__(self, pace: Pace) -> None:
        self._pace = pace
        self._pause = pace.shortest
        self._well = time.monotonic()

    def sleep(self, trouble: Exception | None, *, is_busy: bool) -> None:
        """Pause, for longer while there are errors or no lines. Raises PlatformError if errors last too long."""
        if trouble is None:
            self._well = time.monotonic()
            longer = min(1.5 * self._pause, self._pace.longest)
            self._pause = self._pace.shortest if is_busy else longer
        else:
            self._pause = min(2 * self._pause, self._pace.in_trouble)
            if time.monotonic() - self._well > self._pace.patience:
                with aws_errors("the logs"):
                    raise trouble
        time.sleep(self._pause)


def _refresh(answer: dict[str, Any], aws: Aws) -> dict[str, Any]:
    """The current description of the job; ``answer`` while AWS has transient errors."""
    try:
        return describe_training_job(answer["TrainingJobName"], aws)
    except PlatformError as error:
        if not error.is_transient:
            raise
        return answer


def _expected(answer: Mapping[str, Any]) -> int:
    """The number of streams of a job, over all its starts, if all hosts print something."""
    return host_count(answer.get("ResourceConfig", {})) * (1 + restarts(answer))


def _ended_long_ago(answer: Mapping[str, Any]) -> bool:
    ended = first_time([answer.get("TrainingEndTime"), answer["LastModifiedTime"]])
    return ended is not None and time.time() - ended > LONG_AGO


@cache
def _budget(region: str, interval: float) -> RequestBudget:
    return RequestBudget(interval)


def log_budget(client: Any, interval: float = INTERVAL) -> RequestBudget:
    """The budget of this process for requests for logs to the client's region."""
    return _budget(client.meta.region_name, interval)


class LogReader:
    """Reads all streams found so far. Errors of AWS become PlatformErrors about the job's logs.

    Args:
        interval: the seconds between two requests GetLogEvents. All readers in this process with the same interval and
            region share them.
    """

    def __init__(self, job_name: str, client: Any, interval: float = INTERVAL) -> None:
        self.job_name = job_name
        budget, clock = log_budget(client, interval), ServiceClock()
        self._merge: LogMerge[LogStream] = LogMerge(
            lambda: find_streams(job_name, client, budget, clock), may_pass, MOST_EVENTS
        )

    @property
    def streams(self) -> dict[str, LogStream]:
        return self._merge.streams

    @property
    def holds(self) -> bool:
        """Whether lines that were read in this round are held for the next one."""
        return any(stream.holds for stream in self.streams.values())

    @property
    def trouble(self) -> Exception | None:
        """The error that ended the last round early."""
        return self._merge.trouble

    def round(
        self, pool: ThreadPoolExecutor, *, find: bool = True, is_partial: bool = False
    ) -> Iterator[str]:
        """The new lines of all streams, in time order. Raises PlatformError.

        Args:
            find: whether to search for new streams first.
            is_partial: whether another round follows: see `LogMerge.round`.
        """
        with aws_errors(f"the logs of job {self.job_name}"):
            for event in self._merge.round(pool, find=find, is_partial=is_partial):
                yield from lines(event)


class RequestBudget:
    """Lets requests start one at a time, at least ``interval`` seconds apart."""

    def __init__(self, interval: float) -> None:
        self._interval = interval
        self._lock = threading.Lock()
        self._next = 0.0

    def wait(self) -> None:
        """Wait until a request may start. Requests that were possible while this process paused do not accumulate."""
        with self._lock:
            pause = self._next - time.monotonic()
            if pause > 0:
                time.sleep(pause)
            self._next = time.monotonic() + self._interval
