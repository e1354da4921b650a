"""``cloudtrain s3``."""

from __future__ import annotations

import click

from cloudtrain.cli import _s3_files as files
from cloudtrain.cli import _s3_server as server


@click.group("s3")
def command() -> None:
    """Copy data to and from S3, and run a local S3 server.

    cp, ls, rm and sync work like those of the AWS command line. They use your AWS settings (AWS_PROFILE,
    AWS_ENDPOINT_URL_S3, ...); with --local-server, the server that `cloudtrain s3 start` runs.

    \b
    Examples:
      cloudtrain s3 cp --recursive data s3://bucket/data
      cloudtrain s3 sync --delete data s3://bucket/data
      cloudtrain s3 start
      eval "$(cloudtrain s3 env)"
      cloudtrain s3 make-bucket data
    """


for subcommand in (
    files.cp,
    files.ls,
    files.rm,
    files.sync,
    server.start,
    server.stop,
    server.status,
    server.env,
    server.make_bucket,
):
    command.add_command(subcommand)
