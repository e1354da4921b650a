"""Merges the CloudWatch streams of a job into lines."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

from cloudtrain.aws.errors import aws_errors, may_pass
from cloudtrain.platforms.common.log_merge import LogMerge
from cloudtrain.platforms.common.request_budget import RequestBudget
from cloudtrain.platforms.sagemaker._streams import MOST_EVENTS, LogStream, ServiceClock, find_streams, lines

INTERVAL = 0.05
"""In seconds. CloudWatch allows 25 GetLogEvents per second for an account and region: this leaves some to others."""


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
