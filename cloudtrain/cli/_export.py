"""``cloudtrain submit --dry-run --as FORMAT``: the job for a service that starts it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from cloudtrain.cli._options import echo_json
from cloudtrain.errors import InvalidJob, nearest
from cloudtrain.platforms import Export
from cloudtrain.submission import secrets_left_out

if TYPE_CHECKING:
    from cloudtrain.submission import Submission


def show_export(kind: str, submission: Submission, *, uploads: bool) -> None:
    """Print the job as the service needs it, and on stderr, what it lacks to run.

    Args:
        uploads: also upload the source and local data, which the service's runs then find.

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
        click.echo(f"{click.style('Note:', fg='yellow')} {note}", err=True)


def _notes(submission: Submission, secrets: Sequence[str], *, uploads: bool) -> list[str]:
    notes = []
    if secrets:
        notes.append(secrets_left_out(secrets))
    source = submission.job.source
    if submission.archive and source and not uploads:
        notes.append(f"the source is not at {source.uri} yet, unless you uploaded it before: add --upload.")
    return notes
