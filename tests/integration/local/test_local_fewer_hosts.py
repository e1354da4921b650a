"""A job continues with the hosts that are left: hosts are processes of this machine here, behind ssh in `hosts`."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

from local_jobs import Run, events, wait_for_end, wait_until

from cloudtrain import Job, JobStatus
from cloudtrain.contract import FailureClass

SCRIPT = """
    import os, sys, time
    from cloudtrain import environment
    from cloudtrain.checkpoint import Checkpointer

    def commit(key, data):  # a save is under way when the notices arrive
        if not key.startswith("step-000000000002"):
            return create(key, data)
        print("saves", flush=True)
        end = time.monotonic() + 300
        while not os.path.exists(sys.argv[1]) and time.monotonic() < end:
            time.sleep(0.05)
        return create(key, data)

    attempt = int(os.environ["CLOUDTRAIN_ATTEMPT"])
    checkpointer = Checkpointer(every=1)
    if not attempt:
        store = checkpointer._stores[0]._store
        create, store.create = store.create, commit
    checkpoint = checkpointer.restore()
    first = checkpoint.step + 1 if checkpoint else 1
    world = (os.environ["RANK"], os.environ["WORLD_SIZE"], os.environ["SM_HOSTS"])
    print("begins", attempt, *world, os.environ["SM_CURRENT_HOST"], os.getppid(), "at", first, flush=True)
    for step in range(first, first + (10_000 if attempt < int(sys.argv[2]) else 2)):
        checkpointer.maybe_save(step, {"step": step})
        environment.exit_if_preempted()
        if step == first + 1:
            print("trains", attempt, flush=True)
        time.sleep(0.1)
"""


def start(run: Run, noticed: Path, least: int, last: int) -> Job:
    """A job on three hosts whose attempt ``last`` ends by itself."""
    return run(
        SCRIPT,
        arguments=[str(noticed), str(last)],
        instance_count=3,
        min_instance_count=least,
        distribution={"processes": {"processes_per_host": 1}},
        wait=False,
    )


def wait_for_line(job: Job, pattern: str, count: int) -> None:
    wait_until(lambda: len(re.findall(pattern, job.logs())) == count, f"{count} x {pattern}")


def send(job: Job, attempt: int, host: str, number: int) -> None:
    """Send a signal to the runtime of a host."""
    [runtime] = re.findall(rf"begins {attempt} \d \d \S+ {host} (\d+) at", job.logs())
    os.kill(int(runtime), number)


def test_two_hosts_are_reclaimed_together_during_a_save(run: Run, tmp_path: Path) -> None:
    """The leader is one of them, and gets its notice twice."""
    job = start(run, tmp_path / "noticed", least=1, last=1)
    wait_for_line(job, "begins 0", 3)
    wait_for_line(job, "saves", 1)
    for host in ("algo-1", "algo-3", "algo-1"):
        send(job, 0, host, signal.SIGUSR1)
    wait_until(
        lambda: {event["source"] for event in events(job, "reclaimed")} == {"algo-1", "algo-3"}, "notices"
    )
    (tmp_path / "noticed").touch()
    described = wait_for_end(job).describe()
    assert described.status == JobStatus.COMPLETED, job.logs()
    assert described.details["dropped hosts"] == "algo-1, algo-3"
    assert "restarting, with fewer hosts: without algo-1, algo-3, algo-2 is left" in job.logs()
    [begun] = re.findall(r'begins 1 0 1 \["algo-2"\] algo-2 \d+ at (\d+)', job.logs())
    assert int(begun) > 2, "the save that was under way is kept"


def test_a_job_ends_when_too_few_hosts_are_left(run: Run, tmp_path: Path) -> None:
    """It continues without its leader, and then loses another one."""
    (tmp_path / "noticed").touch()
    job = start(run, tmp_path / "noticed", least=2, last=9)
    wait_for_line(job, "trains 0", 3)
    send(job, 0, "algo-1", signal.SIGKILL)
    wait_for_line(job, "trains 1", 2)
    begun = re.findall(r"begins 1 (\d) 2 (\S+) (\S+) \d+ at (\d+)", job.logs())
    assert sorted(place[:3] for place in begun) == [
        ("0", '["algo-2","algo-3"]', "algo-2"),
        ("1", '["algo-2","algo-3"]', "algo-3"),
    ]
    assert all(int(first) > 1 for *_, first in begun)
    send(job, 1, "algo-3", signal.SIGKILL)
    described = wait_for_end(job).describe()
    assert described.status == JobStatus.FAILED, job.logs()
    assert described.failure is not None
    assert (described.failure.failure_class, described.failure.host) == (FailureClass.HOST_LOST, "algo-3")
    assert described.details["dropped hosts"] == "algo-1"
