"""Shows one job on a terminal: the output of its ranks, its phases while it runs, and its outcome and results."""

from __future__ import annotations

import re
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.text import Text

from cloudtrain._display.colours import STATUS_COLOURS
from cloudtrain._display.facts import facts, failure_lines
from cloudtrain._display.view import look_at
from cloudtrain.cli._errors import INTERRUPTED
from cloudtrain.cli._output import bars, echo_json, show_bytes, shown
from cloudtrain.contract import JobStatus
from cloudtrain.contract.text import escape_except_colours, escape_line, to_json
from cloudtrain.errors import JobNotFound
from cloudtrain.job import Job
from cloudtrain.platforms import Events, JobDescription, print_states
from cloudtrain.platforms.waiting import waiting_for

if TYPE_CHECKING:
    from rich.progress import Progress

RANK_COLOURS = ("cyan", "magenta", "green", "yellow", "blue", "red")

_PREFIX = re.compile(r"\[(?:rank (?P<rank>\d+)|(?P<host>[a-z][\w.]*-(?P<number>\d+)))\] ")


def show_job(job: Job, description: JobDescription, *, below_output: bool = False) -> None:
    """Print the state and results of a job, and why it failed.

    Args:
        below_output: whether the job's output, with its warnings, was printed before. The state is then on stderr.
    """
    console = Console(stderr=below_output, highlight=False)
    colour = STATUS_COLOURS.get(description.status, "blue")
    console.rule(shown(description.name, style=f"bold {colour}"), align="left", style=colour)
    for label, value in facts(look_at(job.platform, job.name, description, states=False)):
        # do not wrap lines: users copy URIs
        line = Text(f"{escape_line(label):<13} ", style="dim").append(shown(value, style="not dim"))
        console.print(line, soft_wrap=True)
    for warning in () if below_output else description.warnings:
        console.print(shown(f"warning: {warning}", style="yellow"), soft_wrap=True)
    _show_failure(console, description)


def _show_failure(console: Console, description: JobDescription) -> None:
    for line, style in failure_lines(description.failure):
        console.print(Text(line, style=style), soft_wrap=True)


def watch(job: Job, *, quiet: bool, again: Callable[[Callable[[str], object]], bool] | None = None) -> None:
    """Print the output of a job until it ends, then its outcome. Exits with the job's exit status.

    Args:
        again: submits a failed job again, if that may help: see `cloudtrain.platforms.Resubmission`.
    """
    with leave_running(job):
        description = _follow(job, quiet=quiet)
        while (
            description.status == JobStatus.FAILED
            and again
            and again(lambda line: click.echo(line, err=True))
        ):
            description = _follow(job, quiet=quiet)
    if quiet:
        echo_json(description.to_dict())
    else:
        show_job(job, description, below_output=True)
    sys.exit(_exit_code(description))


def finish(job: Job) -> int:
    """Wait for the final state of a job whose output has ended, print its failure, and return its exit code."""
    description = job.until_final()
    _show_failure(Console(stderr=True, highlight=False), description)
    return _exit_code(description)


def _follow(job: Job, *, quiet: bool) -> JobDescription:
    """Print the output of a job until it ends. Returns its final description."""
    if quiet:
        for _ in job.follow():
            pass
    else:
        _show_live(job)
    return job.until_final()


def _exit_code(description: JobDescription) -> int:
    """The exit status of the job; if the platform reports none, one that matches its state."""
    if description.exit_code is not None:
        return description.exit_code
    return {JobStatus.COMPLETED: 0, JobStatus.FAILED: 1}.get(description.status, 128 + signal.SIGTERM)


@contextmanager
def leave_running(job: Job, state: str = "continues to run") -> Iterator[None]:
    """On Ctrl-C, print that the job continues and how to attach to it again, and exit."""
    try:
        with waiting_for(job.name):
            yield
    except KeyboardInterrupt:
        if _still_runs(job):
            click.echo(
                f"\nJob {job.name} {state}.\n"
                f"  attach:  cloudtrain wait {job.name}\n"
                f"  stop:    cloudtrain stop {job.name}",
                err=True,
            )
        sys.exit(INTERRUPTED)


def _still_runs(job: Job) -> bool:
    """Whether the job has not ended. False if it is about to be submitted again: no job has its name then."""
    try:
        return not job.status.is_final
    except JobNotFound:
        return False


def print_line(line: str, *, as_json: bool = False, console: Console | None = None) -> None:
    """Print one line of output. On a terminal, its prefix has the colour of the rank or the host."""
    match = _PREFIX.match(line)
    if as_json:
        rank = int(match["rank"]) if match and match["rank"] else None
        host = {"host": match["host"]} if match and match["host"] else {}
        record = {"rank": rank, **host, "line": line[match.end() :] if match else line}
        click.echo(to_json(record))
    elif console is None and not sys.stdout.isatty():
        click.echo(line)
    else:
        text = Text.from_ansi(escape_except_colours(line))
        if match:
            number = int(match["rank"] or match["number"])
            text.stylize(RANK_COLOURS[number % len(RANK_COLOURS)], 0, match.end())
        (console or Console()).print(text, soft_wrap=True)


def _show_live(job: Job) -> None:
    """Print lines and state changes as they arrive; on a terminal, with the job's phases below."""
    console = Console()
    if not console.is_terminal or not isinstance(job.platform, Events):
        with print_states(job.platform, job.name, lambda state: click.secho(state, err=True, dim=True)):
            for line in job.follow():
                print_line(line)
        return
    with (
        bars(console) as progress,
        print_states(
            job.platform,
            job.name,
            lambda state: progress.console.print(shown(state, style="dim"), soft_wrap=True),
        ),
    ):
        phases = threading.Thread(target=_show_phases, args=(job, progress), daemon=True)
        phases.start()
        for line in job.follow():
            print_line(line, console=progress.console)
        phases.join(1)


def _show_phases(job: Job, progress: Progress) -> None:
    assert isinstance(job.platform, Events)
    tasks = {}
    for event in job.platform.events(job.name, follow=True):
        phase = event.get("phase")
        if phase is None:
            continue
        if phase not in tasks:
            tasks[phase] = progress.add_task(phase, total=None, size="")
        if event["event"] == "progress":
            show_bytes(progress, tasks[phase], event["done"], event.get("total") or 0)
        elif event.get("state") == "ended":
            show_bytes(progress, tasks[phase], event.get("bytes", 0), event.get("bytes", 0))
            progress.update(tasks[phase], completed=1, total=1)
