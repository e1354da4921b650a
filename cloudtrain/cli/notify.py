"""``cloudtrain notify``."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cloudtrain.cli._options import complete_job, json_option, platform_option
from cloudtrain.cli._output import echo_json
from cloudtrain.contract.text import escape_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cloudtrain.runtime.notifications.rules import Rule
    from cloudtrain.watch.notifications import Result


@click.command("notify")
@click.argument("job", shell_complete=complete_job)
@click.option("--test", is_flag=True, help="Send a test to each place in the job file JOB.")
@click.option("--wait", is_flag=True, help="Wait until the job has ended first.")
@click.option(
    "--with",
    "rules_file",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="A job file with the field notify, for a job that was submitted without.",
)
@platform_option
@json_option
def command(
    job: str, test: bool, wait: bool, rules_file: Path | None, platform: str | None, as_json: bool
) -> None:
    """Send the notifications of JOB that have not arrived, or test those of a job file.

    Jobs send their notifications themselves, except on SageMaker. This sends what they could not.
    """
    from cloudtrain.watch.notifications import rules_of_job, send_notifications, send_test

    if test:
        results = send_test(_rules(Path(job)))
    else:
        from cloudtrain.cli._view import leave_running
        from cloudtrain.job import Job

        attached = Job.attach(job, platform)
        rules = rules_of_job(attached, _rules(rules_file) if rules_file else ())
        if wait:
            with leave_running(attached):
                attached.until_final()
        results = send_notifications(attached, rules)
    if as_json:
        echo_json([asdict(result) for result in results])
    else:
        _show(results)
    if any(result.error for result in results):
        sys.exit(1)


def _rules(path: Path) -> Sequence[Rule]:
    """The rules of a job file, or else of the config file. Raises InvalidJob."""
    import msgspec

    from cloudtrain.config import config_path, read_config
    from cloudtrain.errors import InvalidJob
    from cloudtrain.runtime.notifications.rules import Rule
    from cloudtrain.spec import TrainingJob, read_job_file

    job = TrainingJob.from_dict({**read_config(), **read_job_file(path)})
    if not job.notify:
        raise InvalidJob(
            f"neither {path} nor {config_path()} has the field notify",
            hint="For example: notify: [{on: [failed], slack: $SLACK_WEBHOOK}]",
        )
    return [Rule.from_dict(msgspec.to_builtins(rule)) for rule in job.notify]


def _show(results: Sequence[Result]) -> None:
    for result in results:
        click.echo(escape_line(f"{result.event} ({result.kind}): {result.error or 'sent'}"))
    if not results:
        click.echo("all notifications have arrived", err=True)
