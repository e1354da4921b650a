"""``cloudtrain list``."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import click

from cloudtrain.cli._options import json_option
from cloudtrain.cli._output import echo_json

if TYPE_CHECKING:
    from cloudtrain.index import IndexEntry
    from cloudtrain.platforms import JobDescription, Outlines, Platform

    Found = tuple[str, str, JobDescription | str]
    """The name and the platform of a job, and its description or why that is unknown."""

PARALLEL_REQUESTS = 8
"""The number of jobs to describe at the same time on a platform that takes long to respond."""

SLOW_SECONDS = 0.05
"""A platform that takes longer for one job is slow. Threads would halve the speed of one that reads local files."""


@click.command("list")
@click.option(
    "-n", "--limit", default=20, show_default=True, metavar="N", help="Maximum number of jobs to list."
)
@click.option(
    "--platform",
    "place",
    metavar="NAME",
    help="Ask this platform for its jobs instead, also those submitted from other machines. From then on, the other "
    "commands find these jobs by name.",
)
@json_option
def command(limit: int, place: str | None, as_json: bool) -> None:
    """List the jobs submitted from this machine, newest first."""
    from cloudtrain.cli._job_table import show_jobs

    found = _on_platform(place, limit) if place else _of_this_machine(limit, whole=as_json)
    if as_json:
        echo_json([_record(*row) for row in found])
    elif place and not found:
        click.echo(f"No jobs on {place}.", err=True)
    else:
        show_jobs(found)


def _on_platform(name: str, limit: int) -> list[Found]:
    """The jobs that the platform itself lists, which the index now finds by name. Raises PlatformError."""
    from itertools import islice

    from cloudtrain.index import IndexEntry, remember_found
    from cloudtrain.platforms import get_platform

    jobs = [*islice(get_platform(name).list(), limit)]
    remember_found([IndexEntry(job.name, job.platform, job.submitted_at) for job in jobs])
    return [(job.name, job.platform, job) for job in jobs]


def _of_this_machine(limit: int, *, whole: bool) -> list[Found]:
    """The jobs submitted from this machine: their whole descriptions, or as much as a table shows."""
    from cloudtrain.index import list_jobs
    from cloudtrain.platforms import Outlines

    entries = list_jobs(limit)
    described: dict[IndexEntry, JobDescription | str] = {}
    for name in {entry.platform for entry in entries}:
        jobs, platform = [entry for entry in entries if entry.platform == name], _platform(name)
        if isinstance(platform, Outlines) and not whole:
            found = _outlines(platform, [entry.name for entry in jobs])
        else:
            found = _describe_all(platform, [entry.name for entry in jobs])
        described.update(zip(jobs, found, strict=True))
    return [(entry.name, entry.platform, described[entry]) for entry in entries]


def _outlines(platform: Outlines, names: list[str]) -> list[JobDescription | str]:
    try:
        return [
            _reason(found) if isinstance(found, Exception) else found for found in platform.outlines(names)
        ]
    except Exception as error:
        return [_reason(error)] * len(names)


def _describe_all(platform: Platform | str, names: list[str]) -> list[JobDescription | str]:
    import time

    described = []
    for name in names:
        began = time.monotonic()
        described.append(_describe(name, platform))
        if time.monotonic() - began > SLOW_SECONDS:
            from concurrent.futures import ThreadPoolExecutor

            with ThreadPoolExecutor(PARALLEL_REQUESTS) as pool:
                return [*described, *pool.map(partial(_describe, platform=platform), names[len(described) :])]
    return described


def _platform(name: str) -> Platform | str:
    """The platform called ``name``, or why there is none: a plug-in may raise anything."""
    from cloudtrain.platforms import get_platform

    try:
        return get_platform(name)
    except Exception as error:
        return _reason(error)


def _describe(name: str, platform: Platform | str) -> JobDescription | str:
    """The job's description, or why there is none. One broken platform must not hide the jobs of the others."""
    if isinstance(platform, str):
        return platform
    try:
        return platform.describe(name)
    except Exception as error:
        return _reason(error)


def _reason(error: Exception) -> str:
    from cloudtrain.errors import CloudtrainError

    return error.message if isinstance(error, CloudtrainError) else f"{type(error).__name__}: {error}"


def _record(name: str, platform: str, description: JobDescription | str) -> dict[str, Any]:
    if isinstance(description, str):
        return {"name": name, "platform": platform, "status": "Unknown", "reason": description}
    return description.to_dict()
