"""Stops, limits, hangs and retries."""

from __future__ import annotations

from pathlib import Path

from local_jobs import TWO_RANKS, Run, events, live_processes, wait_for_end, wait_until

from cloudtrain import FailureClass, JobStatus

SAVES_ON_SIGTERM = """
    import os, signal, sys, time
    def save(*_):
        open(os.environ["SM_MODEL_DIR"] + "/saved-" + os.environ["RANK"], "w").close()
        print("saved", flush=True)
        sys.exit(0)
    signal.signal(signal.SIGTERM, save)
    print("on", flush=True)
    time.sleep(600)
"""


def test_every_rank_is_notified_and_may_save(run: Run, tmp_path: object) -> None:
    job = run(SAVES_ON_SIGTERM, wait=False, instance_count=2, distribution=TWO_RANKS)
    wait_until(lambda: job.logs().count("on") == 4, "four ranks")
    job.stop()
    wait_for_end(job)
    description = job.describe()
    assert (description.status, description.reason) == (JobStatus.STOPPED, "stopped by the user")
    assert (description.exit_code, description.failure) == (143, None)
    assert job.logs().count("saved") == 4
    assert description.model_data  # the saved model is uploaded, as on SageMaker


def test_the_grace_is_limited(run: Run) -> None:
    job = run(
        "import signal, time; signal.signal(15, signal.SIG_IGN); print('on', flush=True); time.sleep(600)",
        wait=False,
        stop_grace=1,
    )
    wait_until(lambda: "on" in job.logs(), "the rank")
    job.stop()
    wait_for_end(job)
    assert job.status == JobStatus.STOPPED
    assert live_processes(job) == []


def test_a_stop_before_the_ranks_start(run: Run) -> None:
    job = run("print('on')", wait=False, instance_count=2)
    job.stop()
    wait_for_end(job)
    assert job.status in (JobStatus.STOPPED, JobStatus.COMPLETED)


def test_a_hang_shows_the_stacks_of_all_ranks(run: Run, tmp_path: Path) -> None:
    started = tmp_path / "started"
    started.mkdir()
    job = run(
        """
        import os, pathlib, time
        from cloudtrain.observe import beat
        def waits_for_nobody():
            time.sleep(600)
        def works():
            while True:
                beat()
                time.sleep(0.1)
        started = pathlib.Path(os.environ["STARTED"])
        (started / os.environ["RANK"]).touch()
        while len(os.listdir(started)) < 4:
            time.sleep(0.02)
        waits_for_nobody() if os.environ["RANK"] == "2" else works()
        """,
        instance_count=2,
        distribution=TWO_RANKS,
        hang_timeout=4,
        environment={"STARTED": str(started)},
    )
    failure = job.failure
    assert failure
    assert (failure.failure_class, failure.rank, failure.host) == (FailureClass.HANG, 2, "algo-2")
    assert failure.stacks.count("in works") == 3
    assert failure.stacks.count("in waits_for_nobody") == 1
    assert [f"rank {rank}:" in failure.stacks for rank in range(4)] == [True] * 4


COLLECTIVES = """
    import os, time
    import numpy as np
    import cloudtrain.distributed.numpy as hvd
    time.sleep(5)  # longer than the hang_timeout: no rank has sent a heartbeat
    hvd.init()
    hvd.allreduce(np.ones(1))
    def loads_data_forever():
        time.sleep(600)
    if hvd.rank() == 1:
        loads_data_forever()
    hvd.allreduce(np.ones(1))
"""


def test_the_rank_that_the_others_wait_for_is_blamed_for_a_hang(run: Run) -> None:
    job = run(
        COLLECTIVES, instance_count=2, distribution={"processes": {"processes_per_host": 1}}, hang_timeout=4
    )
    failure = job.failure
    assert failure
    assert (failure.failure_class, failure.rank, failure.host) == (FailureClass.HANG, 1, "algo-2")
    assert "rank 0 waits for it in a collective" in failure.message
    assert "in loads_data_forever" in failure.stacks
    assert "Collectives of rank 0:\nnot requested by all ranks: allreduce of" in failure.stacks


def test_a_job_that_sends_heartbeats_does_not_hang(run: Run) -> None:
    job = run(
        """
        import time
        from cloudtrain.observe import beat
        for _ in range(70):
            beat()
            time.sleep(0.1)
        """,
        hang_timeout=5,
    )
    assert job.status == JobStatus.COMPLETED


def test_a_retry_resumes_from_the_saved_state(run: Run) -> None:
    job = run(
        """
        import os, pathlib, sys
        saved = pathlib.Path(os.environ["SAGEMAKER_BASE_DIR"], "checkpoints", "step")
        step = int(saved.read_text()) if saved.exists() else 0
        print("start at", step, flush=True)
        saved.write_text(str(step + 1))
        sys.exit(0 if step == 2 else 1)
        """,
        max_retry_attempts=3,
    )
    assert job.status == JobStatus.COMPLETED
    assert [line for line in job.logs().splitlines() if line.startswith("[rank 0] start")] == [
        "[rank 0] start at 0",
        "[rank 0] start at 1",
        "[rank 0] start at 2",
    ]
    assert (job.describe().attempt, len(events(job, "retry"))) == (2, 2)


def test_failures_that_would_repeat_are_not_retried(run: Run) -> None:
    job = run("import nosuch", max_retry_attempts=3)
    assert (job.status, job.describe().attempt) == (JobStatus.FAILED, 0)


def test_a_failure_that_happens_twice_after_the_same_step_ends_the_job(run: Run) -> None:
    job = run(
        """
        import cloudtrain
        batches = {1: 2, 2: 4}
        for step in range(1, 5):
            cloudtrain.log(loss=batches[step], step=step)
        """,
        max_retry_attempts=9,
    )
    found = job.describe()
    assert (found.status, found.attempt, found.exit_code) == (JobStatus.FAILED, 1, 93)
    assert found.failure and found.failure.exception_type == "KeyError"
    assert found.reason == "the same failure happened twice after step 2: KeyError in <module> at train.py:5"
    assert f"not restarting: {found.reason}" in job.logs()
