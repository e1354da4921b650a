"""Actions on a job that a person starts in its page."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from cloudtrain.job import Job
from cloudtrain.platforms import Preemption, Stacks
from cloudtrain.watch.dashboard.parts import stacks
from cloudtrain.watch.report.document import Section


def stop(job: Job) -> str:
    """Returns what happens now, as all of them do. They raise PlatformError and StorageError."""
    status = job.status
    if status.is_final:
        return f"The job has ended: {status}."
    job.stop()
    return "The job is stopping: its ranks get SIGTERM, and have their stop_grace to exit."


def preempt(job: Job) -> str:
    job.preempt()
    return "The job is preempted. It restarts when its ranks have ended."


def download(job: Job) -> str:
    """Into a folder of the job's name, below the folder in which the dashboard was started."""
    paths = job.download(Path.cwd() / job.name)
    return f"Downloaded on the machine of the dashboard: {', '.join(map(str, paths))}"


ACTIONS: Mapping[str, Callable[[Job], str | Section]] = {
    "stop": stop, "preempt": preempt, "download": download, "stacks": stacks,
}  # fmt: skip


def possible(job: Job, *, is_final: bool) -> list[str]:
    """The actions that make sense for a job now."""
    if is_final:
        return ["download"]
    abilities = {"preempt": Preemption, "stacks": Stacks}
    return ["stop", *(name for name, kind in abilities.items() if isinstance(job.platform, kind))]
