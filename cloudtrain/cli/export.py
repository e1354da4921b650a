"""``cloudtrain export``."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from pathlib import Path

import click

from cloudtrain.cli._options import complete_job, json_option
from cloudtrain.cli._output import echo_json


@click.command("export")
@click.argument("jobs", nargs=-1, shell_complete=complete_job)
@click.option(
    "--to",
    "target",
    required=True,
    metavar="TARGET",
    help="A folder; a file that ends with .csv or .parquet, for one table of jobs; or mlflow:URI, such as "
    "mlflow:http://localhost:5000.",
)
@click.option(
    "--format",
    "kind",
    type=click.Choice(["csv", "parquet"]),
    default="csv",
    show_default=True,
    help="Of the files in a folder.",
)
@click.option(
    "--where", default="", metavar="CONDITION", help="Export the jobs that fulfil it, as list --where does."
)
@click.option(
    "--experiment", default="cloudtrain", show_default=True, metavar="NAME", help="The experiment of MLflow."
)
@json_option
def command(
    jobs: tuple[str, ...], target: str, kind: str, where: str, experiment: str, as_json: bool
) -> None:
    """Export JOBS, or all jobs, with their metrics over time: as CSV, as Parquet, or to MLflow.

    A folder gets two tables: jobs, with parameters and the last, smallest and largest values of metrics, and metrics,
    with all values.
    """
    from cloudtrain.history.export import choose, to_files, to_mlflow, to_table

    found = choose(jobs, where)
    path = Path(target)
    if target.startswith("mlflow:"):
        with redirect_stdout(sys.stderr):  # MLflow prints the address of each run
            written = to_mlflow(found, target.removeprefix("mlflow:"), experiment)
    elif path.suffix.lower() in (".csv", ".parquet"):
        written = [str(to_table(found, path))]
    else:
        written = [str(file) for file in to_files(found, path, kind)]
    if as_json:
        echo_json(written)
    else:
        click.echo("\n".join(written))
