"""Runs checks in parallel and shows the findings as a table or JSON."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from rich.console import Console
from rich.table import Table
from rich.text import Text

from cloudtrain.cli._options import echo_json
from cloudtrain.config import read_config
from cloudtrain.contract.text import escape_text
from cloudtrain.errors import CloudtrainError
from cloudtrain.platforms import Check, CheckStatus, Finding, get_platform, job_checks, run_checks
from cloudtrain.spec import TrainingJob
from cloudtrain.submission import default_platform, prepare

MARKS = {
    CheckStatus.OK: ("✓", "green"),
    CheckStatus.WARNING: ("!", "yellow"),
    CheckStatus.FAILED: ("✗", "red"),
    CheckStatus.UNKNOWN: ("?", "cyan"),
}
WIDE = 200
"""The number of columns if the output is not a terminal."""


def check_job(
    fields: Mapping[str, Any], *, as_json: bool, defaults: Mapping[str, Any] | None = None
) -> NoReturn:
    """Run all checks of a job and show the findings. Exits with status 1 if a check failed, else 0.

    Args:
        defaults: fields that ``fields`` may lack; None for those of the config file.
    """
    _show_and_exit(_checks_of(fields, defaults), as_json=as_json)


def check_platform(fields: Mapping[str, Any], *, as_json: bool) -> NoReturn:
    """Like `check_job`, for the platform that ``fields`` or the user's config file names, without a job."""
    _show_and_exit(_platform_checks({**read_config(), **fields}), as_json=as_json)


def _checks_of(fields: Mapping[str, Any], defaults: Mapping[str, Any] | None) -> dict[str, Check]:
    """The checks of a job. If it cannot be prepared: that failure, and the checks of its platform."""
    try:
        fields = {**(read_config() if defaults is None else defaults), **fields}
        submission = prepare(fields, defaults={})
        archive = submission.archive.path if submission.archive else None
        return job_checks(submission.platform, submission.job, submission.request, archive)
    except CloudtrainError as error:
        failure = {"job": _failure(error)}
    try:
        return {**failure, **_platform_checks(fields)}
    except CloudtrainError:  # the platform is unknown too
        return failure


def _platform_checks(fields: Mapping[str, Any]) -> dict[str, Check]:
    job = TrainingJob.from_dict(dict(fields))
    return job_checks(get_platform(job.platform or default_platform(job)), job, None, None)


def _failure(error: CloudtrainError) -> Check:
    return lambda: Finding.of(error)


def _show_and_exit(checks: Mapping[str, Check], *, as_json: bool) -> NoReturn:
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
    sys.exit(any(finding.status == CheckStatus.FAILED for _, finding in found))


def _show(found: Sequence[tuple[str, Finding]]) -> None:
    """Print one row per check, with its hint below."""
    table = Table(box=None, pad_edge=False, show_header=False)
    for wraps in (False, False, False, True):
        table.add_column(no_wrap=not wraps, overflow="fold")
    for name, finding in found:
        mark, colour = MARKS[finding.status]
        what = Text(escape_text(finding.what))
        if finding.hint:
            what.append(f"\n{escape_text(finding.hint)}", style="dim")
        table.add_row(Text(mark, style=colour), name, Text(str(finding.status), style=colour), what)
    console = Console(highlight=False)
    (console if console.is_terminal else Console(width=WIDE, highlight=False)).print(table)
