"""``cloudtrain check``."""

from __future__ import annotations

import click

from cloudtrain.cli._options import json_option
from cloudtrain.cli.doctor import command as doctor


@click.command("check")
@click.argument("file", type=click.Path())
@click.option("--platform", help="Where the job is to run.  [default: what the job says]")
@click.option("--set", "settings", multiple=True, metavar="FIELD=VALUE", help="Change any field. Repeatable.")
@json_option
@click.pass_context
def command(context: click.Context, /, **options: object) -> None:
    """Look for what would make the job FILE fail: the same as cloudtrain doctor FILE.

    On the platform "container" the script is imported in the job's image, and what it needs is compared with what
    the image has: most of what would break in the cloud shows here.

    \b
    cloudtrain check train.yaml --platform container
    """
    context.invoke(doctor, **options)
