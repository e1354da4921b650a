"""A short run of a job on this machine, or on the user's own hosts, to measure its steps."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from cloudtrain.errors import InvalidJob, PlatformError
from cloudtrain.job import Job
from cloudtrain.plan.measured import Measured, measured
from cloudtrain.platforms import Summaries

PLATFORMS = ("local", "hosts")
"""The platforms that cost nothing, and have no queue."""
ENOUGH_STEPS, ENOUGH_SECONDS = 20, 10.0
"""The run stops when it has taken at least this number of steps and this time."""
LONGEST = 300.0
"""Seconds after which the run is stopped anyway."""


def measure(fields: Mapping[str, Any]) -> Measured:
    """Run the job until it has done some steps, stop it, and return its times. It uploads no checkpoints.

    Raises InvalidJob if it runs on another platform or reports no steps, and the errors of a submission.
    """
    from cloudtrain.submission import prepare

    own = {**fields, "base_job_name": "plan"}
    for name in ("job_name", "checkpoint_s3_uri", "output_path", "notify"):
        own.pop(name, None)
    submission = prepare(own, submits=True, defaults={})
    if submission.platform.name not in PLATFORMS:
        raise InvalidJob(
            f"--measure runs the job on {' or '.join(PLATFORMS)}, not on {submission.platform.name}",
            hint="Submit a short run there, and plan with --from-job. Or measure here: --platform local.",
        )
    job = submission.submit()
    try:
        _until_measured(job)
    finally:
        if not job.describe().status.is_final:
            job.stop()
        ended = job.until_final()
    if ended.failure:
        raise InvalidJob(
            f"the measured run {job.name} failed: {ended.failure.summary()}", hint=ended.failure.hint
        )
    return measured(job)


def _until_measured(job: Job) -> None:
    if not isinstance(job.platform, Summaries):
        raise PlatformError(f"the platform {job.platform.name} does not record steps")
    began = time.monotonic()
    while time.monotonic() - began < LONGEST and not job.describe().status.is_final:
        marks = job.platform.summary(job.name).meter.marks
        if len(marks) > 1:
            (first, since), (last, until) = marks[0], marks[-1]
            if last - first >= ENOUGH_STEPS and until - since >= ENOUGH_SECONDS:
                return
        time.sleep(0.5)
