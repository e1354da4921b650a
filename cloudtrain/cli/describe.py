"""``cloudtrain describe``."""

from __future__ import annotations

import click

from cloudtrain.cli._options import echo_json, job_argument, json_option, platform_option


@click.command("describe")
@job_argument
@platform_option
@json_option
def command(job: str, platform: str | None, as_json: bool) -> None:
    """Show the state and the results of JOB, and why it failed."""
    from cloudtrain.job import Job
    from cloudtrain.platforms import Prices

    attached = Job.attach(job, platform)
    if as_json:
        cost = {"cost": attached.platform.cost(job)} if isinstance(attached.platform, Prices) else {}
        echo_json({**attached.describe().to_dict(), **cost})
        return
    from cloudtrain.cli._job_view import show_job

    show_job(attached)
