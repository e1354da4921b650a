"""Kills ``cloudtrain submit`` at random moments: there is a job then, or its name is free."""

from __future__ import annotations

import contextlib
import os
import random
import subprocess
import sys
import time
from pathlib import Path

from local_jobs import folder, wait_until

from cloudtrain import Estimator, Job, JobStatus
from cloudtrain.errors import JobExists, JobNotFound
from cloudtrain.platforms.local import LocalPlatform

SUBMIT = """
import sys
from cloudtrain import Estimator

sys.stdin.readline()  # the clock of the test starts here
Estimator(sys.argv[1]).fit(wait=False, job_name=sys.argv[2])
print("submitted", flush=True)
"""


def kill_submissions(place: Path, rounds: int, seed: int = 1) -> None:
    script = place / "train.py"
    script.write_text("print('on')")
    moments = random.Random(seed)
    seconds = min(_submit(script, f"whole-{number}", None) for number in range(2))
    for number in range(rounds):
        moment = moments.uniform(0, 1.2 * seconds)
        name = f"job-{number}"
        _submit(script, name, moment)
        case = f"killed after {moment:.3f} s of {seconds:.3f} s"
        try:
            job = Job(name, LocalPlatform())
            job.status  # noqa: B018 - raises if there is no job
        except JobNotFound:
            assert name not in [found.name for found in LocalPlatform().list()], case
            with contextlib.suppress(JobExists):  # its supervisor lives, and has published it by now
                job = Estimator(str(script)).fit(wait=False, job_name=name)
        wait_until(lambda: job.status.is_final, f"the end of {name}, {case}")  # noqa: B023
        said = job.logs() + folder(job).supervisor_log.read_text()
        assert job.status == JobStatus.COMPLETED, (case, job.failure, said)


def _submit(script: Path, name: str, kill_after: float | None) -> float:
    """Submit in another process, and kill it after that many seconds; returns how long it took."""
    process = subprocess.Popen(
        [sys.executable, "-c", SUBMIT, str(script), name],
        env=os.environ,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin
    process.stdin.write("\n")
    process.stdin.flush()
    start = time.monotonic()
    if kill_after is None:
        assert process.communicate()[0] == "submitted\n"
    else:
        time.sleep(kill_after)
        process.kill()
        process.communicate()
    return time.monotonic() - start
