"""A job whose ranks have all exited with 0 is completed, even if it was stopped or preempted in the meantime."""

from __future__ import annotations

from pathlib import Path

import pytest
from local_jobs import TWO_RANKS, Run, events, wait_for_end, wait_until

from cloudtrain import Job, JobStatus

ASKED = {"stop": Job.stop, "preempt": Job.preempt}


@pytest.mark.parametrize(("ask", "hosts"), [("stop", 1), ("preempt", 2)])
def test_while_the_model_is_uploaded(ask: str, hosts: int, run: Run) -> None:
    job = run(
        """
        import os
        with open(os.environ["SM_MODEL_DIR"] + "/model", "w") as file:
            file.truncate(400_000_000)  # to compress it takes a while
        """,
        wait=False,
        instance_count=hosts,
    )
    wait_until(lambda: [event for event in events(job, "phase") if event["phase"] == "upload"], "the upload")
    ASKED[ask](job)
    wait_for_end(job)
    description = job.describe()
    assert (description.status, description.attempt, description.reason) == (JobStatus.COMPLETED, 0, "")
    assert description.model_data
    assert events(job, "stopping"), "the job had ended before it was asked"


@pytest.mark.parametrize(
    ("launcher", "end", "ask"),
    [
        ("processes", "", "stop"),
        ("processes", "sys.exit()", "preempt"),
        ("torch_distributed", "", "preempt"),
        ("mpi", "", "stop"),
    ],
)
def test_while_the_interpreter_ends(launcher: str, end: str, ask: str, run: Run, tmp_path: Path) -> None:
    job = run(
        f"""
        import atexit, os, sys, time

        def leave():
            print("ends", flush=True)
            while not os.path.exists({str(tmp_path / "asked")!r}):
                time.sleep(0.05)
            time.sleep(0.5)

        atexit.register(leave)
        {end}
        """,
        wait=False,
        distribution={launcher: TWO_RANKS["processes"]},
    )
    wait_until(lambda: job.logs().count("ends") == 2, "the end of the script")
    ASKED[ask](job)
    (tmp_path / "asked").touch()
    wait_for_end(job)
    description = job.describe()
    assert (description.status, description.attempt) == (JobStatus.COMPLETED, 0), job.logs()
    assert job.logs().count("ends") == 2


def test_a_script_that_ends_in_its_handler_is_not_completed(run: Run) -> None:
    """It was interrupted in the middle, whatever its exit status says."""
    job = run(
        """
        import os, signal, sys, time

        def leave(*_):
            sys.exit(0)

        signal.signal(signal.SIGTERM, leave)
        print("attempt", os.environ["CLOUDTRAIN_ATTEMPT"], flush=True)
        time.sleep(0 if os.environ["CLOUDTRAIN_ATTEMPT"] == "1" else 60)
        """,
        wait=False,
    )
    wait_until(lambda: "attempt 0" in job.logs(), "the script")
    job.preempt()
    wait_for_end(job)
    assert (job.status, job.describe().attempt) == (JobStatus.COMPLETED, 1)
