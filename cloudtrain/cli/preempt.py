"""``cloudtrain preempt``."""

from __future__ import annotations

import click

from cloudtrain.cli._options import echo_json, job_argument, json_option


@click.command("preempt")
@job_argument
@json_option
def command(job: str, as_json: bool) -> None:
    """Simulate a preemption of JOB, to test that the job survives one.

    The ranks get the same notice as on a spot instance that is reclaimed. When they have ended, the job restarts.
    """
    from cloudtrain.job import Job

    attached = Job.attach(job)
    attached.preempt()
    if as_json:
        echo_json(attached.describe().to_dict())
    else:
        click.echo(f"{job}: preempted; the job restarts when its ranks have ended")
