"""``cloudtrain preempt``."""

from __future__ import annotations

import click

from cloudtrain.cli._options import echo_json, job_argument, json_option


@click.command("preempt")
@job_argument
@json_option
def command(job: str, as_json: bool) -> None:
    """Play a preemption of JOB, to see whether it survives one: it is stopped, and started again."""
    from cloudtrain.job import Job

    attached = Job.attach(job)
    attached.preempt()
    if as_json:
        echo_json(attached.describe().to_dict())
    else:
        click.echo(f"{job}: its hosts are taken away; it starts again when its ranks have ended")
