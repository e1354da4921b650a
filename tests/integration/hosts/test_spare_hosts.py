"""Spare hosts take the places of hosts that are lost: on real machines behind ssh, each with its own network."""

from __future__ import annotations

import contextlib
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from subprocess import CalledProcessError
from typing import Any

import pytest
from ssh_hosts import SshHosts, ssh_hosts

from cloudtrain import Job
from cloudtrain.contract import FailureClass, JobStatus
from cloudtrain.errors import TrainingFailed

SCRIPT = """
import os, sys, time
from cloudtrain import environment
from cloudtrain.checkpoint import Checkpointer

def exists(name):
    return os.path.exists(os.path.join(sys.argv[2], name))

def touch(name):
    open(os.path.join(sys.argv[2], name), "w").close()

def wait(name):
    end = time.monotonic() + 300
    while not exists(name) and time.monotonic() < end:
        time.sleep(0.05)

def commit_late(key, data):  # the machine pauses before a commit, until another attempt has restored
    if not exists("hold"):
        return create(key, data)
    print("holds a commit", flush=True)
    wait("restored")
    try:
        return create(key, data)
    finally:
        touch("went-on")

checkpointer = Checkpointer(every=1)
if os.environ["CLOUDTRAIN_ATTEMPT"] == "0":
    store = checkpointer._stores[0]._store
    create, store.create = store.create, commit_late
checkpoint = checkpointer.restore()
if exists("hold") and os.environ["CLOUDTRAIN_ATTEMPT"] != "0":
    touch("restored")
    wait("went-on")
first = checkpoint.step + 1 if checkpoint else 1
place = (os.environ["RANK"], os.environ["SM_CURRENT_HOST"], os.environ["SM_HOSTS"], os.getppid())
print("begins", *place, "at", first, flush=True)
last = int(sys.argv[1]) if os.environ["CLOUDTRAIN_ATTEMPT"] != "0" else 10_000
for step in range(first, first + last):
    checkpointer.maybe_save(step, {"step": step})
    environment.exit_if_preempted()
    if exists("enough"):
        break
    if step == first + 2:
        print("trains", flush=True)
    time.sleep(0.1)
print("ends", flush=True)
"""


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshHosts]:
    """Four hosts, n1 to n4."""
    with ssh_hosts(4, tmp_path_factory.mktemp("h")) as found:
        found.write_script(SCRIPT)
        yield found


@pytest.fixture(autouse=True)
def home(hosts: SshHosts, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The state of this process is that of the client. All hosts are on, and idle, before and after."""
    monkeypatch.setenv("CLOUDTRAIN_HOME", str(hosts.own / "home"))
    yield
    hosts.wait_for_silence()


def start(
    hosts: SshHosts,
    name: str,
    names: str = "n1,n2,n3",
    last: int = 5,
    max_preemptions: int = 9,
    spare_hosts: int = 1,
    **fields: Any,
) -> Job:
    """A job with a place on each host but the last, which is spare; it trains when this returns."""
    shared = hosts.folder / "shared"
    shared.mkdir(exist_ok=True)
    marks(hosts, name).mkdir()
    arguments = [str(last), str(marks(hosts, name))]
    options = {
        "hosts": [f"{host}:1" for host in names.split(",")],
        "folder": str(shared),
        "python": sys.executable,
        "max_preemptions": max_preemptions,
    }
    limits = {"host_timeout": 5, "stop_grace": 5, **fields}
    job = hosts.start(name, options, spare_hosts=spare_hosts, arguments=arguments, **limits)
    hosts.wait_for(name, "trains", names.count(",") + 1 - spare_hosts)
    hosts.wait_for(name, "is a spare host: it is ready", spare_hosts)
    return job


def marks(hosts: SshHosts, name: str) -> Path:
    """The folder of the marks with which the ranks of a job, and its test, wait for one another."""
    return hosts.folder / f"marks-{name}"


def power(hosts: SshHosts, *names: str) -> None:
    for name in names:
        hosts.start_server(hosts.machines[int(name[1:]) - 1])


def send(hosts: SshHosts, job: Job, name: str, signal: str) -> None:
    """Send a signal to the runtime of a host in the last attempt."""
    *_, runtime = re.findall(rf"begins \d {name} \S+ (\d+) ", job.logs())
    hosts.execute(name, "kill", f"-{signal}", runtime)


def places(job: Job) -> list[str]:
    """The hosts of the ranks of the last attempt, in rank order; that attempt began at a checkpoint."""
    begun = re.findall(r"begins (\d+) (\S+) (\S+) \d+ at (\d+)", job.logs())
    last = sorted(begun[-2:])
    assert all(int(first) > 1 for *_, first in last), begun
    assert {hosts for _, _, hosts, _ in last} == {f'["{last[0][1]}","{last[1][1]}"]'}
    return [host for _, host, _, _ in last]


def test_a_spare_takes_the_place_of_a_host_that_is_lost(hosts: SshHosts) -> None:
    """The host comes back, and takes the place of the leader, which decides for all others."""
    job = start(hosts, "loses-two", last=10_000)
    assert job.describe().details["spare hosts"] == "n3 waits"
    hosts.kill("n2")
    hosts.wait_for("loses-two", "restarting, spare host 1 of 1: n3 takes the place of n2", 1)
    hosts.wait_for("loses-two", "trains", 4)
    power(hosts, "n2")
    hosts.wait_for("loses-two", "host n2 can be reached again: it joins as a spare host", 1)
    hosts.wait_for("loses-two", "n2 is a spare host: it is ready", 1)
    assert job.describe().details["spare hosts"] == "n3 takes the place of n2; n2 waits"
    hosts.kill("n1")
    hosts.wait_for("loses-two", "restarting, spare host 2: n2 takes the place of n1", 1)
    hosts.wait_for("loses-two", "trains", 6)
    (marks(hosts, "loses-two") / "enough").touch()
    described = _end(job)
    power(hosts, "n1")
    assert described.status == JobStatus.COMPLETED, job.logs()
    assert places(job) == ["n2", "n3"]
    assert described.details["spare hosts"] == "n3 takes the place of n2; n2 takes the place of n1"


@pytest.mark.parametrize("paused", [pytest.param("n2", marks=pytest.mark.soak), "n1"])
def test_a_runtime_that_is_paused_loses_its_place(hosts: SshHosts, paused: str) -> None:
    """Its rank trains on. That of n1 still commits a step after the next attempt has restored the one before."""
    job = start(hosts, f"pauses-{paused}")
    if paused == "n1":
        (marks(hosts, job.name) / "hold").touch()
        hosts.wait_for(job.name, "holds a commit", 1)
    send(hosts, job, paused, "STOP")
    described = _end(job)
    with contextlib.suppress(
        CalledProcessError
    ):  # the end of its connection has continued it, and it has ended
        send(hosts, job, paused, "CONT")
    hosts.wait_for_silence()
    assert described.status == job.describe().status == JobStatus.COMPLETED, job.logs()
    assert set(places(job)) == {"n1", "n2", "n3"} - {paused}
    assert ("in the meantime: it is removed" in job.logs()) == (paused == "n1"), job.logs()


@pytest.mark.parametrize("notice", ["USR1", pytest.param("TERM", marks=pytest.mark.soak)])
def test_a_job_moves_off_a_host_that_is_taken_back(hosts: SshHosts, notice: str) -> None:
    """It costs neither a retry nor a preemption, and the other hosts stay."""
    job = start(hosts, f"moves-{notice.lower()}", max_preemptions=0)
    send(hosts, job, "n2", notice)
    described = _end(job)
    assert described.status == JobStatus.COMPLETED, job.logs()
    assert places(job) == ["n1", "n3"]
    assert "preempted; restarting, spare host 1 of 1: n3 takes the place of n2" in job.logs()


def test_a_spare_that_dies_while_it_waits(hosts: SshHosts) -> None:
    job = start(hosts, "spare-dies", last=1)
    hosts.kill("n3")
    hosts.wait_for("spare-dies", "the spare host n3 cannot take the place of another: host n3 was lost", 1)
    assert job.status == JobStatus.RUNNING
    hosts.kill("n2")
    with pytest.raises(TrainingFailed) as caught:
        job.wait()
    power(hosts, "n2", "n3")
    assert (caught.value.failure.failure_class, caught.value.failure.host) == (FailureClass.HOST_LOST, "n2")


def test_a_job_continues_with_fewer_hosts_until_one_is_left(hosts: SshHosts) -> None:
    """It loses its leader, then gets a notice for the next leader; at last too few hosts are left."""
    job = start(hosts, "shrinks", last=10_000, max_preemptions=0, spare_hosts=0, min_instance_count=1)
    hosts.kill("n1")
    hosts.wait_for("shrinks", 'begins 1 n3 ["n2","n3"]', 1)
    hosts.wait_for("shrinks", "trains", 5)
    send(hosts, job, "n2", "USR1")
    hosts.wait_for("shrinks", 'begins 0 n3 ["n3"]', 1)
    hosts.kill("n3")
    with pytest.raises(TrainingFailed) as caught:
        job.wait()
    power(hosts, "n1", "n3")
    assert (caught.value.failure.failure_class, caught.value.failure.host) == (FailureClass.HOST_LOST, "n3")
    assert job.describe().details["dropped hosts"] == "n1, n2"
    begun = re.findall(r"begins \d (\S+) (\S+) \d+ at (\d+)", job.logs())
    assert all(int(first) > 1 for *_, first in begun[3:]), begun


def test_two_hosts_are_lost_and_one_is_spare(hosts: SshHosts) -> None:
    job = start(hosts, "two-die", "n1,n2,n3,n4")
    hosts.kill("n2")
    hosts.kill("n3")
    with pytest.raises(TrainingFailed) as caught:
        job.wait()
    power(hosts, "n2", "n3")
    assert caught.value.failure.failure_class == FailureClass.HOST_LOST
    assert "n4 takes the place of n" in job.logs()


def _end(job: Job) -> Any:
    job.wait()
    return job.describe()


def test_a_leader_that_the_network_cut_off_does_not_train_on(hosts: SshHosts) -> None:
    """It sees the same storage as the others, and comes back while the next attempt runs."""
    job = start(hosts, "cut-off", last=60)
    hosts.machines[0].unplug()
    hosts.wait_for("cut-off", 'begins 0 n3 ["n3","n2"]', 1)
    deadline = time.monotonic() + 120
    while any("train.py" in command for command in hosts.processes("n1")):
        assert time.monotonic() < deadline, "it trains on"
        time.sleep(0.05)
    hosts.machines[0].plug()
    described = _end(job)
    assert described.status == JobStatus.COMPLETED, job.logs()
    assert places(job) == ["n3", "n2"]
    hosts.wait_for_silence()


@pytest.mark.soak  # in CI, one dies while it waits, and a job that loses two hosts ends
def test_a_spare_that_dies_while_it_takes_over(hosts: SshHosts) -> None:
    job = start(hosts, "dies-later", last=10_000)
    hosts.kill("n2")
    hosts.wait_for("dies-later", 'begins 1 n3 ["n1","n3"]', 1)
    hosts.kill("n3")
    with pytest.raises(TrainingFailed) as caught:
        job.wait()
    power(hosts, "n2", "n3")
    assert (caught.value.failure.failure_class, caught.value.failure.host) == (FailureClass.HOST_LOST, "n3")
