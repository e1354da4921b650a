"""Looks at many jobs on all platforms. A platform that is broken or slow does not hide the jobs of others."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache
from queue import Empty, SimpleQueue
from typing import TypeVar

from cloudtrain.errors import CloudtrainError
from cloudtrain.history.ends import keep_outlines
from cloudtrain.history.outlines import record_of
from cloudtrain.index import IndexEntry
from cloudtrain.platforms import JobDescription, Outlines, Platform, get_platform
from cloudtrain.platforms.base import cost_so_far
from cloudtrain.storage import state_home

T = TypeVar("T")

PATIENCE = 2.0
"""Seconds after which the user sees which platforms are still being queried."""

PARALLEL_REQUESTS = 8
"""The number of concurrent looks at jobs on slow platforms."""
SLOW_SECONDS = 0.05
"""A platform that takes longer for two jobs in a row is slow. Threads would halve the speed of a platform that reads
local files, and a single look may be slow by chance, or because it is the first."""


def each(
    entries: Sequence[IndexEntry], action: Callable[[Platform, str], T]
) -> dict[IndexEntry, T | Exception]:
    """For each job, the result of ``action`` with its platform and name, or the exception that it raised, which may be
    any because of plug-ins."""
    platform_of = cache(get_platform)
    found: dict[IndexEntry, T | Exception] = {}
    waiting: SimpleQueue[IndexEntry] = SimpleQueue()
    seconds: dict[str, list[float]] = defaultdict(list)

    def result(entry: IndexEntry) -> T | Exception:
        try:
            return action(platform_of(entry.platform), entry.name)
        except Exception as error:
            return error

    def look_at_waiting() -> None:
        with suppress(Empty):
            while True:
                entry = waiting.get_nowait()
                found[entry] = result(entry)

    for entry in entries:
        if is_slow(seconds[entry.platform]):
            waiting.put(entry)
            continue
        began = time.monotonic()
        found[entry] = result(entry)
        seconds[entry.platform].append(time.monotonic() - began)
    # daemons: after Ctrl-C, the process does not wait for platforms that do not answer
    number = min(waiting.qsize(), PARALLEL_REQUESTS)
    threads = [threading.Thread(target=look_at_waiting, daemon=True) for _ in range(number)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return {entry: found[entry] for entry in entries}


def is_slow(seconds: Sequence[float]) -> bool:
    """Whether a platform is slow, judging by the seconds that its looks have taken."""
    return len(seconds) >= 2 and min(seconds[-2:]) > SLOW_SECONDS


def describe_all(
    entries: Sequence[IndexEntry],
    *,
    whole: bool = False,
    most: int | None = None,
    waits: Callable[[Sequence[str]], object] = lambda platforms: None,
) -> dict[IndexEntry, JobDescription | Exception]:
    """The description of each job, or the reason why there is none. Descriptions of ended jobs go into the history.

    Args:
        whole: whether to return whole descriptions, not only the fields that a table shows.
        most: the number of jobs, from the first on, to describe on a platform that has to be queried for each job.
        waits: see `at_once`.
    """
    home = str(state_home())
    records = {entry: record_of(entry.name, entry.platform, home) for entry in entries}

    def describe(jobs: Sequence[IndexEntry]) -> dict[IndexEntry, JobDescription | Exception]:
        found = {} if whole else outlines(jobs)
        return {**found, **each([job for job in jobs[:most] if job not in found], _with_cost)}

    described = at_once(entries, describe, waits)
    keep_outlines([(one, records[job]) for job, one in described.items() if isinstance(one, JobDescription)])
    return described


def at_once(
    entries: Sequence[IndexEntry],
    action: Callable[[Sequence[IndexEntry]], dict[IndexEntry, T]],
    waits: Callable[[Sequence[str]], object] = lambda platforms: None,
) -> dict[IndexEntry, T]:
    """The results of ``action``, which is called for the jobs of each platform in parallel.

    Raises what ``action`` raises.

    Args:
        waits: called once with the names of the platforms that have taken longer than `PATIENCE`.
    """
    found: dict[IndexEntry, T] = {}
    raised: list[Exception] = []

    def run(jobs: Sequence[IndexEntry]) -> None:
        try:
            found.update(action(jobs))
        except Exception as error:
            raised.append(error)

    threads = {
        name: threading.Thread(target=run, args=(jobs,), daemon=True)
        for name, jobs in _by_platform(entries).items()
    }
    for thread in threads.values():
        thread.start()
    until = time.monotonic() + PATIENCE
    for thread in threads.values():
        thread.join(max(until - time.monotonic(), 0.0))
    if late := [name for name, thread in threads.items() if thread.is_alive()]:
        waits(late)
    for thread in threads.values():
        thread.join()
    if raised:
        raise raised[0]
    return found


def _with_cost(platform: Platform, job_name: str) -> JobDescription:
    found = platform.describe(job_name)
    return replace(found, cost=cost_so_far(platform, found))


def outlines(entries: Sequence[IndexEntry]) -> dict[IndexEntry, JobDescription | Exception]:
    """The outline of each job whose platform has the ability `Outlines`, or the exception that it raised."""
    found: dict[IndexEntry, JobDescription | Exception] = {}
    for name, jobs in _by_platform(entries).items():
        try:
            platform = get_platform(name)
            if isinstance(platform, Outlines):
                found.update(zip(jobs, platform.outlines([job.name for job in jobs]), strict=True))
        except Exception as error:
            found.update(dict.fromkeys(jobs, error))
    return found


def _by_platform(entries: Sequence[IndexEntry]) -> dict[str, list[IndexEntry]]:
    found: dict[str, list[IndexEntry]] = defaultdict(list)
    for entry in entries:
        found[entry.platform].append(entry)
    return found


def reason_of(error: Exception) -> str:
    """The reason why a job cannot be described, as text."""
    return error.message if isinstance(error, CloudtrainError) else f"{type(error).__name__}: {error}"
