"""Shows one job on a terminal: its state, its results, and the cause of a failure."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from cloudtrain._display.facts import facts
from cloudtrain._display.view import STATUS_COLOURS, look_at
from cloudtrain.contract import FailureReport
from cloudtrain.contract.text import escape_line, escape_text
from cloudtrain.job import Job
from cloudtrain.platforms import JobDescription


def show_job(job: Job, description: JobDescription | None = None, *, warnings: bool = True) -> None:
    """Print the state and results of a job, and why it failed.

    Args:
        warnings: false if they have been shown with the job's output.
    """
    description = description or job.describe()
    console = Console(stderr=True, highlight=False)
    colour = STATUS_COLOURS.get(description.status, "blue")
    console.rule(shown(description.name, style=f"bold {colour}"), align="left", style=colour)
    for label, value in facts(look_at(job.platform, job.name, description, states=False)):
        # do not wrap lines: users copy URIs
        line = Text(f"{escape_line(label):<13} ", style="dim").append(shown(value, style="not dim"))
        console.print(line, soft_wrap=True)
    for warning in description.warnings if warnings else ():
        console.print(shown(f"warning: {warning}", style="yellow"), soft_wrap=True)
    if description.failure:
        show_failure(console, description.failure)


def show_failure(console: Console, failure: FailureReport) -> None:
    console.print()
    console.print(shown(f"{failure.summary()}  [{failure.failure_class}]", style="bold red"), soft_wrap=True)
    if failure.hint:
        console.print(Text(escape_text(failure.hint), style="yellow"), soft_wrap=True)
    detail = failure.stacks or failure.traceback or "\n".join(failure.log_tail[-10:])
    if detail:
        console.print()
        console.print(Text(escape_text(detail.rstrip())), soft_wrap=True)


def shown(text: str, style: str = "") -> Text:
    """One line that a job, or its platform, may have written."""
    return Text(escape_line(text), style=style)
