"""Hosts are lost and restarted, one by one: the others end for the next attempt, and no failure counts."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from pods import RESTART, Pods, outer_address, wait_until

from cloudtrain.contract import FailureClass, JobStatus

TRAINING = """
    import os, time
    from pathlib import Path

    folder, rank = Path("{steps}"), os.environ["RANK"]
    own = folder / f"rank-{{rank}}"
    done = int(own.read_text()) if own.exists() else 0
    print(f"starts at step {{done}}")
    while done < 1000 and not (folder / "enough").exists():
        done += 1
        temporary = folder / f"{{rank}}.new"
        temporary.write_text(str(done))
        temporary.rename(own)
        time.sleep(0.02)
"""


class Training:
    """A job that counts its steps in a folder that survives its pods."""

    def __init__(self, pods: Callable[..., Pods], folder: Path, **arguments: object) -> None:
        folder.mkdir()
        self.folder = folder
        self.pods = pods(TRAINING.format(steps=folder), **arguments)

    def steps(self) -> list[int]:
        found = [self.folder / f"rank-{rank}" for rank in range(2)]
        return [int(path.read_text()) if path.exists() else 0 for path in found]

    def wait_for_progress(self) -> None:
        before = self.steps()
        wait_until(
            lambda: all(now > old for now, old in zip(self.steps(), before, strict=True)),
            "steps of both ranks",
        )


def test_a_job_survives_the_loss_of_each_host(pods: Callable[..., Pods], tmp_path: Path) -> None:
    """Between machines: the connections are encrypted."""
    training = Training(pods, tmp_path / "steps", address=outer_address())
    job = training.pods
    leader, follower = job.start_all()
    training.wait_for_progress()

    # a follower dies, and its replacement starts before anybody has noticed
    follower.kill()
    follower = job.start(1)
    assert leader.exit_code() == RESTART
    failure = leader.ending.failure
    assert failure is not None
    assert (failure.failure_class, failure.host) == (FailureClass.HOST_LOST, "job-1")
    assert follower.process.poll() is None

    # the new follower has waited for the new leader
    leader = job.start(0)
    training.wait_for_progress()
    assert "starts at step 0" not in follower.text

    # the leader dies
    leader.kill()
    leader = job.start(0)
    assert follower.exit_code() == RESTART
    assert leader.process.poll() is None
    follower = job.start(1)
    training.wait_for_progress()

    # both die, and the follower is back first
    for pod in (leader, follower):
        pod.kill()
    follower = job.start(1)
    leader = job.start(0)
    training.wait_for_progress()

    (training.folder / "enough").touch()
    assert (leader.exit_code(), follower.exit_code()) == (0, 0)
    assert leader.ending.status == follower.ending.status == JobStatus.COMPLETED


@pytest.mark.soak
def test_a_second_process_of_a_host_that_seems_alive(pods: Callable[..., Pods], tmp_path: Path) -> None:
    """Its machine was cut off: no connection is closed. The leader does not wait for its silence to become a loss."""
    training = Training(pods, tmp_path / "steps", host_timeout=600.0)
    job = training.pods
    leader, old = job.start_all()
    training.wait_for_progress()
    old.process.send_signal(signal.SIGSTOP)
    new = job.start(1)
    assert leader.exit_code() == RESTART
    failure = leader.ending.failure
    assert failure is not None
    assert failure.message == "host job-1 was lost: its platform has started another process for it"
    next_leader = job.start(0)
    training.wait_for_progress()

    # the old one awakes, and takes no part any more
    old.process.send_signal(signal.SIGCONT)
    assert old.exit_code() == RESTART

    # a leader that was suspended awakes, after its followers have a new one
    next_leader.process.send_signal(signal.SIGSTOP)
    new.kill()
    last = job.start(1)
    next_leader.process.send_signal(signal.SIGCONT)
    assert next_leader.exit_code() == RESTART
    assert last.process.poll() is None
    final = job.start(0)
    training.wait_for_progress()
    (training.folder / "enough").touch()
    assert (final.exit_code(), last.exit_code()) == (0, 0)
