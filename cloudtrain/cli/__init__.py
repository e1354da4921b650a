"""The ``cloudtrain`` command: words and pictures for people, over the same API that Python has."""

from __future__ import annotations

import click

from cloudtrain.cli._errors import reported
from cloudtrain.cli.completion import completion
from cloudtrain.cli.describe import describe
from cloudtrain.cli.download import download
from cloudtrain.cli.list import list_
from cloudtrain.cli.logs import logs
from cloudtrain.cli.s3 import s3
from cloudtrain.cli.stop import stop
from cloudtrain.cli.submit import submit
from cloudtrain.cli.wait import wait


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="cloudtrain", message="cloudtrain %(version)s")
def cli() -> None:
    """Submit distributed training jobs to any cluster.

    \b
    cloudtrain submit train.py -- --epochs 5    run a script
    cloudtrain submit train.yaml                run a job file
    cloudtrain list                             see all jobs
    """


for command in (submit, list_, describe, logs, wait, stop, download, s3, completion):
    cli.add_command(command)


def main() -> None:
    """The command line's entry point."""
    with reported():
        cli(prog_name="cloudtrain")


__all__ = ["cli", "main"]
