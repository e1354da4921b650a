"""The log of a job: the merged CloudWatch streams of all its hosts."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from typing import Any

from cloudtrain.aws.aws import Aws
from cloudtrain.aws.errors import aws_errors, may_pass
from cloudtrain.errors import PlatformError
from cloudtrain.platforms.common.log_merge import LogMerge
from cloudtrain.platforms.common.request_budget import RequestBudget
from cloudtrain.platforms.sagemaker._streams import (
    GROUP,
    MOST_EVENTS,
    LogStream,
    ServiceClock,
    find_streams,
    lines,
)
from cloudtrain.platforms.sagemaker.training_job import (
    describe_training_job,
    first_time,
    host_count,
    job_status,
    restarts,
)

INTERVAL = 0.05
"""In seconds. CloudWatch allows 25 GetLogEvents per second for an account and region: this leaves some to others."""
READERS = 10
LAST_LINES = 500
MOST_HOSTS = 50
"""The maximum number of hosts whose last lines are read if the failed host is not known."""
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
    """The maximum between two rounds while AWS throttles requests or the network is down."""
    patience: float = 900.0
    """The maximum duration of such errors."""
    each_request: float = INTERVAL
    """Between two GetLogEvents."""
    new_streams: float = 15.0
    """Between two searches for unexpected streams."""
    settle: float = 5.0
    """Without new lines after the end of a job: its last lines may arrive later than its status."""


def logs(job_name: str, aws: Aws, *, follow: bool, pace: Pace | None = None) -> Iterator[str]:
    """The lines of all hosts in time order, each with its host as a prefix.

    Each round reads and merges the new events of all streams, or, of many, those that are busy. A line that CloudWatch
    ingests late, or that breaks the silence of one of many streams, is in a later round.

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
    return [line for event in events for line in event["message"].rstrip("\r\n").split("\n")]


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
        """Pause: longer while there are no lines, or errors. Errors that last too long are raised as PlatformError."""
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
    """The current description of the job; the previous one while AWS has transient errors."""
    try:
        return describe_training_job(answer["TrainingJobName"], aws)
    except PlatformError as error:
        if not error.is_transient:
            raise
        return answer


def _expected(answer: Mapping[str, Any]) -> int:
    """The number of streams of a job whose hosts all print something, over all its starts."""
    return host_count(answer.get("ResourceConfig", {})) * (1 + restarts(answer))


def _ended_long_ago(answer: Mapping[str, Any]) -> bool:
    ended = first_time([answer.get("TrainingEndTime"), answer["LastModifiedTime"]])
    return ended is not None and time.time() - ended > LONG_AGO


@cache
def _budget(region: str, interval: float) -> RequestBudget:
    return RequestBudget(interval)


def log_budget(client: Any, interval: float = INTERVAL) -> RequestBudget:
    """The requests for logs that this process may send to the client's region."""
    return _budget(client.meta.region_name, interval)


class LogReader:
    """Reads all streams found so far. Errors of AWS become PlatformErrors about the job's logs.

    Args:
        interval: the seconds between two GetLogEvents, with those of all readers in this process that have the same
            interval and region.
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
        """Whether the next round has lines that were read in this one."""
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
            find: look for new streams first.
            is_partial: another round follows: see `LogMerge.round`.
        """
        with aws_errors(f"the logs of job {self.job_name}"):
            for event in self._merge.round(pool, find=find, is_partial=is_partial):
                yield from lines(event)
