"""The commands about one submitted job, each a function of its name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from cloudtrain.cli._options import job_argument, json_option, platform_option
from cloudtrain.cli._output import echo_json

if TYPE_CHECKING:
    from cloudtrain.observe.metric_series import Point
    from cloudtrain.platforms import Series

HEADINGS = ("METRIC", "LAST", "MIN", "MAX", "VALUES", "OVER TIME")
LONGEST_INDENT = 80
"""Characters to which names are filled up: a script can give one metric a name that would make all rows long."""
GAP = "  "


@click.command
@job_argument
@platform_option
@json_option
def describe(job: str, platform: str | None, as_json: bool) -> None:
    """Show the state and the results of JOB, and why it failed."""
    from cloudtrain.job import Job
    from cloudtrain.platforms import Prices

    attached = Job.attach(job, platform)
    if as_json:
        cost = {"cost": attached.platform.cost(job)} if isinstance(attached.platform, Prices) else {}
        echo_json({**attached.describe().to_dict(), **cost})
        return
    from cloudtrain.cli._view import show_job

    show_job(attached)


@click.command
@job_argument
@click.option("-f", "--follow", is_flag=True, help="Print new lines until the job ends.")
@click.option("--rank", type=int, metavar="N", help="Print only the lines of this rank.")
@platform_option
@json_option
def logs(job: str, follow: bool, rank: int | None, platform: str | None, as_json: bool) -> None:
    """Print the output of the ranks of JOB."""
    from cloudtrain.cli._view import leave_running, print_line
    from cloudtrain.job import Job

    attached = Job.attach(job, platform)
    with leave_running(attached):
        for line in attached.platform.logs(job, follow=follow):
            if rank is None or line.startswith(f"[rank {rank}] "):
                print_line(line, as_json=as_json)


@click.command
@job_argument
@platform_option
@json_option
def wait(job: str, platform: str | None, as_json: bool) -> None:
    """Attach to JOB: print its output until it ends, and exit with its exit status."""
    from cloudtrain.cli._view import watch
    from cloudtrain.job import Job

    watch(Job.attach(job, platform), quiet=as_json)


@click.command
@job_argument
@json_option
def preempt(job: str, as_json: bool) -> None:
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


@click.command
@job_argument
@platform_option
@json_option
def metrics(job: str, platform: str | None, as_json: bool) -> None:
    """Show the metrics of JOB over time: those that its script logs, or that its metric_definitions find."""
    from cloudtrain.errors import PlatformError
    from cloudtrain.job import Job
    from cloudtrain.platforms import Metrics

    attached = Job.attach(job, platform)
    if not isinstance(attached.platform, Metrics):
        raise PlatformError(f"the platform {attached.platform.name} does not record metrics over time")
    series = attached.platform.metrics(job)
    if as_json:
        echo_json({name: [_point(point) for point in series[name]] for name in series})
    else:
        _show_metrics(job, series)


@click.command
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
def download(job: str, folder: str, as_json: bool) -> None:
    """Download the model and the other outputs of JOB. Prints the path of each file."""
    from cloudtrain.cli._output import bytes_bar
    from cloudtrain.contract.text import escape_line
    from cloudtrain.job import Job

    with bytes_bar("download", quiet=as_json) as on_bytes:
        paths = Job.attach(job).download(folder, on_bytes)
    if as_json:
        echo_json([str(path) for path in paths])
    else:
        click.echo("\n".join(escape_line(str(path)) for path in paths))


@click.command
@job_argument
@json_option
def upload(job: str, as_json: bool) -> None:
    """Upload the outputs of JOB whose training is complete, but whose upload failed. Prints their URIs.

    The storage was unavailable when the job ended. Its model and its other outputs are still in its job folder. After
    the upload, the job is Completed. Does nothing for a job whose outputs have been uploaded.
    """
    from cloudtrain.cli._output import bytes_bar
    from cloudtrain.job import Job

    with bytes_bar("upload", quiet=as_json) as on_bytes:
        uploaded = Job.attach(job).upload(on_bytes)
    if as_json:
        echo_json(uploaded)
    elif uploaded:
        click.echo("\n".join(uploaded.values()))
    else:
        click.echo(f"{job} has no outputs", err=True)


def _point(point: Point) -> dict[str, Any]:
    """A point as data for JSON: its time and value, and what is known of a step that the script logged."""
    if point.step is None:
        return {"time": point.time, "value": point.value}
    return {name: value for name, value in point._asdict().items() if value is not None}


def _show_metrics(job: str, series: Series) -> None:
    """Print one row per metric."""
    if not series:
        click.echo(
            f"Job {job} has no metrics yet. Its script logs them with cloudtrain.log, or its metric_definitions find "
            "them in its output.",
            err=True,
        )
        return
    from cloudtrain._display.sparkline import sparkline
    from cloudtrain.contract.text import escape_line

    rows: list[tuple[str, ...]] = [HEADINGS]
    for name, points in series.items():
        values = [point.value for point in points]
        numbers = (f"{value:g}" for value in (values[-1], min(values), max(values)))
        rows.append((escape_line(name), *numbers, str(len(values)), sparkline(values)))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:  # there may be thousands, for which the tables of rich take minutes
        name, *columns, plot = row
        cells = [name.ljust(min(widths[0], LONGEST_INDENT)), *map(str.rjust, columns, widths[1:]), plot]
        lines.append(GAP.join(cells).rstrip())
    lines[0] = click.style(lines[0], dim=True)
    click.echo("\n".join(lines))
