"""``cloudtrain list``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from cloudtrain.cli._options import complete_platform, json_option
from cloudtrain.cli._output import echo_json, print_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cloudtrain.history.outlines import Ended
    from cloudtrain.index import IndexEntry
    from cloudtrain.platforms import JobDescription

    Found = tuple[str, str, JobDescription | Ended | Exception]
    """The name and the platform of a job, and its description, its recorded end, or the error of the query."""


@click.command("list")
@click.option(
    "-n",
    "--limit",
    type=click.IntRange(1, 2**31 - 1),
    default=20,
    show_default="20",
    metavar="N",
    help="Maximum number of jobs to list.",
)
@click.option(
    "--platform",
    "place",
    metavar="NAME",
    shell_complete=complete_platform,
    help="Ask this platform for its jobs instead, also those submitted from other machines. From then on, the other "
    "commands find these jobs by name.",
)
@click.option(
    "--where",
    default="",
    metavar="CONDITION",
    help="List the jobs that fulfil it: 'loss < 0.3 and lr > 0.01 and status == \"Completed\"'. It names fields, "
    "parameters and metrics of jobs.",
)
@click.option(
    "--sort",
    default="",
    metavar="NAME",
    help="Sort by a field, a parameter or a metric; -NAME: the greatest value first.",
)
@click.option(
    "--columns",
    default="",
    metavar="NAMES",
    help="Show these, with commas between them: name,lr,loss,loss.min",
)
@json_option
def command(limit: int, place: str | None, where: str, sort: str, columns: str, as_json: bool) -> None:
    """List the jobs submitted from this machine, newest first.

    With --where, --sort or --columns, jobs are listed from the history: also those that clean has removed.
    """
    from cloudtrain.cli._job_table import show_jobs

    if where.strip() or sort or columns:
        if place:
            raise click.UsageError(
                "--platform asks a platform. To select jobs, write: --where 'platform == \"NAME\"'"
            )
        _of_history(where, sort, limit, [name for name in columns.split(",") if name.strip()], as_json)
        return
    found = _on_platform(place, limit) if place else _of_this_machine(limit, whole=as_json)
    if as_json:
        echo_json([_record(*row) for row in found])
    elif place and not found:
        click.echo(f"No jobs on {place}. Submit one: cloudtrain submit train.py --platform {place}", err=True)
    else:
        show_jobs(found)
        from cloudtrain.sweep.journal import sweeps_of

        if sweeps := sweeps_of(name for name, _, _ in found):
            commands = ", ".join(f"cloudtrain sweep describe {name}" for name in sweeps)
            click.echo(f"Trials of sweeps. See: {commands}", err=True)


def _of_history(where: str, sort: str, limit: int, columns: list[str], as_json: bool) -> None:
    """Print the jobs in the history that fulfil a condition."""
    from cloudtrain._display.past import cell
    from cloudtrain.cli._output import count_bar
    from cloudtrain.history.queries import search
    from cloudtrain.history.sql import labels

    with count_bar("Looking at jobs", quiet=as_json) as progress:
        found = search(where, sort, limit, columns, progress=progress)
    jobs, names = found.jobs, labels(found.fields)
    if as_json and columns:
        echo_json(
            [{name: field.of(job) for name, field in zip(names, found.fields, strict=True)} for job in jobs]
        )
    elif as_json:
        echo_json([job.to_dict() for job in jobs])
    elif not jobs:
        click.echo("No such jobs. See all: cloudtrain list", err=True)
    else:
        headings = [name.upper() for name in names]
        right = [
            heading
            for heading, field in zip(headings, found.fields, strict=True)
            if all(_is_number(field.of(job)) for job in jobs)
        ]
        print_table(headings, ([cell(field, job) for field in found.fields] for job in jobs), right)


def _is_number(value: str | float | None) -> bool:
    from cloudtrain.index import to_number

    return not isinstance(value, str) or to_number(value) is not None


def _on_platform(name: str, limit: int) -> list[Found]:
    """The jobs that the platform itself lists, which the index now finds by name. Raises PlatformError."""
    from itertools import islice

    from cloudtrain.index import IndexEntry, remember_found
    from cloudtrain.platforms import get_platform

    jobs = [*islice(get_platform(name).list(), limit)]
    remember_found([IndexEntry(job.name, job.platform, job.submitted_at) for job in jobs])
    return [(job.name, job.platform, job) for job in jobs]


def _of_this_machine(limit: int, *, whole: bool) -> list[Found]:
    """The jobs submitted from this machine: their whole descriptions, or only the part that a table shows.

    The index has the ends of jobs that were listed earlier.
    """
    from cloudtrain.history.outlines import known_ends

    found: dict[IndexEntry, JobDescription | Ended | Exception] = {}
    ends = known_ends(limit)
    found.update((entry, end) for entry, end in ends if end and not whole)
    if len(found) < len(ends):
        from cloudtrain.history.described import describe_all

        others = [entry for entry, _ in ends if entry not in found]
        found.update(describe_all(others, whole=whole, waits=_say_who_is_asked))
    return [(entry.name, entry.platform, found[entry]) for entry, _ in ends]


def _say_who_is_asked(platforms: Sequence[str]) -> None:
    click.echo(f"asking {', '.join(platforms)} ...", err=True)


def _record(name: str, platform: str, description: JobDescription | Ended | Exception) -> dict[str, Any]:
    from cloudtrain._display.view import cost_fields
    from cloudtrain.history.described import reason_of
    from cloudtrain.platforms import JobDescription

    if isinstance(description, JobDescription):
        return {**description.to_dict(), **cost_fields(description.cost)}
    assert isinstance(description, Exception), "with --json, no end is taken for a description"
    return {"name": name, "platform": platform, "status": "Unknown", "reason": reason_of(description)}
