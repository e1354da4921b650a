"""``cloudtrain download``."""

from __future__ import annotations

import click

from cloudtrain.cli._options import echo_json, job_argument, json_option


@click.command("download")
@job_argument
@click.option(
    "--to",
    "folder",
    default=".",
    show_default=True,
    metavar="FOLDER",
    type=click.Path(file_okay=False),
    help="Folder to download to.",
)
@json_option
def command(job: str, folder: str, as_json: bool) -> None:
    """Download the model and the other outputs of JOB. Prints the path of each file."""
    from cloudtrain.cli._progress import bytes_bar
    from cloudtrain.contract.text import escape_line
    from cloudtrain.job import Job

    with bytes_bar("download", quiet=as_json) as on_bytes:
        paths = Job.attach(job).download(folder, on_bytes)
    if as_json:
        echo_json([str(path) for path in paths])
    else:
        click.echo("\n".join(escape_line(str(path)) for path in paths))
