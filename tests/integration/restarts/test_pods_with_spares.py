"""Pods of a job with spare hosts are lost, one after the other: the first pod leads, and gives out the places."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from pods import RESTART, Pod, Pods, outer_address, wait_until

from cloudtrain.contract import JobStatus
from cloudtrain.observe import Summary, read_events

IMPATIENT = {"CLOUDTRAIN_HOST_TIMEOUT": "5"}
"""For a leader that is to give the place of a missing host away soon."""
TRAINING = """
    import json, os, time
    from pathlib import Path

    folder, rank = Path("{steps}"), os.environ["RANK"]
    config = json.loads(Path(os.environ["SM_INPUT_CONFIG_DIR"], "resourceconfig.json").read_text())
    assert config["hosts"] == json.loads(os.environ["SM_HOSTS"]), config
    own = folder / f"rank-{{rank}}"
    done = int(own.read_text()) if own.exists() else 0
    print("trains", rank, "of", os.environ["WORLD_SIZE"], os.environ["SM_HOSTS"], flush=True)
    while not (folder / "enough").exists():
        done += 1
        (folder / f"{{rank}}.new").write_text(str(done))
        (folder / f"{{rank}}.new").rename(own)
        time.sleep(0.02)
"""


@pytest.fixture
def job(pods: Callable[..., Pods], tmp_path: Path) -> Pods:
    """Two places and a spare host, between machines: connections are encrypted."""
    (tmp_path / "steps").mkdir()
    script = TRAINING.format(steps=tmp_path / "steps")
    return pods(script, count=3, address=outer_address(), spare_hosts=1)


def wait_for(pod: Pod, text: str) -> None:
    wait_until(lambda: text in pod.text or pod.process.poll() is not None, f"{text!r} of {pod.name}")
    assert text in pod.text, pod.text


def spare_hosts(leader: Pod) -> str:
    """The detail of the job's description."""
    summary = Summary()
    for event in read_events(leader.paths.events):
        summary.add(event)
    return summary.details.get("spare hosts", "")


def test_a_spare_takes_the_place_of_a_lost_pod_and_gives_none_back(job: Pods, tmp_path: Path) -> None:
    leader, other, spare = job.start_all()
    wait_for(other, 'trains 1 of 2 ["job-0","job-1"]')
    wait_for(spare, "job-2 is a spare host: it is ready")
    wait_until(lambda: spare_hosts(leader) == "job-2 waits", "the description")

    # its pod is killed, and finds no other node
    other.kill()
    assert leader.exit_code() == RESTART
    leader = job.start(0, **IMPATIENT)
    wait_for(spare, 'trains 1 of 2 ["job-0","job-2"]')
    assert "job-2 takes the place of job-1" in leader.text

    # it does, and now it is the spare one
    other = job.start(1)
    wait_for(other, "job-1 is a spare host: it is ready")
    wait_until(
        lambda: spare_hosts(leader) == "job-2 takes the place of job-1; job-1 waits", "the description"
    )

    # the leader is killed: the spare host stays, and has no place any more
    leader.kill()
    assert spare.exit_code() == RESTART
    assert other.process.poll() is None
    leader, spare = job.start(0), job.start(2)
    wait_for(other, 'trains 1 of 2 ["job-0","job-1"]')
    wait_for(spare, "job-2 is a spare host: it is ready")

    # the spare one is killed: nothing happens
    spare.kill()
    wait_until(lambda: spare_hosts(leader) == "", "the description")
    assert leader.process.poll() is other.process.poll() is None
    spare = job.start(2)
    wait_for(spare, "job-2 is a spare host: it is ready")

    (tmp_path / "steps/enough").touch()
    assert [pod.exit_code() for pod in (leader, other, spare)] == [0, 0, 0]
    assert spare.ending.status == leader.ending.status == JobStatus.COMPLETED


def test_a_spare_host_leaves_its_node_to_a_leader_that_has_none(job: Pods) -> None:
    leader, other = job.start(0), job.start(1)
    wait_for(other, "trains 1 of 2")
    spare = job.start(2, CLOUDTRAIN_JOIN_TIMEOUT="10")  # it finds the leader immediately
    wait_for(spare, "job-2 is a spare host: it is ready")
    leader.kill()
    assert spare.exit_code() == RESTART
    assert other.exit_code() == RESTART


def test_a_spare_host_that_is_stopped_ends(job: Pods) -> None:
    leader, other, spare = job.start_all()
    wait_for(spare, "job-2 is a spare host: it is ready")
    wait_for(other, "trains 1 of 2")
    spare.stop()
    assert spare.exit_code() == RESTART
    assert leader.process.poll() is other.process.poll() is None


def test_a_notice_before_there_is_a_leader_reaches_the_ranks(job: Pods, tmp_path: Path) -> None:
    """A host never starts; the spare one, which takes its place, gets its notice while it looks for the leader."""
    spare = job.start(2)
    status = Path(f"/proc/{spare.process.pid}/status")
    handled = 1 << (signal.SIGUSR1 - 1)
    wait_until(lambda: int(status.read_text().split("SigCgt:")[1].split()[0], 16) & handled, "its handler")
    spare.process.send_signal(signal.SIGUSR1)
    leader = job.start(0, **IMPATIENT)
    wait_for(spare, 'trains 1 of 2 ["job-0","job-2"]')
    wait_until(lambda: '"notice"' in leader.paths.events.read_text(), "the notice on all hosts")
    late = job.start(1)
    wait_for(late, "job-1 is a spare host: it is ready")
    (tmp_path / "steps/enough").touch()
    assert [pod.exit_code() for pod in (leader, spare, late)] == [0, 0, 0]
