"""Ranks that torchrun's agent restarts: the death of a rank does not end the job."""

from __future__ import annotations

import pytest
from local_jobs import Run, wait_for_end, wait_until

from cloudtrain import JobStatus

RESTARTED = {"torch_distributed": {"processes_per_host": 2, "max_restarts": 2}}

DIES = """
    import os, signal
    attempt = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
    print("attempt", attempt, flush=True)
    if os.environ["RANK"] == "1" and attempt < {attempts}:
        os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize(
    ("attempts", "status"),
    [(2, JobStatus.COMPLETED), (9, JobStatus.FAILED)],
    ids=["comes through", "gives up"],
)
def test_a_rank_that_is_killed(run: Run, attempts: int, status: JobStatus) -> None:
    job = wait_for_end(run(DIES.format(attempts=attempts), wait=False, distribution=RESTARTED))
    logs = job.logs()
    assert job.status == status, logs
    assert "[rank 1] attempt 2" in logs
    if status == JobStatus.FAILED:
        failure = job.describe().failure
        assert failure is not None
        assert (failure.rank, failure.signal) == (1, 9)


ELASTIC = """
    import os, signal
    import cloudtrain.distributed.torch as hvd
    from cloudtrain.distributed.torch import elastic

    hvd.init()

    @elastic.run
    def train(state):
        for step in range(state.step, 9):
            if (hvd.rank(), step, os.environ["TORCHELASTIC_RESTART_COUNT"]) == (1, 5, "0"):
                os.kill(os.getpid(), signal.SIGKILL)
            if hvd.rank() == 0:
                print("step", step, flush=True)
            hvd.barrier()
            state.step = step + 1
            if state.step % 2 == 0:
                state.commit()

    train(elastic.TorchState(step=0))
    hvd.shutdown()
"""


@pytest.mark.soak  # integration/elastic does the same without a job, and the test above restarts ranks of a job
def test_two_hosts_resume_from_the_last_commit(run: Run) -> None:
    one_rank = {"torch_distributed": {"processes_per_host": 1, "max_restarts": 2}}
    job = wait_for_end(run(ELASTIC, wait=False, instance_count=2, distribution=one_rank), 120)
    logs = job.logs()
    assert job.status == JobStatus.COMPLETED, logs
    steps = [int(line.split()[-1]) for line in logs.splitlines() if "] step " in line]
    assert steps[-5:] == [4, 5, 6, 7, 8]
    assert steps[:-5] in ([0, 1, 2, 3, 4], [0, 1, 2, 3, 4, 5])


def test_a_stop_restarts_nothing(run: Run) -> None:
    """And leaves the ranks their grace period, in which torchrun's agent ends none of them."""
    script = """
        import os, signal, sys, time

        def stop(number, frame):
            time.sleep(1)
            print("saved", flush=True)
            sys.exit(0)

        signal.signal(signal.SIGTERM, stop)
        print("on", os.environ["TORCHELASTIC_RESTART_COUNT"], flush=True)
        time.sleep(600)
    """
    job = run(script, wait=False, distribution=RESTARTED)
    wait_until(lambda: job.logs().count("on 0") == 2, "two ranks")
    job.stop()
    wait_for_end(job)
    assert job.status == JobStatus.STOPPED
    assert "on 1" not in job.logs()
    assert job.logs().count("saved") == 2
