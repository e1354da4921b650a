"""A preempted job: it is notified, exits, is restarted, and resumes."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable

import pytest
from waiting import wait_for_end, wait_for_line

from cloudtrain import FailureClass, Job, JobStatus
from cloudtrain.errors import PlatformError
from cloudtrain.platforms.local import LocalPlatform

Submit = Callable[..., Job]
Notify = Callable[[Job], None]

COUNTS = """
    import os, time
    from pathlib import Path
    from cloudtrain import environment

    saved = Path(os.environ["SAGEMAKER_BASE_DIR"], "checkpoints", "step")
    first = int(saved.read_text()) if saved.exists() else 0
    print("starts at", first, flush=True)
    for step in range(first, first + 40_000):
        if step == 3 and first == 0 or step == first + 3 > 3:
            print("ready", first, flush=True)
        notice = environment.preemption()
        if notice:
            print("notice:", notice.reason, round(notice.deadline - time.time()), flush=True)
            saved.write_text(str(step))
            environment.exit_if_preempted()
        if first and step == first + 10:
            break
        time.sleep(0.02)
    print("ends after", step, flush=True)
"""


def preempt(job: Job) -> None:
    job.preempt()


def host_pid(job: Job) -> int:
    return [event["pid"] for event in LocalPlatform().events(job.name) if event["event"] == "host"][-1]


def terminate_host(job: Job) -> None:
    os.kill(host_pid(job), signal.SIGTERM)


def warn_host(job: Job) -> None:
    os.kill(host_pid(job), signal.SIGUSR1)


@pytest.mark.parametrize(
    ("notify", "reason"),
    [
        (preempt, "the job is stopped"),
        (terminate_host, "the job is stopped"),
        (warn_host, "signal SIGUSR1"),
    ],
    ids=["preempt", "SIGTERM", "SIGUSR1"],
)
def test_a_preempted_job_resumes(submit: Submit, notify: Notify, reason: str) -> None:
    job = submit(COUNTS, stop_grace=120)
    wait_for_line(job, "ready 0")
    notify(job)
    logs = wait_for_end(job)
    description = job.describe()
    assert (description.status, description.attempt) == (JobStatus.COMPLETED, 1), logs
    [left] = re.findall(rf"notice: {reason} (\d+)", logs)
    assert 60 < int(left) <= 120
    assert "[cloudtrain] preempted; restarting, preemption 1 of 10" in logs
    [first, second] = [int(line.split()[-1]) for line in logs.splitlines() if "starts at" in line]
    assert (first, second > 3) == (0, True)


def test_preemptions_have_a_separate_budget(submit: Submit) -> None:
    leaves = "import sys; sys.exit(75)"
    job = submit(leaves, max_retry_attempts=5, platform_options={"max_preemptions": 2})
    logs = wait_for_end(job)
    description = job.describe()
    assert (description.status, description.exit_code) == (JobStatus.INTERRUPTED, 143), logs
    assert (description.attempt, description.reason) == (2, "preempted")
    assert description.failure
    assert description.failure.failure_class == FailureClass.PREEMPTED


def test_failures_do_not_use_up_the_preemptions(submit: Submit) -> None:
    script = """
        import os, sys
        sys.exit([75, 3, 75, 3, 0][int(os.environ["CLOUDTRAIN_ATTEMPT"])])
    """
    job = submit(script, max_retry_attempts=2, platform_options={"max_preemptions": 2})
    logs = wait_for_end(job)
    assert (job.status, job.describe().attempt) == (JobStatus.COMPLETED, 4), logs


def test_a_stopped_job_is_not_restarted(submit: Submit) -> None:
    job = submit(COUNTS)
    wait_for_line(job, "ready 0")
    job.stop()
    logs = wait_for_end(job)
    assert (job.status, job.describe().reason) == (JobStatus.STOPPED, "stopped by the user")
    assert "notice: the job is stopped" in logs
    assert logs.count("starts at") == 1


def test_a_script_that_ignores_notices_ends_by_sigterm(submit: Submit) -> None:
    script = """
        import os, time
        if os.environ["CLOUDTRAIN_ATTEMPT"] == "0":
            print("on", flush=True)
            time.sleep(600)
        print("again")
    """
    job = submit(script, stop_grace=120)
    wait_for_line(job, "on")
    job.preempt()
    logs = wait_for_end(job, 90)
    assert (job.status, "again" in logs) == (JobStatus.COMPLETED, True), logs


def test_an_ended_job_cannot_be_preempted(submit: Submit) -> None:
    job = submit("print('x')")
    wait_for_end(job)
    with pytest.raises(PlatformError, match="is Completed: there is nothing to take away"):
        job.preempt()


SAVES_LONG = """
    import atexit, os, time

    if os.environ["CLOUDTRAIN_ATTEMPT"] != "0":
        raise SystemExit  # before torch is imported

    import numpy
    import cloudtrain.distributed.numpy as hvd
    from cloudtrain import environment

    hvd.init(backend="mpi" if "OMPI_COMM_WORLD_RANK" in os.environ else "gloo")
    if hvd.rank() == 0:
        # a pending checkpoint, committed at exit, after the other ranks have lost this one
        atexit.register(lambda: (time.sleep(3), print("committed", flush=True)))
    for step in range(3000):
        if step == 5:
            print("ready", flush=True)
        hvd.allreduce(numpy.ones(8), name="step")
        environment.exit_if_preempted()
        time.sleep(0.01)
"""

TWO_RANKS = {"processes_per_host": 2}


@pytest.mark.parametrize(
    "distribution",
    [{"processes": TWO_RANKS}, {"torch_distributed": {**TWO_RANKS, "max_restarts": 2}}, {"mpi": TWO_RANKS}],
    ids=["processes", "torchrun", "mpirun"],
)
@pytest.mark.parametrize("notify", [preempt, warn_host], ids=["SIGTERM", "SIGUSR1"])
def test_the_job_waits_for_rank_0_in_any_case(
    submit: Submit, distribution: dict[str, object], notify: Notify
) -> None:
    job = submit(SAVES_LONG, distribution=distribution)
    wait_for_line(job, "[rank 0] ready")
    notify(job)
    logs = wait_for_end(job, 120)
    description = job.describe()
    assert (description.status, description.attempt) == (JobStatus.COMPLETED, 1), logs
    assert logs.count("[rank 0] committed") == 1, logs
    assert "Traceback" not in logs  # of the other rank, which lost rank 0


@pytest.mark.parametrize("saves", [False, True])
def test_a_notice_before_the_first_checkpoint_names_what_is_lost(submit: Submit, saves: bool) -> None:
    script = f"""
        import os, time
        from cloudtrain.checkpoint import Checkpointer

        if {saves}:
            Checkpointer(asynchronous=False).save(1, {{}})
        if os.environ["CLOUDTRAIN_ATTEMPT"] == "0":
            time.sleep(5)
            print("on", flush=True)
            time.sleep(600)
    """
    job = submit(script, stop_grace=120)
    wait_for_line(job, "on")
    job.preempt()
    logs = wait_for_end(job, 90)
    warned = [line for line in logs.splitlines() if "no checkpoint yet" in line]
    assert bool(warned) is not saves, logs
    if warned:
        assert re.search(r"does not save within 120 s, its \d+ s of training are lost", warned[0])
