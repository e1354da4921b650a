"""The measured times of an earlier job, for the plan of a similar one."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from cloudtrain.contract.text import counted
from cloudtrain.errors import CloudtrainError, InvalidJob
from cloudtrain.plan.estimate import Range

if TYPE_CHECKING:
    from cloudtrain.job import Job
    from cloudtrain.observe import Summary
    from cloudtrain.platforms import JobDescription

LEAST_STEPS = 2
OPTIMIZER = re.compile(r"optim|exp_avg|moment|\bstep\b", re.IGNORECASE)
"""Matches the names of tensors in a checkpoint that are not parameters of the model."""


@dataclass(frozen=True)
class Measured:
    """The measurements of one job. Times are in seconds, sizes in bytes."""

    step: float
    """The time of one step, without checkpoints."""
    ranks: int
    hosts: int
    instance_type: str
    total_steps: int | None
    """The total number of steps that the script has announced, or else the last step that it has reached."""
    known: Mapping[str, Range] = field(default_factory=dict)
    """See `Training.known`."""
    gradients: Range | None = None
    """The size of the tensors in its last checkpoint that do not belong to the optimizer, if it can be read here."""
    notes: tuple[str, ...] = ()
    """The measurements, as text."""


def measured(job: Job) -> Measured:
    """The measurements of ``job``. Raises InvalidJob if it has reported too few steps, PlatformError."""
    from cloudtrain.platforms import Summaries

    description = job.describe()
    summary = job.platform.summary(job.name) if isinstance(job.platform, Summaries) else None
    found = _step(summary)
    if summary is None or found is None:
        raise InvalidJob(
            f"job {job.name} has not reported {LEAST_STEPS} steps: their time is not known",
            hint="Its script reports them with cloudtrain.observe.report_step, or Checkpointer.maybe_save. "
            "Or give the time: --step-seconds.",
        )
    step, seen = found
    hosts = max(len(summary.course.hosts), 1)
    ranks = sum(len(host.ranks) for host in summary.course.hosts.values()) or hosts
    notes = [f"{step:.4g} s a step on {counted(ranks, 'rank')} (job {job.name}, {seen:,} steps)"]
    known: dict[str, Range] = {}
    _add_times(description, known, notes)
    size = _checkpoint(description, known, notes)
    total = description.total_steps or description.step
    kind = _instance_type(job)
    return Measured(step, ranks, hosts, kind, total, known, size, tuple(notes))


def _step(summary: Summary | None) -> tuple[float, int] | None:
    """The mean time of a step, and the number of steps that were measured; None if there are too few."""
    marks = summary.meter.marks if summary else []
    if len(marks) < 2:
        return None
    (first, began), (last, ended) = marks[0], marks[-1]
    seconds, steps = ended - began, last - first
    return (seconds / steps, steps) if steps >= LEAST_STEPS - 1 and seconds > 0 else None


def _add_times(description: JobDescription, known: dict[str, Range], notes: list[str]) -> None:
    lost = description.goodput.lost if description.goodput else {}
    start = lost.get("start")
    if start is not None and start > 0:
        known["start"] = Range(start * 0.8, start, start * 1.5)
        notes.append(f"the start takes {start:.3g} s")
    restart = lost.get("restart", 0.0) + lost.get("restore", 0.0)
    if description.attempt and restart > 0:
        each = restart / description.attempt
        known["restart"] = Range(each * 0.8, each, each * 1.5)
        notes.append(f"a restart takes {each:.3g} s (mean of {description.attempt})")
    elif start:
        known["restart"] = Range(start * 0.8, start, start * 3)
        notes.append("a restart takes as long as the start, up to three times")


def _checkpoint(description: JobDescription, known: dict[str, Range], notes: list[str]) -> Range | None:
    """The size of the parameters in the last checkpoint. Also adds the time of a save to ``known``."""
    uri = description.checkpoint_uri or ""
    if not uri.startswith("file://"):  # plans use no network
        return None
    from cloudtrain.checkpoint.inspect import list_checkpoints, tensors
    from cloudtrain.storage import open_store

    try:
        store = open_store(uri)
        infos = [info for info in list_checkpoints(store) if not info.problem]
        if not infos:
            return None
        specs = tensors(store, infos[-1])
    except (CloudtrainError, OSError):
        return None
    stalled = description.goodput.lost.get("checkpoints", 0.0) if description.goodput else 0.0
    if stalled > 0:
        each = stalled / len(infos)
        known["save"] = Range(each / 2, each, each)
        notes.append(f"a checkpoint stops the training for at most {each:.3g} s")
    size = sum(spec.nbytes for name, spec in specs.items() if not OPTIMIZER.search(name))
    notes.append(f"{size / 1e6:,.4g} MB of parameters, in a checkpoint of {infos[-1].size / 1e6:,.4g} MB")
    return Range.exactly(size) if size else None


def _instance_type(job: Job) -> str:
    from cloudtrain.history.parameters import facts_of_request
    from cloudtrain.platforms import Requests

    facts: Mapping[str, Any] = {}
    if isinstance(job.platform, Requests):
        with contextlib.suppress(CloudtrainError, ValueError, TypeError, AttributeError, LookupError):
            facts, _ = facts_of_request(job.platform.request(job.name).body)
    return str(facts.get("instance_type") or "")
