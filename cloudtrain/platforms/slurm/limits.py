"""The time limit of a submission, the notice ahead of it, and what Slurm does with a job that it interrupts."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

from cloudtrain.errors import InvalidJob
from cloudtrain.platforms.slurm.options import SlurmOptions
from cloudtrain.platforms.slurm.script import Directive
from cloudtrain.runtime.slurm.time_limit import EARLY_SECONDS, notice_seconds
from cloudtrain.spec import TrainingJob

_TIME = re.compile(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?")


def limit_directives(job: TrainingJob, options: SlurmOptions) -> Iterator[Directive]:
    """Raises InvalidJob for a time limit that is none."""
    limit = None if options.time is None else limit_seconds(options.time)
    notice = math.ceil(notice_seconds(job.stop_grace, limit))
    yield from _time(job, options, notice)
    note = "a notice ahead of the time limit, to save a checkpoint"
    yield Directive("signal", f"B:USR1@{notice}", note)
    if options.requeue == "never":
        yield Directive("no-requeue")
    else:
        yield Directive(
            "requeue", comment="after a preemption, a time limit or the loss of a node, it continues"
        )
    yield Directive(
        "kill-on-invalid-dep", "yes", "a job that waits for one that has failed does not wait forever"
    )


def _time(job: TrainingJob, options: SlurmOptions, notice: int) -> Iterator[Directive]:
    """The time limit, if the job sets one: otherwise the default of the partition holds."""
    if options.time is not None:
        note = f"; max_run of {job.max_run} s is that of all of them" if job.max_run else ""
        yield Directive("time", str(options.time), f"of one submission{note}")
    elif job.max_run is not None:
        minutes = math.ceil((job.max_run + notice + EARLY_SECONDS) / 60)
        yield Directive(
            "time", str(minutes), f"max_run of {job.max_run} s, and {notice + EARLY_SECONDS} s for the end"
        )


def limit_seconds(limit: str | int) -> int:
    """Seconds of a time limit as Slurm writes it: ``90`` minutes, ``MM:SS``, ``HH:MM:SS``, ``D-HH``, ``D-HH:MM:SS``.

    Raises InvalidJob.
    """
    found = _TIME.fullmatch(str(limit))
    if not found:
        raise InvalidJob(
            f"platform_options.time: {limit} is not a time limit",
            hint="Write minutes (90), HH:MM:SS (12:00:00) or D-HH:MM:SS (2-00:00:00). There is no UNLIMITED: a job "
            "without a time limit does not start ahead of maintenance, for example.",
        )
    days, *parts = (int(part) if part else None for part in found.groups())
    first, second, third = parts
    assert first is not None
    if days is not None:
        return ((days * 24 + first) * 60 + (second or 0)) * 60 + (third or 0)
    if third is not None:
        return (first * 60 + (second or 0)) * 60 + third
    return first * 60 + (second or 0)
