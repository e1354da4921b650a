"""Options and arguments that several commands share."""

from __future__ import annotations

import click

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")


def complete_job(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    import warnings

    from cloudtrain.index import list_jobs

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # not in the middle of a command line
        return [entry.name for entry in list_jobs() if entry.name.startswith(incomplete)]


job_argument = click.argument("job", shell_complete=complete_job)
platform_option = click.option(
    "--platform",
    metavar="NAME",
    help="Platform of JOB. Needed only if it was submitted from another machine.",
)
set_option = click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="FIELD=VALUE",
    help="Set any field of the job, for example hyperparameters.lr=0.1. Repeatable.",
)
