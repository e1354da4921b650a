"""``cloudtrain metrics``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from cloudtrain.cli._options import echo_json, job_argument, json_option, platform_option

if TYPE_CHECKING:
    from cloudtrain.platforms import Series


@click.command("metrics")
@job_argument
@platform_option
@json_option
def command(job: str, platform: str | None, as_json: bool) -> None:
    """Show the metrics of JOB over time, as defined by its metric_definitions."""
    from cloudtrain.errors import PlatformError
    from cloudtrain.job import Job
    from cloudtrain.platforms import Metrics

    attached = Job.attach(job, platform)
    if not isinstance(attached.platform, Metrics):
        raise PlatformError(f"the platform {attached.platform.name} does not record metrics over time")
    series = attached.platform.metrics(job)
    if as_json:
        echo_json({name: [{"time": at, "value": value} for at, value in series[name]] for name in series})
    else:
        _show(job, series)


def _show(job: str, series: Series) -> None:
    """Print one row per metric."""
    if not series:
        click.echo(f"Job {job} has no metrics yet. Its metric_definitions define them.", err=True)
        return
    from rich.console import Console
    from rich.table import Table

    from cloudtrain.cli._plot import sparkline

    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("METRIC", no_wrap=True)
    for heading in ("LAST", "MIN", "MAX", "VALUES"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("OVER TIME", no_wrap=True)
    for name, points in series.items():
        values = [value for _, value in points]
        numbers = (f"{value:g}" for value in (values[-1], min(values), max(values)))
        table.add_row(name, *numbers, str(len(values)), sparkline(values))
    console = Console()
    (console if console.is_terminal else Console(width=200)).print(table)
