"""``cloudtrain metrics``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from cloudtrain.cli._options import echo_json, job_argument, json_option, platform_option

if TYPE_CHECKING:
    from cloudtrain.platforms import Series


HEADINGS = ("METRIC", "LAST", "MIN", "MAX", "VALUES", "OVER TIME")
LONGEST_INDENT = 80
"""Characters to which names are filled up: a script can give one metric a name that would make all rows long."""
GAP = "  "


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
    from cloudtrain._display.sparkline import sparkline
    from cloudtrain.contract.text import escape_line

    rows: list[tuple[str, ...]] = [HEADINGS]
    for name, points in series.items():
        values = [value for _, value in points]
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
