"""The log of a job: the CloudWatch streams of all its hosts as one."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from cloudtrain.aws.aws import Aws
from cloudtrain.aws.errors import aws_errors, may_pass
from cloudtrain.errors import PlatformError
from cloudtrain.platforms.sagemaker._log_reader import LogReader
from cloudtrain.platforms.sagemaker._statuses import first_time, host_count, job_status, restarts
from cloudtrain.platforms.sagemaker._streams import GROUP, find_streams
from cloudtrain.platforms.sagemaker._training_job import describe_training_job

READERS = 10
LAST_LINES = 500
MOST_HOSTS = 50
"""Whose last lines are looked at, where it is not known which host failed."""
LONG_AGO = 600.0
"""Seconds after the end of a job in which its last lines may still come in."""


@dataclass(frozen=True)
class Pace:
    """How often AWS is asked. All in seconds."""

    shortest: float = 1.0
    """Between two looks at all streams, as long as there is something new."""
    longest: float = 5.0
    """The same where nothing happens."""
    in_trouble: float = 60.0
    """The longest while AWS says that it is asked too often, or the network is gone."""
    patience: float = 900.0
    """How long such trouble may last."""
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
    return _once(reader, pace or Pace())


def last_lines(job_name: str, aws: Aws, host: str | None = None) -> Mapping[str, Sequence[str]]:
    """The last lines of ``host``, or of the first hosts, as they were printed. Raises PlatformError."""
    client = aws.client("logs")
    with aws_errors(f"the logs of job {job_name}"):
        newest = {stream.host: stream for stream in find_streams(job_name, client)}
        names = [host] if host and host in newest else list(newest)[:MOST_HOSTS]
        with ThreadPoolExecutor(READERS) as pool:
            pages = pool.map(lambda name: _last_page(newest[name].name, client), names)
            return dict(zip(names, pages, strict=True))


def _last_page(stream: str, client: Any) -> list[str]:
    where = {"logGroupName": GROUP, "logStreamName": stream, "limit": LAST_LINES, "startFromHead": False}
    events = client.get_log_events(**where)["events"]
    return [line for event in events for line in event["message"].rstrip("\r\n").split("\n")]


@contextlib.contextmanager
def _readers() -> Iterator[ThreadPoolExecutor]:
    pool = ThreadPoolExecutor(READERS, thread_name_prefix="logs")
    try:
        yield pool
    finally:
        pool.shutdown(wait=False, cancel_futures=True)  # who is interrupted does not wait for answers


def _once(reader: LogReader, pace: Pace) -> Iterator[str]:
    """All that there is now; while AWS cannot tell it, it is asked again."""
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
            for line in reader.round(pool, find=find):
                is_silent = False
                yield line
            trouble = reader.trouble
            if is_final and trouble is None:
                if _ended_long_ago(answer):
                    return
                silent_since = silent_since if is_silent and silent_since is not None else time.monotonic()
                if time.monotonic() - silent_since >= pace.settle:
                    return
            least = began + pace.each_stream * len(reader.streams) - time.monotonic()
            waiting.sleep(trouble, is_busy=not is_silent or is_final, least=least)
            if not is_final:
                answer = _look_again(answer, aws)


class _Waiting:
    """How long to wait before AWS is asked again."""

    def __init__(self, pace: Pace) -> None:
        self._pace = pace
        self._pause = pace.shortest
        self._well = time.monotonic()

    def sleep(self, trouble: Exception | None, *, is_busy: bool, least: float = 0.0) -> None:
        """Longer while nothing happens, and in trouble; what has lasted too long is raised as PlatformError."""
        if trouble is None:
            self._well = time.monotonic()
            longer = min(1.5 * self._pause, self._pace.longest)
            self._pause = self._pace.shortest if is_busy else longer
        else:
            self._pause = min(2 * self._pause, self._pace.in_trouble)
            if time.monotonic() - self._well > self._pace.patience:
                with aws_errors("the logs"):
                    raise trouble
        time.sleep(max(self._pause, least))


def _look_again(answer: dict[str, Any], aws: Aws) -> dict[str, Any]:
    """How the job is now; as it was, while AWS cannot tell it."""
    try:
        return describe_training_job(answer["TrainingJobName"], aws)
    except PlatformError as error:
        if error.__cause__ is None or not may_pass(error.__cause__):
            raise
        return answer


def _expected(answer: Mapping[str, Any]) -> int:
    """How many streams a job has that prints on all hosts, at each of its starts."""
    return host_count(answer.get("ResourceConfig", {})) * (1 + restarts(answer))


def _ended_long_ago(answer: Mapping[str, Any]) -> bool:
    ended = first_time([answer.get("TrainingEndTime"), answer["LastModifiedTime"]])
    return ended is not None and time.time() - ended > LONG_AGO
