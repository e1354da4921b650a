"""Kills the runtime of a job while it starts its ranks, at a random moment."""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path

from local_jobs import Run, folder, live_processes, wait_for_end, wait_until

from cloudtrain.contract import JobStatus

SCRIPT = """
    import os, subprocess, time

    subprocess.Popen(["sleep", "1000"], start_new_session=True)  # no signal to a group reaches it
    attempt = os.environ["CLOUDTRAIN_ATTEMPT"]
    print("attempt", attempt, flush=True)
    time.sleep(1000 if attempt == "0" else 0)
"""

SECONDS = {"processes": 0.3, "torch_distributed": 4.0, "mpi": 1.5}
"""About how long the launchers take from the start of the runtime until the script runs."""


def kill_starts(run: Run, launcher: str, rounds: int, seed: int = 1) -> None:
    """Each round kills one runtime: nothing of it remains, and the next attempt of the job is healthy."""
    moments = random.Random(seed)
    for _ in range(rounds):
        job = run(
            SCRIPT, wait=False, distribution={launcher: {"processes_per_host": 2}}, max_retry_attempts=1
        )
        moment = moments.uniform(0, SECONDS[launcher])
        wait_until(lambda: _runtimes(folder(job).read_record().pid), "the runtime")  # noqa: B023
        [runtime] = _runtimes(folder(job).read_record().pid)
        time.sleep(moment)
        os.kill(runtime, signal.SIGKILL)
        wait_for_end(job)
        case = f"{launcher}, killed after {moment:.3f} s"
        assert job.status == JobStatus.COMPLETED, (case, job.failure, job.logs())
        lines = job.logs().splitlines()
        assert sorted(line for line in lines if "attempt 1" in line) == [
            "[rank 0] attempt 1",
            "[rank 1] attempt 1",
        ], case
        wait_until(lambda: not live_processes(job), f"the end of all processes: {case}")  # noqa: B023


def _runtimes(supervisor: int | None) -> list[int]:
    """The children of a supervisor."""
    try:
        return [
            int(pid) for pid in Path(f"/proc/{supervisor}/task/{supervisor}/children").read_text().split()
        ]
    except FileNotFoundError:
        return []
