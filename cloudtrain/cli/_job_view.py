"""Shows one job on a terminal: its state, its results, and the cause of a failure."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

from rich.console import Console
from rich.text import Text

from cloudtrain.cli._plot import sparkline
from cloudtrain.contract import FailureReport, JobStatus
from cloudtrain.contract.text import escape_line, escape_text
from cloudtrain.errors import PlatformError
from cloudtrain.job import Job
from cloudtrain.observe import Goodput
from cloudtrain.platforms import JobDescription, Metrics, Prices, Series, Trends

BAR_WIDTH = 20

STATUS_COLOURS = {
    JobStatus.COMPLETED: "green",
    JobStatus.FAILED: "red",
    JobStatus.STOPPED: "yellow",
    JobStatus.INTERRUPTED: "yellow",
}


def show_job(job: Job, description: JobDescription | None = None, *, warnings: bool = True) -> None:
    """Print the state and results of a job, and why it failed.

    Args:
        warnings: false if they have been shown with the job's output.
    """
    description = description or job.describe()
    console = Console(stderr=True, highlight=False)
    colour = STATUS_COLOURS.get(description.status, "blue")
    console.rule(shown(description.name, style=f"bold {colour}"), align="left", style=colour)
    for label, value in _facts(job, description):
        # do not wrap lines: users copy URIs
        line = Text(f"{escape_line(label):<13} ", style="dim").append(shown(value, style="not dim"))
        console.print(line, soft_wrap=True)
    for warning in description.warnings if warnings else ():
        console.print(shown(f"warning: {warning}", style="yellow"), soft_wrap=True)
    if description.failure:
        show_failure(console, description.failure)


def _facts(job: Job, description: JobDescription) -> Iterator[tuple[str, str]]:
    yield "status", f"{description.status}" + (f": {description.reason}" if description.reason else "")
    if description.phase:
        yield "phase", description.phase
    series = _series(job) if description.metrics else {}
    for name, value in description.metrics.items():
        yield name, f"{value:g}  {sparkline([one for _, one in series.get(name, ())])}".rstrip()
    seconds = duration(description)
    if seconds is not None:
        phases = ", ".join(f"{name} {took:.1f}" for name, took in description.phases.items() if took >= 0.05)
        yield "took", f"{seconds:.1f} s" + (f" ({phases})" if phases else "")
    if description.goodput:
        yield "goodput", _goodput(description.goodput)
    if description.attempt:
        yield "retries", str(description.attempt)
    yield from description.details.items()
    cost = _cost(job) if description.status.is_final else None
    if cost is not None:
        yield "cost", f"about ${cost:,.2f}"
    for label, fact in (
        ("commit", description.git_commit),
        ("model", description.model_data),
        ("output", description.output_data),
        ("checkpoints", description.checkpoint_uri),
        ("console" if "://" in description.place else "folder", description.place),
    ):
        if fact:
            yield label, fact
    yield "logs", f"cloudtrain logs {description.name}"


def _goodput(found: Goodput) -> str:
    """The share as a number and a bar, and the time by what became of it, the greatest loss first."""
    filled = round(found.goodput * BAR_WIDTH)
    lost = sorted(found.lost.items(), key=lambda item: -item[1])
    shown = [f"{cause} {_seconds(seconds)}" for cause, seconds in lost if seconds >= 0.05]
    what = "steps" if found.measured_by == "steps" else "script"
    times = ", ".join([f"{what} {_seconds(found.productive)}", *shown])
    return f"{found.goodput:.1%} {'█' * filled}{'░' * (BAR_WIDTH - filled)} ({times})"


def _seconds(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < 600 else f"{seconds / 60:,.1f} min"


def _series(job: Job) -> Series:
    """The metrics over time; empty if the platform denies access to them. The view is useful without them."""
    if isinstance(job.platform, Trends):
        return job.platform.trends(job.name)
    if isinstance(job.platform, Metrics):
        with contextlib.suppress(PlatformError):
            return job.platform.metrics(job.name)
    return {}


def _cost(job: Job) -> float | None:
    if isinstance(job.platform, Prices):
        with contextlib.suppress(PlatformError):
            return job.platform.cost(job.name)
    return None


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


def duration(description: JobDescription) -> float | None:
    """Seconds from the start to the end, or to now."""
    if description.started_at is None:
        return None
    return (description.ended_at or time.time()) - description.started_at
