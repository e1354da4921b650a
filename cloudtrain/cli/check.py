"""``cloudtrain check``."""

from __future__ import annotations

import click

from cloudtrain.cli._options import json_option, set_option
from cloudtrain.cli.doctor import command as doctor


@click.command("check")
@click.argument("file", type=click.Path())
@click.option(
    "--platform", metavar="NAME", help="Platform to check the job for.  [default: the job's platform]"
)
@set_option
@json_option
@click.pass_context
def command(context: click.Context, /, **options: object) -> None:
    """Check FILE, a script or a job file, for problems that would make the job fail.

    The same as cloudtrain doctor FILE. With --platform container, the check imports the script inside the job's
    image, and compares what the script needs with what the image has. That finds most problems that the job would
    have in the cloud.

    \b
    Examples:
      cloudtrain check train.yaml
      cloudtrain check train.yaml --platform container
    """
    context.invoke(doctor, **options)
