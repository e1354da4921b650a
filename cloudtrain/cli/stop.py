"""``cloudtrain stop``."""

from __future__ import annotations

import click

from cloudtrain.cli._options import echo_json, job_argument, json_option, platform_option


@click.command("stop")
@job_argument
@click.option(
    "--wait/--no-wait",
    default=True,
    help="Wait until the job has ended, or return immediately.  [default: wait]",
)
@platform_option
@json_option
def command(job: str, wait: bool, platform: str | None, as_json: bool) -> None:
    """Stop JOB.

    The ranks get SIGTERM, and the job's stop_grace in seconds to save a checkpoint and exit.
    """
    from cloudtrain.errors import TrainingFailed
    from cloudtrain.job import Job

    attached = Job.attach(job, platform)
    attached.stop()
    if wait:
        from cloudtrain.cli._view import leave_running

        try:
            with leave_running(attached, "is stopping"):
                attached.wait()
        except TrainingFailed as failed:
            click.echo(failed.message, err=True)
    description = attached.describe()
    if as_json:
        echo_json(description.to_dict())
    else:
        click.echo(f"{job}: {description.status}")
