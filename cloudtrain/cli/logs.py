"""``cloudtrain logs``."""

from __future__ import annotations

import click

from cloudtrain.cli._options import job_argument, json_option, platform_option


@click.command("logs")
@job_argument
@click.option("-f", "--follow", is_flag=True, help="Print new lines until the job ends.")
@click.option("--rank", type=int, metavar="N", help="Print only the lines of this rank.")
@platform_option
@json_option
def command(job: str, follow: bool, rank: int | None, platform: str | None, as_json: bool) -> None:
    """Print the output of the ranks of JOB."""
    from cloudtrain.cli._view import leave_running, print_line
    from cloudtrain.job import Job

    attached = Job.attach(job, platform)
    with leave_running(attached):
        for line in attached.platform.logs(job, follow=follow):
            if rank is None or line.startswith(f"[rank {rank}] "):
                print_line(line, as_json=as_json)
