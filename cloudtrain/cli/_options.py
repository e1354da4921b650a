"""Options and arguments that several commands share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")


def complete_job(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    import warnings

    from cloudtrain.index import list_jobs

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # they would be printed into the command line
        return [entry.name for entry in list_jobs() if entry.name.startswith(incomplete)]


def complete_job_or_file(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """The jobs, and the files that the shell completes."""
    from click.shell_completion import CompletionItem

    jobs = [CompletionItem(name) for name in complete_job(context, parameter, incomplete)]
    return [CompletionItem(incomplete, type="file"), *jobs]


def complete_platform(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    from cloudtrain.platforms import platform_names

    return [name for name in platform_names() if name.startswith(incomplete)]


job_argument = click.argument("job", shell_complete=complete_job)
platform_option = click.option(
    "--platform",
    metavar="NAME",
    shell_complete=complete_platform,
    help="Platform of JOB. Needed only if it was submitted from another machine.",
)
set_option = click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="FIELD=VALUE",
    help="Set any field of the job, for example hyperparameters.lr=0.1. Repeatable.",
)
