"""``cloudtrain wait``."""

from __future__ import annotations

import click

from cloudtrain.cli._options import job_argument, json_option, platform_option


@click.command("wait")
@job_argument
@platform_option
@json_option
def command(job: str, platform: str | None, as_json: bool) -> None:
    """Attach to JOB: print its output until it ends, and exit with its exit status."""
    from cloudtrain.cli._view import watch
    from cloudtrain.job import Job

    watch(Job.attach(job, platform), quiet=as_json)
