"""A cap on the cost of a job on hosts that are reached through ssh: ranks that do not end, a host that is paused, and a
supervisor that is killed."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import tarfile
import time
from pathlib import Path

import pytest
from capped_jobs import set_prices
from ssh_hosts import SshHosts

from cloudtrain import Job
from cloudtrain.contract import JobStatus
from cloudtrain.runtime.supervisor.record import JobRecord

pytestmark = pytest.mark.soak
SCRIPT = """
import os, signal, sys, time

def save(*_):
    open(os.environ["SM_MODEL_DIR"] + "/saved", "w").write("usable")
    sys.exit(0)

signal.signal(signal.SIGTERM, save if os.environ["SM_CURRENT_HOST"] == "n1" else signal.SIG_IGN)
print("ready", os.environ["SM_CURRENT_HOST"], flush=True)
until = time.monotonic() + 600
while time.monotonic() < until:
    time.sleep(600)  # a long step, which a signal does not end
"""
CAP = 0.05
"""In EUR: it pays for 30 s of two hosts, the last 3 of them for their end."""
GRACE = 5
ENDS = 60.0
"""Seconds that hosts may take to end after the grace."""


@pytest.fixture(scope="module")
def hosts(three_hosts: SshHosts) -> SshHosts:
    three_hosts.write_script(SCRIPT)
    return three_hosts


@pytest.fixture(autouse=True)
def home(hosts: SshHosts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The state of this process is that of the client."""
    monkeypatch.setenv("CLOUDTRAIN_HOME", str(hosts.own / "home"))
    set_prices("hosts", tmp_path, monkeypatch)


def _start(hosts: SshHosts, name: str) -> Job:
    job = hosts.start(name, {"hosts": "n1,n2"}, max_cost=CAP, max_retry_attempts=2, stop_grace=GRACE)
    hosts.wait_for(name, "ready", 2)
    return job


def _assert_capped(hosts: SshHosts, job: Job, most_seconds: float) -> None:
    """The job has ended at its cap, with a usable model, and its cost is that of ``most_seconds`` more at most."""
    deadline = time.monotonic() + 300
    while not job.status.is_final:
        assert time.monotonic() < deadline, job.describe()
        time.sleep(0.1)
    found = job.describe()
    assert (found.status, found.attempt) == (JobStatus.STOPPED, 0), found
    told = re.fullmatch(
        r"the max_cost of 0\.05 EUR is reached: it cost (\S+) EUR, (\S+) s after the cap", found.reason
    )
    assert told, found.reason
    assert GRACE - 3 <= float(told[2]) < most_seconds
    cost = job.platform.cost(found).amount  # type: ignore[attr-defined]
    assert CAP < cost < CAP * (1 + most_seconds / 30)
    assert cost == pytest.approx(float(told[1]), rel=0.1)
    with tarfile.open(hosts.job(job.name) / "output/model.tar.gz") as model:
        assert [item.name for item in model if item.isfile()] == ["saved"]


def _pause(first: int) -> None:
    """Stop the processes of the host whose first process has this ID, but for its ssh server."""
    namespace = os.readlink(f"/proc/{first}/ns/pid")
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            command = (process / "cmdline").read_bytes()
            if os.readlink(process / "ns/pid") == namespace and b"sshd" not in command:
                os.kill(int(process.name), signal.SIGSTOP)


def test_a_rank_that_ignores_the_stop_is_killed_after_the_grace(hosts: SshHosts) -> None:
    _assert_capped(hosts, _start(hosts, "stubborn"), GRACE + ENDS)
    hosts.wait_for_silence()


def test_a_host_that_is_paused_over_the_cap_ends_too(hosts: SshHosts) -> None:
    job = _start(hosts, "paused")
    _pause(hosts._servers["n2"].first_process)
    try:
        _assert_capped(hosts, job, GRACE + 2 * ENDS)
    finally:
        hosts.kill("n2")
        hosts.start_server(hosts.machines[1])


def test_after_the_kill_of_its_supervisor_a_job_costs_no_more(hosts: SshHosts) -> None:
    job = _start(hosts, "orphaned")
    state = hosts.job("orphaned") / "state.json"
    os.kill(json.loads(state.read_text())["pid"], signal.SIGKILL)
    hosts.wait_for_silence()
    found = job.describe()
    assert found.status == JobStatus.FAILED
    cost = job.platform.cost(found)  # type: ignore[attr-defined]
    record = JobRecord.from_json(state.read_bytes())
    assert record.resumed_at is not None and record.ended_at is not None
    assert cost.amount == pytest.approx((record.ended_at - record.resumed_at) * 6 / 3600)
    time.sleep(1)
    assert job.platform.cost(job.describe()) == cost  # type: ignore[attr-defined]
