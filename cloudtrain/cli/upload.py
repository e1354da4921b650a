"""``cloudtrain upload``."""

from __future__ import annotations

import click

from cloudtrain.cli._options import echo_json, job_argument, json_option


@click.command("upload")
@job_argument
@json_option
def command(job: str, as_json: bool) -> None:
    """Upload the outputs of JOB whose training is complete, but whose upload failed. Prints their URIs.

    The storage was unavailable when the job ended. Its model and its other outputs are still in its job folder. After
    the upload, the job is Completed. Does nothing for a job whose outputs have been uploaded.
    """
    from cloudtrain.cli._progress import bytes_bar
    from cloudtrain.job import Job

    with bytes_bar("upload", quiet=as_json) as on_bytes:
        uploaded = Job.attach(job).upload(on_bytes)
    if as_json:
        echo_json(uploaded)
    elif uploaded:
        click.echo("\n".join(uploaded.values()))
    else:
        click.echo(f"{job} has no outputs", err=True)
