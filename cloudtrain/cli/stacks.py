"""``cloudtrain stacks``."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from cloudtrain._display.stacks import title
from cloudtrain.cli._options import job_argument, json_option, platform_option
from cloudtrain.cli._output import echo_json, notify
from cloudtrain.contract.text import counted, escape_line

if TYPE_CHECKING:
    from cloudtrain.observe.stacks import StackDump

SHOWN_CALLS = 12
"""The number of innermost calls of a stack that are shown without ``--full``."""


@click.command("stacks")
@job_argument
@click.option(
    "--native", is_flag=True, help="Include native frames, by py-spy or pystack on the hosts of the job."
)
@click.option("--last", is_flag=True, help="Show the stacks that were taken last, and take none.")
@click.option("--full", is_flag=True, help=f"Show whole stacks, not only the {SHOWN_CALLS} innermost calls.")
@click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    metavar="SECONDS",
    help="How long to wait for the hosts.  [default: 30, or 120 with --native]",
)
@platform_option
@json_option
def command(
    job: str, native: bool, last: bool, full: bool, timeout: float | None, platform: str | None, as_json: bool
) -> None:
    """Show where the ranks of JOB are: their Python stacks, grouped by equal stack, the odd one first.

    The ranks run on. Processes that they have started, such as the workers of a DataLoader, are shown after them. The
    stacks of ranks that hang are taken before they are ended: --last shows those of a job that has ended.
    """
    from cloudtrain.errors import PlatformError
    from cloudtrain.job import Job
    from cloudtrain.platforms import Stacks

    attached = Job.attach(job, platform)
    if last:
        if not isinstance(attached.platform, Stacks):
            raise PlatformError(f"the platform {attached.platform.name} takes no stacks")
        found = attached.platform.last_stacks(job)
        if found is None:
            hint = f"Take them: cloudtrain stacks {job}"
            if attached.status.is_final:
                hint = (
                    "They are taken when you ask for them while a job runs, and before ranks that hang are ended. "
                    f"How it ended: cloudtrain describe {job}"
                )
            raise PlatformError(f"no stacks of job {job} were taken", hint=hint)
    else:
        found = attached.stacks(native=native, timeout=timeout or (120.0 if native else 30.0))
    if as_json:
        echo_json(found.to_dict())
        return
    _show(found, full=full)


def _show(dump: StackDump, *, full: bool) -> None:
    why = f", {escape_line(dump.why)}" if dump.why else ""
    when = time.strftime("%H:%M:%S", time.localtime(dump.time))
    click.echo(click.style(f"{counted(dump.ranks, 'rank')}, {when}{why}", dim=True))
    for group in dump.groups:
        click.echo()
        click.echo(click.style(title(group), bold=True))
        calls = group.stack.splitlines()
        shown = calls if full else calls[:SHOWN_CALLS]
        for call in shown:
            click.echo(f"  {escape_line(call)}")
        if len(shown) < len(calls):
            click.echo(click.style(f"  … {counted(len(calls) - len(shown), 'more call')}: --full", dim=True))
    if not dump.groups:
        click.echo("no rank has started yet")
    if dump.more:
        notify("Note", f"{counted(dump.more, 'other stack')} with more ranks each are not shown")
    if dump.silent:
        notify(
            "Warning",
            f"no answer in time from {escape_line(', '.join(dump.silent))}: its ranks are not shown",
        )
