"""The difference between a submission and the request of an earlier job."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from cloudtrain.cli._options import echo_json
from cloudtrain.errors import PlatformError
from cloudtrain.platforms import Change, Requests, changes

if TYPE_CHECKING:
    from cloudtrain.submission import Submission


def show_diff(job_name: str, submission: Submission, *, as_json: bool) -> None:
    """Print the fields that differ between two requests, each with its old and its new value.

    Raises:
        JobNotFound: the platform of the submission does not know the job.
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
        _show(found, job_name)


def _show(found: Sequence[Change], job_name: str) -> None:
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
