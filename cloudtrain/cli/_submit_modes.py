"""Modes of ``cloudtrain submit`` other than one submission: an array, a comparison, an export for a service."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cloudtrain.cli._output import echo_json, notify
from cloudtrain.contract.text import escape_line
from cloudtrain.errors import InvalidJob, PlatformError, TrainingFailed, nearest
from cloudtrain.platforms import Change, Export, Requests, changes
from cloudtrain.submission import secrets_left_out

if TYPE_CHECKING:
    from cloudtrain.array import JobArray
    from cloudtrain.job import Job
    from cloudtrain.submission import Submission


ALONE = ("check", "diff", "export", "mount_source")
"""The options that apply to one job only."""


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
        _show_array(array, as_json=as_json)
        return
    for warning in (*array.warnings, *config_warnings()):
        notify("Warning", warning)
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


def _show_array(array: JobArray, *, as_json: bool) -> None:
    """Print the jobs, and the script that would start them."""
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


def show_diff(job_name: str, submission: Submission, *, as_json: bool) -> None:
    """Print the fields that differ between two requests, each with its old and its new value.

    Raises:
        JobNotFound: the platform of the submission has no such job.
        PlatformError: the platform does not keep the requests of its jobs.
    """
    platform = submission.platform
    if not isinstance(platform, Requests):
        raise PlatformError(f"the platform {platform.name} does not keep the requests of its jobs")
    found = changes(platform.request(job_name), submission.request)
    if as_json:
        echo_json([{"path": change.path, "old": change.old, "new": change.new} for change in found])
    elif not found:
        click.echo(f"No differences from {job_name}")
    else:
        _show_changes(found, job_name)


def _show_changes(found: Sequence[Change], job_name: str) -> None:
    """Print the changes like a unified diff."""
    click.secho(f"--- {job_name}", bold=True)
    click.secho("+++ this submission", bold=True)
    for change in found:
        for sign, colour, value in (("-", "red", change.old), ("+", "green", change.new)):
            if value is not None:
                click.secho(f"{sign} {change.path}: {_text(value)}", fg=colour)


def _text(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text.encode(errors="backslashreplace").decode()


def show_export(kind: str, submission: Submission, *, uploads: bool) -> None:
    """Print the job in the form of the service, and on stderr, what is missing to run it.

    Args:
        uploads: whether to upload the source and local data for the service's runs.

    Raises:
        InvalidJob: the platform has no such format, or its service cannot run the job.
        StorageError: the upload failed.
    """
    platform = submission.platform
    formats = platform.export_formats if isinstance(platform, Export) else ()
    if not isinstance(platform, Export) or kind not in formats:
        known = nearest(kind, formats) if formats else "Only jobs for sagemaker can be printed for a service."
        raise InvalidJob(f"--as {kind}: the platform {platform.name} has no such format", hint=known)
    exported, secrets = platform.export(submission.request, kind)
    if uploads:
        submission.upload()
        platform.upload_for(submission.request)
    echo_json(exported)
    for note in _notes(submission, secrets, uploads=uploads):
        notify("Note", note)


def _notes(submission: Submission, secrets: Sequence[str], *, uploads: bool) -> list[str]:
    notes = []
    if secrets:
        notes.append(secrets_left_out(secrets))
    source = submission.job.source
    if submission.archive and source and not uploads:
        notes.append(f"the source is not at {source.uri} yet, unless you uploaded it before: add --upload.")
    return notes
