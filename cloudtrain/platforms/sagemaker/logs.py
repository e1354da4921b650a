"""The log of a job: the CloudWatch streams of all its hosts as one."""

from __future__ import annotations

import contextlib
import heapq
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

from cloudtrain.platforms.sagemaker._statuses import first_time, host_count, job_status, restarts
from cloudtrain.platforms.sagemaker._streams import GROUP, MOST_EVENTS, Event, LogStream, Page, find_streams
from cloudtrain.platforms.sagemaker.aws import Aws
from cloudtrain.platforms.sagemaker.describe import describe_training_job
from cloudtrain.platforms.sagemaker.errors import aws_errors, is_throttled

READERS = 10
HELD_EVENTS = 100_000
"""How many events are held at once, of all streams together."""
LAST_LINES = 500
LONG_AGO = 600.0
"""Seconds after the end of a job in which its last lines may still come in."""


@dataclass(frozen=True)
class Pace:
    """How often AWS is asked. All in seconds."""

    shortest: float = 1.0
    """Between two looks at all streams, as long as there is something new."""
    longest: float = 5.0
    """The same where nothing happens."""
    throttled: float = 60.0
    """The longest while AWS says that it is asked too often."""
    each_stream: float = 0.05
    """For each stream: CloudWatch answers 25 GetLogEvents a second for an account and region."""
    new_streams: float = 15.0
    """Between two looks for streams beyond those that are expected."""
    settle: float = 5.0
    """Of silence after the end of a job: its last lines may come in later than its status."""


def logs(job_name: str, aws: Aws, *, follow: bool, pace: Pace | None = None) -> Iterator[str]:
    """The lines of all hosts in time order, each prefixed by its host.

    What is new in all streams is read, merged and given in rounds; a line that CloudWatch takes in late stands
    in a later round. Raises JobNotFound, and PlatformError where CloudWatch may not be asked.
    """
    answer = describe_training_job(job_name, aws)
    reader = LogReader(job_name, aws.client("logs"))
    if follow:
        return _follow(reader, answer, aws, pace or Pace())
    return _once(reader)


def last_lines(job_name: str, aws: Aws, host: str | None = None) -> Mapping[str, Sequence[str]]:
    """The last lines of ``host``, or of the first hosts, as they were printed. Raises PlatformError."""
    client = aws.client("logs")
    with aws_errors(f"the logs of job {job_name}"):
        newest = {stream.host: stream for stream in find_streams(job_name, client)}
        names = [host] if host and host in newest else list(newest)[:READERS]
        with ThreadPoolExecutor(READERS) as pool:
            pages = pool.map(lambda name: _last_page(newest[name].name, client), names)
            return dict(zip(names, pages, strict=True))


def _last_page(stream: str, client: Any) -> list[str]:
    where = {"logGroupName": GROUP, "logStreamName": stream, "limit": LAST_LINES, "startFromHead": False}
    events = client.get_log_events(**where)["events"]
    return [line for event in events for line in event["message"].rstrip("\r\n").split("\n")]


class LogReader:
    """All streams of a job that are known so far."""

    def __init__(self, job_name: str, client: Any) -> None:
        self.job_name = job_name
        self.streams: dict[str, LogStream] = {}
        self.is_throttled = False
        """Whether CloudWatch was asked too often in the last round."""
        self._client = client

    def find(self) -> None:
        """Look for new streams."""
        from botocore.exceptions import ClientError

        with aws_errors(f"the logs of job {self.job_name}"):
            try:
                found = find_streams(self.job_name, self._client)
            except ClientError as error:
                if not is_throttled(error):
                    raise
                self.is_throttled = True
                return
        self.streams = {stream.name: self.streams.get(stream.name, stream) for stream in found}

    def round(self, pool: ThreadPoolExecutor) -> Iterator[str]:
        """What is new in all streams, in time order."""
        self.is_throttled = False
        streams = sorted(self.streams.values(), key=lambda stream: stream.order)
        began = 1000 * time.time()
        limit = min(MOST_EVENTS, max(1, HELD_EVENTS // max(1, len(streams))))
        asks = [partial(pool.submit, stream.next_page, limit, began) for stream in streams]
        # all first pages are asked for before one is waited for
        parts = [self._read(ask(), ask) for ask in asks]
        for event in heapq.merge(*parts, key=lambda event: event.time):
            yield from event.lines()

    def _read(self, page: Future[Page], ask: Callable[[], Future[Page]]) -> Iterator[Event]:
        """The new events of one stream. The next page is on its way while one is given out."""
        from botocore.exceptions import ClientError

        is_last = False
        while not is_last:
            with aws_errors(f"the logs of job {self.job_name}"):
                try:
                    events, is_last = page.result()
                except ClientError as error:
                    if not is_throttled(error):
                        raise
                    self.is_throttled = True
                    return
            if not is_last:
                page = ask()
            yield from events


@contextlib.contextmanager
def _readers() -> Iterator[ThreadPoolExecutor]:
    pool = ThreadPoolExecutor(READERS, thread_name_prefix="logs")
    try:
        yield pool
    finally:
        pool.shutdown(wait=False, cancel_futures=True)  # who is interrupted does not wait for answers


def _once(reader: LogReader) -> Iterator[str]:
    """All that there is now, however often CloudWatch wants to be left alone meanwhile."""
    pause = 1.0
    with _readers() as pool:
        reader.find()
        yield from reader.round(pool)
        while reader.is_throttled:
            time.sleep(pause)
            pause = min(2 * pause, Pace.throttled)
            reader.find()
            yield from reader.round(pool)


def _follow(reader: LogReader, answer: dict[str, Any], aws: Aws, pace: Pace) -> Iterator[str]:
    pause, looked, quiet_since = pace.shortest, float("-inf"), None
    with _readers() as pool:
        while True:
            began = time.monotonic()
            is_final = job_status(answer).is_final
            if is_final or len(reader.streams) < _expected(answer) or began - looked > pace.new_streams:
                reader.find()
                looked = began
            is_silent = True
            for line in reader.round(pool):
                is_silent = False
                yield line
            if is_final and not reader.is_throttled:
                if _ended_long_ago(answer):
                    return
                quiet_since = quiet_since if is_silent and quiet_since is not None else time.monotonic()
                if time.monotonic() - quiet_since >= pace.settle:
                    return
            pause = _next_pause(
                pause, pace, is_busy=not is_silent or is_final, is_throttled=reader.is_throttled
            )
            wanted = max(pause, pace.each_stream * len(reader.streams))
            time.sleep(max(0.0, began + wanted - time.monotonic()))
            if not is_final:
                answer = describe_training_job(reader.job_name, aws)


def _next_pause(pause: float, pace: Pace, *, is_busy: bool, is_throttled: bool) -> float:
    if is_throttled:
        return min(2 * pause, pace.throttled)
    return pace.shortest if is_busy else min(1.5 * pause, pace.longest)


def _expected(answer: Mapping[str, Any]) -> int:
    """How many streams a job has that prints on all hosts, at each of its starts."""
    return host_count(answer["ResourceConfig"]) * (1 + restarts(answer))


def _ended_long_ago(answer: Mapping[str, Any]) -> bool:
    ended = first_time([answer.get("TrainingEndTime"), answer["LastModifiedTime"]])
    return ended is not None and time.time() - ended > LONG_AGO
