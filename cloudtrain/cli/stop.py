"""``cloudtrain stop``."""

from __future__ import annotations

from contextlib import suppress
from threading import Timer
from typing import TYPE_CHECKING

import click

from cloudtrain.cli._options import complete_job, json_option, platform_option
from cloudtrain.cli._output import echo_json
from cloudtrain.contract.text import escape_line
from cloudtrain.errors import PlatformError

if TYPE_CHECKING:
    from cloudtrain.job import Job
    from cloudtrain.platforms import JobDescription

QUIET_SECONDS = 5.0
"""Seconds after which the command prints what it waits for."""


@click.command("stop")
@click.argument("job", shell_complete=complete_job)
@click.option(
    "--wait/--no-wait",
    default=True,
    help="Wait until the job has ended, or return immediately.  [default: wait]",
)
@platform_option
@json_option
def command(job: str, wait: bool, platform: str | None, as_json: bool) -> None:
    """Stop JOB, or all jobs of a pattern that were submitted from this machine: 'sweep-*'.

    The ranks get SIGTERM, and the job's stop_grace in seconds to save a checkpoint and exit.
    """
    from cloudtrain.job import Job

    if "*" not in job:
        description = _stop(Job.attach(job, platform), wait=wait, quiet=as_json)
        if as_json:
            echo_json(description.to_dict())
        return
    jobs = _running(job, platform)
    for one in jobs:  # stop all of them before waiting for the first
        one.stop()
    stopped = [_stop(one, wait=wait, quiet=as_json) for one in jobs]
    if as_json:
        echo_json([description.to_dict() for description in stopped])


def _running(pattern: str, platform: str | None) -> list[Job]:
    """The jobs of this machine whose names match, and that have not ended. Raises JobNotFound if no name does."""
    from fnmatch import fnmatchcase

    from cloudtrain.errors import JobNotFound
    from cloudtrain.index import list_jobs
    from cloudtrain.job import Job

    found = [
        entry
        for entry in reversed(list_jobs())
        if fnmatchcase(entry.name, pattern) and entry.platform == (platform or entry.platform)
    ]
    if not found:
        raise JobNotFound(
            f"there is no job {pattern} among those submitted from this machine",
            hint="See them with: cloudtrain list. A pattern stops no job of another machine, which may be someone "
            "else's: stop each by its name.",
        )
    jobs = []
    for entry in found:
        with suppress(JobNotFound):  # its folder was removed
            jobs.append(Job.attach(entry.name, entry.platform))
    return [job for job in jobs if not job.status.is_final]


def _stop(attached: Job, *, wait: bool, quiet: bool) -> JobDescription:
    """Stop one job, and print its status."""
    attached.stop()
    try:
        description = _described(attached, wait=wait)
    except PlatformError as error:
        error.message = f"job {attached.name} is stopping, but cannot be described: {error.message}"
        raise
    if not quiet:
        click.echo(f"{attached.name}: {description.status}")
    return description


def _say_what_it_waits_for(name: str) -> None:
    click.echo(
        f"job {name} is stopping: its ranks have their stop_grace to exit. More: cloudtrain describe {name}",
        err=True,
    )


def _described(attached: Job, *, wait: bool) -> JobDescription:
    if wait:
        from cloudtrain.cli._view import leave_running
        from cloudtrain.contract import JobStatus

        notice = Timer(QUIET_SECONDS, _say_what_it_waits_for, [attached.name])
        notice.daemon = True
        notice.start()
        try:
            with leave_running(attached, "is stopping"):
                description = attached.until_final()
        finally:
            notice.cancel()
        if description.failure and description.status == JobStatus.FAILED:
            why = escape_line(description.failure.summary())
            click.echo(f"job {attached.name} failed: {why}", err=True)
        return description
    return attached.describe()
