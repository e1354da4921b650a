"""``cloudtrain top``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from cloudtrain.cli._options import complete_job, complete_platform, json_option

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console
    from rich.text import Text


@click.command("top")
@click.argument("job", required=False, shell_complete=complete_job)
@click.option(
    "--platform",
    metavar="NAME",
    shell_complete=complete_platform,
    help="Platform of JOB, if it was submitted from another machine. Without JOB: only the jobs of this platform.",
)
@json_option
def command(job: str | None, platform: str | None, as_json: bool) -> None:
    """Watch a job live: its hosts and GPUs, phases, progress, and why it waits. JOB may be the name of a sweep.

    Without JOB: all jobs that have not ended; choose one with the arrow keys. Press q to quit. Where the output is not
    a terminal, and with --json, it prints the current state once.

    \b
    Examples:
      cloudtrain top
      cloudtrain top train-1
      cloudtrain top train-1 --json
      cloudtrain top my-sweep
    """
    from cloudtrain._display.view import look_at
    from cloudtrain.cli._output import echo_json, table_console
    from cloudtrain.job import Job
    from cloudtrain.watch.sweeps import is_sweep
    from cloudtrain.watch.top.jobs import RunningJobs

    sweep = job if job and platform is None and is_sweep(job) else None
    found = Job.attach(job, platform) if job and not sweep else None
    console = table_console()
    if console.is_terminal and not console.is_dumb_terminal and not as_json:
        from cloudtrain.watch.top.app import Top

        try:
            Top(console, sweep or found, platform).run()
        except KeyboardInterrupt:
            return
    elif sweep:
        from cloudtrain.watch.top.sweep_page import look, sweep_page, to_dict

        if as_json:
            echo_json(to_dict(look(sweep)))
        else:
            _print(console, sweep_page(look(sweep), console.width, None))
    elif found:
        view = look_at(found.platform, found.name)
        if as_json:
            echo_json(view.to_dict())
        else:
            from cloudtrain.watch.top.job_page import job_page

            _print(console, job_page(view, console.width, None))
    else:
        from cloudtrain.watch.top.list_page import Choice, list_page

        rows = RunningJobs(platform, is_live=False).look()
        if as_json:
            echo_json([line.to_dict() for line in Choice.all_open(rows).lines(rows)])
        else:
            _print(console, list_page(rows, console.width, None))


def _print(console: Console, lines: Sequence[Text]) -> None:
    for line in lines:
        console.print(line, soft_wrap=True)
