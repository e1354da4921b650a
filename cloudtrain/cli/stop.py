"""``cloudtrain stop``."""

from __future__ import annotations

import click

from cloudtrain.cli._options import echo_json, job_argument, json_option, platform_option


@click.command("stop")
@job_argument
@click.option("--wait/--no-wait", default=True, help="Return when the job has ended.  [default: wait]")
@platform_option
@json_option
def command(job: str, wait: bool, platform: str | None, as_json: bool) -> None:
    """Ask JOB to end. Its ranks get SIGTERM, and their grace to write a checkpoint."""
    from cloudtrain.errors import TrainingFailed
    from cloudtrain.job import Job

    attached = Job.attach(job, platform)
    attached.stop()
    if wait:
        from cloudtrain.cli._view import leave_running

        try:
            with leave_running(attached, "stops"):
                attached.wait()
        except TrainingFailed as failed:
            click.echo(failed.message, err=True)
    description = attached.describe()
    if as_json:
        echo_json(description.to_dict())
    else:
        click.echo(f"{job}: {description.status}")
