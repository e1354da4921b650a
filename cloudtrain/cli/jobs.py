"""The commands about one submitted job, each a function with the command's name."""

from __future__ import annotations

from math import isfinite
from typing import TYPE_CHECKING, Any

import click

from cloudtrain.cli._options import job_argument, json_option, platform_option
from cloudtrain.cli._output import echo_json, print_table

if TYPE_CHECKING:
    from cloudtrain.observe.metric_series import Point
    from cloudtrain.platforms import Series

HEADINGS = ("METRIC", "LAST", "MIN", "MAX", "VALUES", "OVER TIME")


@click.command
@job_argument
@platform_option
@json_option
def describe(job: str, platform: str | None, as_json: bool) -> None:
    """Show the state and the results of JOB, and why it failed."""
    from cloudtrain.history.refresh import freeze
    from cloudtrain.job import Job

    attached = Job.attach(job, platform)
    description = attached.describe()
    freeze(attached.platform, description)
    if as_json:
        from cloudtrain._display.view import cost_fields, plan_of
        from cloudtrain.platforms.base import cost_so_far

        cost = cost_so_far(attached.platform, description)
        plan = plan_of(description, cost)
        echo_json(
            {**description.to_dict(), **cost_fields(cost), **({"plan": plan.to_dict()} if plan else {})}
        )
        return
    from cloudtrain.cli._view import show_job

    show_job(attached, description)


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
@click.option(
    "--openmetrics",
    is_flag=True,
    help="Print the last values, and those of hosts and ranks, for Prometheus.",
)
@click.option(
    "--to",
    "target",
    metavar="FILE",
    type=click.Path(dir_okay=False),
    help="With --openmetrics: replace FILE in one step, as node_exporter's textfile collector needs it.",
)
@json_option
def metrics(job: str, platform: str | None, openmetrics: bool, target: str | None, as_json: bool) -> None:
    """Show the metrics of JOB over time: those that its script logs, or its metric_definitions find."""
    if target and not openmetrics:
        raise click.UsageError("--to needs --openmetrics.")
    from cloudtrain.errors import PlatformError
    from cloudtrain.job import Job
    from cloudtrain.platforms import Metrics

    attached = Job.attach(job, platform)
    if openmetrics:
        from cloudtrain._display.view import look_at
        from cloudtrain.watch.openmetrics import openmetrics as as_openmetrics

        text = as_openmetrics([look_at(attached.platform, job, states=False)])
        if target:
            _replace(target, text)
        else:
            click.echo(text, nl=False)
        return
    if not isinstance(attached.platform, Metrics):
        raise PlatformError(f"the platform {attached.platform.name} does not record metrics over time")
    series = attached.platform.metrics(job)
    if as_json:
        echo_json({name: [_point(point) for point in series[name]] for name in series})
    else:
        _show_metrics(job, series)


def _replace(target: str, text: str) -> None:
    """Replace a file atomically, so that readers never see a part of it. Raises StorageError."""
    from pathlib import Path

    from cloudtrain.errors import StorageError
    from cloudtrain.storage.atomic import replace_file

    try:
        replace_file(Path(target), text.encode())
    except OSError as error:
        raise StorageError(
            f"{target} cannot be written: {error.strerror}", hint="Name a file in a folder that exists."
        ) from error


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
    """A point as data for JSON: its time and value, and the other fields if the script logged its step."""
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

    rows = []
    for name, points in series.items():
        values = [point.value for point in points]
        finite = [value for value in values if isfinite(value)] or values
        numbers = (f"{value:g}" for value in (values[-1], min(finite), max(finite)))
        rows.append((name, *numbers, str(len(values)), sparkline(values)))
    print_table(HEADINGS, rows, right=HEADINGS[1:-1])
