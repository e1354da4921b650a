"""``cloudtrain doctor``."""

from __future__ import annotations

import click

from cloudtrain.cli._options import json_option, set_option


@click.command("doctor")
@click.argument("file", required=False, type=click.Path())
@click.option(
    "--platform", metavar="NAME", help="Platform to check.  [default: the job's platform, or local]"
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
    from cloudtrain.cli._checks import check_job, check_platform
    from cloudtrain.cli.submit import fields_of
    from cloudtrain.spec import apply_overrides

    fields = {**(fields_of(file) if file else {}), **({"platform": platform} if platform else {})}
    check = check_job if file else check_platform
    check(apply_overrides(fields, settings), as_json=as_json)
