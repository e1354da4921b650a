"""Jobs that hang silently are found from outside: real ranks, and a short limit."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from local_jobs import TWO_RANKS, Run, events, folder, wait_until

from cloudtrain import FailureClass, Job, JobStatus
from cloudtrain.cli.jobs import describe
from cloudtrain.testing import S3Server

LIMIT = 6
THREE_RANKS = {"processes": {"processes_per_host": 3}}
IN_LOADER = """
    import time
    import torch, torch.distributed as dist
    from torch.utils.data import DataLoader, Dataset
    class Slow(Dataset):
        def __len__(self):
            return 4
        def __getitem__(self, index):
            if index == 3 and dist.get_rank() == 1:
                time.sleep(600)
            return torch.ones(1)
    dist.init_process_group("gloo")
    for batch in DataLoader(Slow()):
        dist.all_reduce(batch)
        print("step", flush=True)
"""
SWAPS = """
    import os
    if os.environ["CLOUDTRAIN_ATTEMPT"] != "0":
        raise SystemExit  # before torch is imported
    import torch, torch.distributed as dist
    dist.init_process_group("gloo")
    groups = [None, dist.new_group()]
    for group in reversed(groups) if dist.get_rank() == 1 else groups:
        dist.all_reduce(torch.ones(1), group=group)
"""
SAVES = """
    from cloudtrain.checkpoint import Checkpointer
    checkpointer = Checkpointer()
    for step in range(1, 100_000):
        checkpointer.save(step, {"step": step})
        print("saved", step, flush=True)
"""
WORKS = """
    import os, time
    import torch, torch.distributed as dist
    dist.init_process_group("gloo")
    end = time.monotonic() + 16
    while dist.get_rank() == 0 and time.monotonic() < end:
        pass  # it compiles
    dist.all_reduce(torch.ones(1))
    for number in range(12):
        time.sleep(1)
        print("alive", number, flush=True)
"""


def hanging(job: Job) -> list[dict[str, Any]]:
    return events(job, "hanging")


@pytest.fixture
def stopped() -> Iterator[list[Job]]:
    """Jobs that are stopped at the end of a test."""
    jobs: list[Job] = []
    yield jobs
    for job in jobs:
        job.stop()


def test_a_rank_in_its_data_loader(run: Run, stopped: list[Job], tmp_path: Path) -> None:
    told = tmp_path / "told"
    rules = [{"on": ["hanging"], "command": ["sh", "-c", f"cat > {told}.part; mv {told}.part {told}"]}]
    job = run(IN_LOADER, distribution=TWO_RANKS, hang_after=LIMIT, stop_grace=1, notify=rules, wait=False)
    stopped.append(job)
    wait_until(lambda: hanging(job) or job.status.is_final, "the hang")
    found = hanging(job)[0]
    assert (found["ranks"], found["host"], found["cause"], found["state"]) == (
        "1",
        "algo-1",
        "script",
        "began",
    )
    message = (
        "rank 1 on algo-1 is in __getitem__ at train.py:10, while rank 0 waits in all_reduce at train.py:14"
    )
    assert found["message"] == message
    assert found["stack"].startswith("__getitem__ (train.py:10)")
    assert found["seconds"] >= LIMIT
    kept = folder(job).host("algo-1").output_data / "flight-recorder" / "gloo"
    assert sorted(path.name for path in kept.iterdir()) == ["rank_0", "rank_1"]
    assert job.status == JobStatus.RUNNING
    shown = CliRunner().invoke(describe, [job.name])
    assert "hangs         no sign of life for" in shown.stdout, shown.output
    assert message in job.logs() and "[cloudtrain] [cloudtrain]" not in job.logs()
    wait_until(told.exists, "the notification")
    assert message in told.read_text()


def test_a_rank_whose_flight_record_differs_restarts_the_job(run: Run) -> None:
    options = {"hang_after": LIMIT, "on_hang": "restart", "max_retry_attempts": 1}
    job = run(SWAPS, distribution=THREE_RANKS, **options)
    assert (job.status, job.describe().attempt) == (JobStatus.COMPLETED, 1)
    [retry] = events(job, "retry")
    assert "rank 1 on algo-1 hangs: no sign of life" in retry["failure"]
    where = "in all_reduce at train.py:9 (gloo:all_reduce of Float[1], number 1 of gloo"
    assert f"rank 0 {where} 0 default_pg), rank 1 {where} 1 " in retry["failure"]
    assert "restarting, restart after a hang 1 of 1" in job.logs()


def test_a_hang_that_is_to_stop_the_job_has_the_stacks(run: Run) -> None:
    job = run("import time; time.sleep(600)", hang_after=3, on_hang="stop", max_retry_attempts=3)
    assert (job.status, job.describe().attempt) == (JobStatus.FAILED, 0)
    assert job.failure
    assert (job.failure.failure_class, job.failure.rank) == (FailureClass.HANG, 0)
    assert "train.py" in job.failure.stacks


def test_storage_that_does_not_answer_is_named(
    run: Run, stopped: list[Job], monkeypatch: pytest.MonkeyPatch
) -> None:
    with S3Server() as server:
        for name, value in server.env.items():
            monkeypatch.setenv(name, value)
        server.create_bucket("saved")
        options = {
            "checkpoint_s3_uri": "s3://saved/job",
            "hang_after": LIMIT,
            "on_hang": "stop",
            "stop_grace": 1,
        }
        job = run(SAVES, environment=server.env, wait=False, **options)
        stopped.append(job)
        wait_until(lambda: "saved 2" in job.logs(), "two checkpoints")
        assert server._weed
        server._weed.process.send_signal(signal.SIGSTOP)
        try:
            wait_until(lambda: hanging(job) or job.status.is_final, "the silence")
            [found] = hanging(job)
            assert (found["ranks"], found["cause"]) == ("0", "storage")
            assert "rank 0 on algo-1 waits for storage in save at train.py:5" in found["message"]
            assert job.status == JobStatus.RUNNING, "the script is not to blame"
        finally:
            server._weed.process.send_signal(signal.SIGCONT)
        wait_until(lambda: len(hanging(job)) == 2, "the end of it")
        over = hanging(job)[1]
        assert over["state"] == "ended"
        assert f"until {over['sign']}" in job.describe().details["last hang"]


@pytest.mark.soak
def test_neither_work_nor_a_pause_is_a_hang(run: Run) -> None:
    job = run(WORKS, distribution=TWO_RANKS, hang_after=LIMIT, on_hang="stop", wait=False)
    wait_until(lambda: "alive 2" in job.logs() or job.status.is_final, "the end of the work")
    assert "alive 2" in job.logs(), (job.failure, job.logs())
    supervisor, runtime = folder(job).read_record().pid, events(job, "host")[0]["pid"]
    ranks = [int(pid) for pid in Path(f"/proc/{runtime}/task/{runtime}/children").read_text().split()]
    assert supervisor and len(ranks) >= 2
    processes = [supervisor, runtime, *ranks]
    for number in (signal.SIGSTOP, signal.SIGCONT):
        for process in processes:
            os.kill(process, number)
        time.sleep(LIMIT + 4 if number == signal.SIGSTOP else 0)
    wait_until(lambda: job.status.is_final, "the end")
    assert (job.status, hanging(job)) == (JobStatus.COMPLETED, []), job.logs()
