"""``cloudtrain describe``."""

from __future__ import annotations

import click

from cloudtrain.cli._options import echo_json, job_argument, json_option


@click.command("describe")
@job_argument
@json_option
def command(job: str, as_json: bool) -> None:
    """Show how JOB is, what it left, and why it failed."""
    from cloudtrain.job import Job

    description = Job.attach(job).describe()
    if as_json:
        echo_json(description.to_dict())
        return
    from cloudtrain.cli._view import show_job

    show_job(description)
