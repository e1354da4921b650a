"""``cloudtrain doctor``."""

from __future__ import annotations

import click

from cloudtrain.cli._options import json_option


@click.command("doctor")
@click.argument("file", required=False, type=click.Path())
@click.option("--platform", help="The platform to look at.  [default: that of the job; else local]")
@click.option("--set", "settings", multiple=True, metavar="FIELD=VALUE", help="Change any field. Repeatable.")
@json_option
def command(file: str | None, platform: str | None, settings: tuple[str, ...], as_json: bool) -> None:
    """Look for what would make the job FILE fail, or for what a platform lacks.

    FILE is a job file or a script. Nothing is submitted, uploaded or changed. A check that you may not make
    is "unknown", which is no failure. The exit status is 1 if a check has failed.

    \b
    cloudtrain doctor
    cloudtrain doctor train.yaml --platform sagemaker
    """
    from cloudtrain.cli._checks import check_job, check_platform
    from cloudtrain.cli.submit import fields_of
    from cloudtrain.spec import apply_overrides

    fields = {**(fields_of(file) if file else {}), **({"platform": platform} if platform else {})}
    check = check_job if file else check_platform
    check(apply_overrides(fields, settings), as_json=as_json)
