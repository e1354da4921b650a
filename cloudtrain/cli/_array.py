"""``cloudtrain submit --array``: many jobs of one description."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cloudtrain.cli._options import echo_json
from cloudtrain.contract.text import escape_line
from cloudtrain.errors import InvalidJob, TrainingFailed

if TYPE_CHECKING:
    from cloudtrain.array import JobArray
    from cloudtrain.job import Job

ALONE = ("check", "diff", "export", "mount_source")
"""The options that are about one job."""


def submit_array(fields: Mapping[str, Any], options: Mapping[str, Any], *, as_json: bool) -> None:
    """Submit a job for each element of the file that ``--array`` names; or print the jobs, with ``--dry-run``."""
    from cloudtrain.array import prepare_array
    from cloudtrain.config import config_warnings
    from cloudtrain.spec.elements import read_elements

    for name in ALONE:
        if options[name]:
            raise InvalidJob(
                f"--array and --{name.replace('_', '-')} cannot be combined: the latter is about one job",
                hint="Leave --array out.",
            )
    elements = read_elements(Path(options["array"]))
    array = prepare_array(fields, elements, submits=not options["dry_run"], defaults={})
    if options["dry_run"]:
        _show(array, as_json=as_json)
        return
    for warning in (*array.warnings, *config_warnings()):
        click.echo(f"{click.style('Warning:', fg='yellow')} {warning}", err=True)
    array.upload()
    if not as_json:
        click.echo(f"{_count(array)} on {array.submissions[0].platform.name}", err=True)
    jobs = array.start(lambda job: None if as_json else click.echo(job.name))
    failed = _wait(jobs, quiet=as_json) if options["wait"] else False
    if as_json:
        echo_json([job.describe().to_dict() for job in jobs])
    if failed:
        sys.exit(1)


def _count(array: JobArray) -> str:
    count = len(array.submissions)
    jobs = f"{count} jobs" if count > 1 else "1 job"
    return f"{jobs}, as one array" if array.script else f"{jobs}, submitted one by one"


def _show(array: JobArray, *, as_json: bool) -> None:
    """Print the jobs, and what would start them."""
    if as_json:
        jobs = [
            {"name": one.request.job_name, "values": dict(element), "request": dict(one.request.body)}
            for one, element in zip(array.submissions, array.elements, strict=True)
        ]
        echo_json({"jobs": jobs, "script": array.script or None})
        return
    for submission, element in zip(array.submissions, array.elements, strict=True):
        values = (
            f"{path}={value if isinstance(value, str) else json.dumps(value)}"
            for path, value in element.items()
        )
        click.echo("  ".join((submission.request.job_name, *values)))
    click.echo(_count(array), err=True)
    if array.script:
        click.echo(f"\n{array.script}", nl=False)


def _wait(jobs: list[Job], *, quiet: bool) -> bool:
    """Wait until all jobs have ended. Returns whether one did not complete."""
    failed = False
    for job in jobs:
        try:
            status = job.wait().status
            why = ""
        except TrainingFailed as error:
            status, why = job.status, f": {error.failure.summary()}"
        failed = failed or status != "Completed"
        if not quiet:
            click.echo(escape_line(f"{job.name}: {status}{why}"), err=True)
    return failed
