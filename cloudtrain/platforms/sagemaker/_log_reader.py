"""Merges the CloudWatch streams of a job into lines."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from cloudtrain.aws.errors import aws_errors, may_pass
from cloudtrain.platforms.common.log_merge import LogMerge
from cloudtrain.platforms.sagemaker._streams import MOST_EVENTS, LogStream, find_streams, lines


class LogReader:
    """Reads all streams found so far. Errors of AWS become PlatformErrors about the job's logs."""

    def __init__(self, job_name: str, client: Any) -> None:
        self.job_name = job_name
        self._merge: LogMerge[LogStream] = LogMerge(
            lambda: find_streams(job_name, client), may_pass, MOST_EVENTS
        )

    @property
    def streams(self) -> dict[str, LogStream]:
        return self._merge.streams

    @property
    def trouble(self) -> Exception | None:
        """The error that ended the last round early."""
        return self._merge.trouble

    def round(self, pool: ThreadPoolExecutor, *, find: bool = True) -> Iterator[str]:
        """The new lines of all streams, in time order. Raises PlatformError.

        Args:
            find: look for new streams first.
        """
        with aws_errors(f"the logs of job {self.job_name}"):
            for event in self._merge.round(pool, find=find):
                yield from lines(event)
