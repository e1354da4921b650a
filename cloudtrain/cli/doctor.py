"""``cloudtrain doctor`` and ``cloudtrain check``: run checks in parallel, and show the findings."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import click

from cloudtrain.cli._options import complete_platform, json_option, set_option
from cloudtrain.cli._output import echo_json, table_console

if TYPE_CHECKING:
    from cloudtrain.platforms import Check, Finding

MARKS = {"ok": ("✓", "green"), "warning": ("!", "yellow"), "failed": ("✗", "red"), "unknown": ("?", "cyan")}
"""A sign and its colour for each `CheckStatus`."""


@click.command("doctor")
@click.argument("file", required=False, type=click.Path())
@click.option(
    "--platform",
    metavar="NAME",
    shell_complete=complete_platform,
    help="Platform to check.  [default: the job's platform, or local]",
)
@set_option
@json_option
def command(file: str | None, platform: str | None, settings: tuple[str, ...], as_json: bool) -> None:
    """Check a platform, or FILE on it, for problems that would make jobs fail.

    FILE is a script or a job file. The checks submit, upload and change nothing. A check that your permissions do
    not allow is "unknown", which is not a failure. The exit status is 1 if a check fails.

    \b
    Examples:
      cloudtrain doctor
      cloudtrain doctor train.yaml --platform sagemaker
    """
    from cloudtrain.cli._submit_fields import fields_of
    from cloudtrain.spec import apply_overrides

    fields = {**(fields_of(file) if file else {}), **({"platform": platform} if platform else {})}
    fields = apply_overrides(fields, settings)
    if file:
        check_job(fields, as_json=as_json)
    from cloudtrain.config import read_config

    fields = {**read_config(), **fields}
    more = "" if platform else _others_found(fields.get("platform") or "local")
    _show_and_exit(_platform_checks(fields), as_json=as_json, more=more)


@click.command("check")
@click.argument("file", type=click.Path())
@click.option(
    "--platform",
    metavar="NAME",
    shell_complete=complete_platform,
    help="Platform to check the job for.  [default: the job's platform]",
)
@set_option
@json_option
@click.pass_context
def check(context: click.Context, /, **options: object) -> None:
    """Check FILE, a script or a job file, for problems that would make the job fail.

    The same as cloudtrain doctor FILE. With --platform container, the check imports the script inside the job's
    image, and compares what the script needs with what the image has. That finds most problems that the job would
    have in the cloud.

    \b
    Examples:
      cloudtrain check train.yaml
      cloudtrain check train.yaml --platform container
    """
    context.invoke(command, **options)


def _others_found(checked: str) -> str:
    """The other platforms that this user can probably use, and how to check them."""
    from cloudtrain.platforms.reach import found_here

    others = [f"{name} ({sign})" for name, sign in found_here().items() if name != checked]
    found = f"Also found here: {', '.join(others)}. " if others else ""
    return (
        f"{found}Check another platform: cloudtrain doctor --platform NAME. All of them: cloudtrain platforms"
    )


def check_job(
    fields: Mapping[str, Any], *, as_json: bool, defaults: Mapping[str, Any] | None = None
) -> NoReturn:
    """Run all checks of a job and show the findings. Exits with status 1 if a check failed, else 0.

    Args:
        defaults: values of fields that ``fields`` lacks; None for those of the config file.
    """
    _show_and_exit(_checks_of(fields, defaults), as_json=as_json)


def _checks_of(fields: Mapping[str, Any], defaults: Mapping[str, Any] | None) -> dict[str, Check]:
    """The checks of a job. If it cannot be prepared: that failure, and the checks of its platform."""
    from cloudtrain.config import read_config
    from cloudtrain.errors import CloudtrainError
    from cloudtrain.platforms import Finding, job_checks
    from cloudtrain.submission import prepare

    try:
        fields = {**(read_config() if defaults is None else defaults), **fields}
        submission = prepare(fields, defaults={})
        archive = submission.archive.path if submission.archive else None
        return job_checks(submission.platform, submission.job, submission.request, archive)
    except CloudtrainError as error:
        finding = Finding.of(error)
        failure: dict[str, Check] = {"job": lambda: finding}
    try:
        return {**failure, **_platform_checks(fields)}
    except CloudtrainError:  # the platform is unknown too
        return failure


def _platform_checks(fields: Mapping[str, Any]) -> dict[str, Check]:
    """The checks of the platform that ``fields`` name, without a job."""
    from cloudtrain.platforms import get_platform, job_checks
    from cloudtrain.spec import TrainingJob
    from cloudtrain.submission import default_platform

    job = TrainingJob.from_dict(dict(fields))
    return job_checks(get_platform(job.platform or default_platform(job)), job, None, None)


def _show_and_exit(checks: Mapping[str, Check], *, as_json: bool, more: str = "") -> NoReturn:
    from rich.console import Console

    from cloudtrain.platforms import CheckStatus, run_checks

    with Console(stderr=True).status("Running checks…"):
        found = list(run_checks(checks))
    if as_json:
        echo_json(
            [
                {"name": name, "outcome": str(finding.status), "what": finding.what, "hint": finding.hint}
                for name, finding in found
            ]
        )
    else:
        _show(found)
        if more:
            click.echo(more, err=True)
    sys.exit(any(finding.status == CheckStatus.FAILED for _, finding in found))


def _show(found: Sequence[tuple[str, Finding]]) -> None:
    """Print one row per check, with its hint below."""
    from rich.table import Table
    from rich.text import Text

    from cloudtrain.contract.text import escape_text

    table = Table(box=None, pad_edge=False, show_header=False)
    for wraps in (False, False, False, True):
        table.add_column(no_wrap=not wraps, overflow="fold")
    for name, finding in found:
        mark, colour = MARKS[str(finding.status)]
        what = Text(escape_text(finding.what))
        if finding.hint:
            what.append(f"\n{escape_text(finding.hint)}", style="dim")
        table.add_row(Text(mark, style=colour), name, Text(str(finding.status), style=colour), what)
    table_console().print(table)
